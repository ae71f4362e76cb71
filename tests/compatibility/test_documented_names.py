"""Every import that 969bcf6's README, documentation and examples show works in a plug-in, and does what it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compatibility.command import dropbench
from tests.compatibility.written import WRITTEN

TENSORS = """
import torch
q, k, v = torch.randn(3, 2, 4, 5, 8).unbind()
"""
PLUGINS = {
    "harness": TENSORS
    + """
from harness import (
    REGULARIZERS, AttentionDrop, InputError, Regularizer, Site, Trial, attend, regularize, sites, unregularize
)
model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), num_layers=3)
regularize(model, "dropkey", ratio=0.3, schedule="increasing", include=["*"], exclude=["nothing"], quiet=True)
assert [site.ratio for site in sites(model)] == [0.0, 0.15, 0.3]
assert {(site.kind, site.layer, site.depth, site.heads) for site in sites(model)} == {
    ("encoder-self", layer, 3, 4) for layer in range(3)
}
unregularize(model)
assert sites(model) == []
try:
    regularize(model, "dropky")
except InputError as error:
    assert "dropkey" in str(error)
assert issubclass(AttentionDrop, Regularizer) and Trial.__name__ == "Trial"
assert attend(q, k, v, Site("a", "cross", 0, 1, 4), training=True).shape == (2, 4, 5, 8)
""",
    "harness.masks": """
from harness.masks import dropped_keys
dropped = dropped_keys("block", 0.3, 3, (1, 1, 1, 197), grid=(14, 14), prefix=1)
assert dropped.shape[-1] == 197 and not dropped[..., 0].any()
""",
    "harness.backends": TENSORS
    + """
import harness.backends
from harness import Site, attend
from harness.regularizers.spec import build_regularizer
site = Site("a", "encoder-self", 0, 1, 4, regularizer=build_regularizer("dropkey", ratio=0.3), ratio=0.3)
with harness.backends.backend("eager"):
    attend(q, k, v, site, training=True)
    assert harness.backends.used() == ["eager"]
""",
    "harness.adapter": """
import torch
from harness import Site, attend, regularize, sites
from harness.adapter import ADAPTERS, Adapter, Patch, patched_class, site_of

class Pool(torch.nn.Module):
    def forward(self, x):
        return x.mean(dim=1, keepdim=True)

@patched_class(Pool)
class PatchedPool(Pool):
    def forward(self, x):
        x = x[:, None]
        return attend(x[:, :, :1], x, x, self.site, training=self.training)[:, 0]

@ADAPTERS.register("pools", library="")
class Pools(Adapter):
    name = "pools"

    def patches(self, model):
        for path, module in model.named_modules():
            if isinstance(module, Pool):
                site = Site(path, "encoder-self", 0, 1, 1, grid=(2, 2), prefix=1)
                yield Patch(module, site_of(module) or site, PatchedPool)

model = torch.nn.Sequential(Pool())
regularize(model, "dropkey-block", ratio=0.3, window=1, quiet=True)
assert [(site.grid, site.prefix, site.ratio) for site in sites(model)] == [((2, 2), 1, 0.3)]
assert model(torch.randn(2, 5, 4)).shape == (2, 1, 4)
""",
    "harness.penalty": """
import torch
from harness import regularize
from harness.penalty import penalty
model = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
regularize(model, "learned-dropout", where="attention", quiet=True)
model(torch.randn(2, 5, 32))
assert penalty(model, 0) > 0
assert penalty(torch.nn.Linear(2, 2), 0) is None
""",
    "harness.analysis": """
import numpy as np
from harness.analysis import ANALYSES, Findings
from harness.analysis.figures import histograms
figure = histograms("title", "axis", {"encoder-self.1": np.linspace(0, 1, 9)})
found = Findings({"a": 1.0}, {"b": np.zeros(3)}, lambda: figure)
assert found.scalars == {"a": 1.0} and found.draw() is figure and "entropy" in ANALYSES
""",
    "harness.regularizers": """
from harness.regularizers import REGULARIZERS
from harness.regularizers.base import Regularizer
from harness.regularizers.drop import AttentionDrop
from harness.regularizers.spec import build_regularizer, complete_spec
from harness.site import Site
built = build_regularizer("dropkey-cross", ratio=0.2)
assert isinstance(built, AttentionDrop) and isinstance(built, Regularizer) and built.ratio == 0.2
assert Site("a", "cross", 0, 1, 1).ratio == 0.0 and "none" in REGULARIZERS
assert complete_spec("dropout").params["rescale"] == "inverse"
""",
    "harness.task": """
from harness.errors import InputError
from harness.models import MODELS
from harness.recipe import Recipe, complete_recipe
from harness.settings import Settings
from harness.task import TASKS, Mark, Marks, Metric, Shown, Split, Task
from harness.trial import DataRef, Trial, TrialRequest
assert "translation" in TASKS and "vit-digits" in MODELS
assert Metric("loss", higher_is_better=False, unit="").arrow == "↓"
assert complete_recipe(Recipe, [{"steps": 3, "batch_size": 2, "lr": 0.1}]).steps == 3
assert Marks([Mark("cat", None)], []).true[0].label == "cat" and Shown("cat", words=("a",)).words == ("a",)
""",
    "tasks.data.vectors": """
from pathlib import Path
from harness.settings import Settings
from tasks.data.vectors import locate_vectors, read_vectors
settings = Settings(data=Path("data"))
(settings.data / "vectors").mkdir(parents=True)
(settings.data / "vectors" / "glove.6B.2d.txt").write_text("the 0.5 1.5" + chr(10) + "dog 1 2" + chr(10))
vectors = read_vectors(locate_vectors("glove.6B.2d.txt", settings), {"the", "cat"})
assert (vectors.dim, vectors.found, vectors.wanted) == (2, 1, 2)
""",
    "tasks.data": """
from tasks.data import locate, read
from tasks.data.classification import ImageClassificationData, TextClassificationData
source = locate("trec-synthetic")
data = read(source, TextClassificationData)
assert len(source.fingerprint()) == 12 and data.rows() and data.classes
assert data.train.labels[0] is not None and data.train.texts[0]
assert read(locate("digits"), ImageClassificationData).train.images[0].shape == (8, 8, 1)
""",
    "tasks.interaction_ap": """
import numpy as np
import tasks.interaction_ap
from tasks.interaction_ap import Pairing, mean_average_precision
boxes = np.array([[0.0, 0.0, 2.0, 2.0]])
assert Pairing(subjects=boxes, objects=boxes, labels=np.array([0]), scores=np.ones((1, 2))).scores.sum() == 2
assert callable(mean_average_precision)
""",
    "adapters": """
import torch
from adapters.image_weights import load_image_weights
from adapters.torch_attention import TorchModels
from adapters.volo import random_box
box = random_box(4, 4)
assert TorchModels.name == "torch"
import timm
from pathlib import Path
model = timm.create_model("vit_tiny_patch16_224", num_classes=3, depth=1)
other = timm.create_model("vit_tiny_patch16_224", num_classes=5, depth=1)
torch.save({"state_dict_ema": other.state_dict()}, "weights.pth.tar")
line = load_image_weights(model, Path("weights.pth.tar"))
assert "5 classes" in line and "state_dict_ema" in line, line
assert torch.equal(model.norm.weight, other.norm.weight)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLUGINS)
def test_documented_imports_work_in_a_plug_in(tmp_path: Path, name: str) -> None:
    (tmp_path / "program.py").write_text(PLUGINS[name], encoding="utf-8")
    done = dropbench(tmp_path, "list", "schedules", "--plugin", "program.py")
    assert done.code == 0, done.err
    assert "decreasing" in done.out


@pytest.mark.slow
def test_the_plug_in_of_the_readme(place: Path) -> None:
    done = dropbench(place, "list", "regularizers", "--json", "--plugin", "my.py")
    assert done.code == 0, done.err
    found = {row["name"]: row["help"] for row in done.json}
    assert found["dropself"] == "Every token may lose sight of itself."


def test_the_analysis_of_the_documentation(kept: Path, tmp_path: Path) -> None:
    options = ("--plugin", "tiny.py", "--plugin", "first_key.py", "-o", str(tmp_path), "--json")
    done = dropbench(kept, "analyze", "fd8845166f09", "first-key", *options)
    assert done.code == 0, done.err
    assert 0 < done.json["scalars"]["encoder-self.1"] < 1
    assert (tmp_path / "first-key.png").exists()


def test_entry_points_of_installed_packages(tmp_path: Path) -> None:
    package = tmp_path / "packages"
    (package / "near-1.0.dist-info").mkdir(parents=True)
    (package / "near-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: near\nVersion: 1.0\n")
    (package / "near-1.0.dist-info" / "entry_points.txt").write_text(
        "[dropbench.regularizers]\nnear-dropself = near:DropSelf\n"
        "[dropbench.models]\nnear-model = near:build\n[dropbench.tasks]\nnear-task = near:NearTask\n"
    )
    (package / "near.py").write_text((WRITTEN / "my.py.txt").read_text(encoding="utf-8"), encoding="utf-8")
    done = dropbench(tmp_path, "list", "regularizers", "--json", path=[package])
    assert done.code == 0, done.err
    assert "near-dropself" in {row["name"] for row in done.json}
