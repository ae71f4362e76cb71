"""Plug-ins as a user of 969bcf6 wrote them: methods and attributes by the names of then have their effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compatibility.command import dropbench

START = """
import torch
from harness import REGULARIZERS, AttentionDrop, Regularizer, Site, attend, regularize, sites
from harness.regularizers.spec import build_regularizer

torch.manual_seed(0)
q, k, v = torch.randn(3, 2, 4, 5, 8).unbind()


def site(regularizer=None, ratio=0.5, **more):
    return Site("a", "encoder-self", 0, 1, 4, regularizer=regularizer, ratio=ratio, **more)


def plain(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


class KeepFirst(AttentionDrop):
    def dropped(self, shape, site, device):
        return torch.arange(shape[3], device=device).expand(shape) > 0
"""
PROGRAMS = {
    "dropped": """
first = REGULARIZERS.register("keep-first")(KeepFirst)
torch.testing.assert_close(attend(q, k, v, site(first()), training=True), v[:, :, :1].expand(2, 4, 5, 8))
torch.testing.assert_close(attend(q, k, v, site(first()), training=False), plain(q, k, v))


class KeepTwo(KeepFirst):
    def dropped(self, shape, site, device):
        mask = super().dropped(shape, site, device).clone()
        mask[..., 1] = False
        return mask


torch.testing.assert_close(
    attend(q, k, v, site(KeepTwo()), training=True), plain(q, k[:, :, :2], v[:, :, :2])
)
""",
    "dropped-of-ours": """
mask = build_regularizer("dropkey-block", ratio=0.4).dropped((1, 1, 1, 17), site(grid=(4, 4), prefix=1), "cpu")
assert mask.shape == (1, 1, 1, 17) and not mask[..., 0].any()
""",
    "attend": """
class Zeros(Regularizer):
    def attend(self, q, k, v, site, *, mask, scale):
        return torch.zeros(*q.shape[:-1], v.shape[-1])


assert not attend(q, k, v, site(Zeros()), training=True).any()
assert Zeros().attend_fast(q, k, v, site(Zeros()), mask=None, causal=False, scale=None) is None
""",
    "attend_fast": """
class Fast(KeepFirst):
    def attend_fast(self, q, k, v, site, *, mask, causal, scale):
        if causal:
            return super().attend_fast(q, k, v, site, mask=mask, causal=causal, scale=scale)
        return torch.full_like(v, site.ratio)


assert (attend(q, k, v, site(Fast()), training=True) == 0.5).all()
first = v[:, :, :1].expand(2, 4, 5, 8)
torch.testing.assert_close(attend(q, k, v, site(Fast()), training=True, causal=True), first)
""",
    "prefix": """
class AfterPrefix(AttentionDrop):
    def dropped(self, shape, site, device):
        return (torch.arange(shape[3], device=device) >= site.prefix).expand(shape)


found = attend(q, k, v, site(AfterPrefix(), prefix=2), training=True)
torch.testing.assert_close(found, plain(q, k[:, :, :2], v[:, :, :2]))
positional = Site("a", "encoder-self", 0, 1, 4, (2, 2), 1)
assert (positional.prefix, positional.grid) == (1, (2, 2))
positional.prefix = 3
assert positional.prefix == 3
blocks = build_regularizer("dropkey-block", ratio=0.9, window=1)
mask = blocks.dropped((1, 1, 50, 7), site(grid=(2, 2), prefix=3), "cpu")
assert mask.any() and not mask[..., :3].any()
""",
    "prefix-of-timm": """
import timm

model = timm.create_model("vit_tiny_patch16_224", num_classes=3, depth=1)
regularize(model, "dropkey", ratio=0.3, quiet=True)
assert [(one.grid, one.prefix, one.hidden, one.draws) for one in sites(model)] == [((14, 14), 1, None, 0)]
""",
    "hidden": """
here = site()
here.hidden = torch.tensor([[False, False, True, True, True]])
torch.testing.assert_close(attend(q, k, v, here, training=False), plain(q, k[:, :, :2], v[:, :, :2]))
torch.testing.assert_close(attend(q, k, v, here, training=True), plain(q, k, v))
here.hidden = None
torch.testing.assert_close(attend(q, k, v, here, training=False), plain(q, k, v))
torch.testing.assert_close(
    attend(q, k, v, site(hidden=torch.arange(5)[None] > 0), training=False), v[:, :, :1].expand(2, 4, 5, 8)
)
""",
    "draws": """
here = site(build_regularizer("dropkey", ratio=0.5))
torch.testing.assert_close(attend(q, k, v, here, training=False), plain(q, k, v))
here.draws = 50
averaged = attend(q, k, v, here, training=False)
assert not torch.allclose(averaged, plain(q, k, v), atol=1e-3)
here = site(KeepFirst(), draws=2)
torch.testing.assert_close(attend(q, k, v, here, training=False), v[:, :, :1].expand(2, 4, 5, 8))
""",
    "tasks-of-ours": """
from harness.task import TASKS, Task

for name in ("image-classification", "text-classification"):
    kind = TASKS.get(name)
    assert issubclass(kind, Task)
    for method in ("shown", "marks", "weight", "steps_an_epoch", "without_words", "batch", "evaluate", "epoch"):
        assert callable(getattr(kind, method)), method
    assert isinstance(kind.selecting, property)
""",
}
TINY = "run --task tiny --data tiny --model tiny-model --executor debug --plugin mine.py"
OUTLINE = '''
"""A task without what trains it."""

from harness.recipe import Recipe, complete_recipe
from harness.regularizers.spec import complete_spec
from harness.task import Metric, Task
from harness.trial import DataRef, Trial


class TinyOutline(Task):
    name = "tiny"
    metrics = (Metric("accuracy"), Metric("loss", higher_is_better=False, unit=""))

    @classmethod
    def trial_for(cls, request, settings):
        recipe = complete_recipe(Recipe, [{"epochs": 3, "batch_size": 8, "lr": 0.05}, request.overrides])
        return Trial(
            task=cls.name, data=DataRef(name=request.data, fingerprint="0" * 12), model=request.model,
            regularizer=complete_spec(request.regularizer, request.params), preset=request.preset,
            recipe=recipe.model_dump(mode="json", exclude_none=True), seed=request.seed,
        )
'''


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_names_of_regularizers_and_sites(tmp_path: Path, name: str) -> None:
    (tmp_path / "program.py").write_text(START + PROGRAMS[name], encoding="utf-8")
    done = dropbench(tmp_path, "list", "schedules", "--plugin", "program.py")
    assert done.code == 0, done.err


def change(folder: Path, methods: str) -> None:
    """Write `mine.py`: the task of `tiny.py` with other methods."""
    text = (folder / "tiny.py").read_text(encoding="utf-8")
    (folder / "mine.py").write_text(text + methods, encoding="utf-8")


def only_result(folder: Path) -> dict[str, Any]:
    (file,) = (folder / "runs").glob("*/result.json")
    content: dict[str, Any] = json.loads(file.read_bytes())
    return content


def test_steps_an_epoch(place: Path) -> None:
    change(
        place,
        """
    def steps_an_epoch(self, size):
        return 3

    def epoch(self, size, seed):
        yield from ([0, 1], [2, 3], [4, 5])
""",
    )
    done = dropbench(place, *TINY.split(), "--set", "epochs=5")
    assert done.code == 0, done.err
    assert only_result(place)["steps"] == 15


def test_selecting(place: Path) -> None:
    change(
        place,
        """
    @property
    def selecting(self):
        return Metric("loss", higher_is_better=True)
""",
    )
    done = dropbench(place, *TINY.split(), "--set", "epochs=4")
    assert done.code == 0, done.err
    (events,) = (place / "runs").glob("*/events.jsonl")
    lines = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    losses = {line["step"]: line["metrics"]["loss"] for line in lines if line["event"] == "evaluate"}
    assert only_result(place)["selected_step"] == max(losses, key=lambda step: losses[step]) != 2


def test_weight(place: Path) -> None:
    change(
        place,
        """
    def weight(self, batch):
        return float(batch[1].sum())

    def loss(self, model, batch):
        return model(batch[0]).sum() * 0 + float(batch[1].sum() > 0)

    def epoch(self, size, seed):
        order = self.labels["train"].argsort().tolist()
        yield from [order[:4] + order[-4:]] * 2
""",
    )
    done = dropbench(place, *TINY.split(), "--set", "epochs=1")
    assert done.code == 0, done.err
    # The first micro-batch has no weight, so that the mean is the loss of the second one.
    assert only_result(place)["metrics"]["train/loss"] == pytest.approx(1.0)


def test_shown_marks_and_without_words(place: Path) -> None:
    change(
        place,
        """
    def shown(self, split, index):
        return Shown(f"{split} {index}", image=np.full((4, 4, 3), index, dtype=np.uint8))

    def marks(self, model, split, index):
        from harness.task import Mark, Marks
        line = np.array([[0.0, 0.0], [1.0, 1.0]])
        return Marks([Mark("true", line)], [Mark(f"found {index}", line, 0.5)])

    def without_words(self, batch, share, generator):
        return (batch[0] * (1 - share), batch[1])
""",
    )
    done = dropbench(place, *TINY.split(), "--set", "epochs=1")
    assert done.code == 0, done.err
    (trial,) = [path.parent.name for path in (place / "runs").glob("*/result.json")]
    for kind in ("predictions", "occlusion"):
        done = dropbench(place, "analyze", trial, kind, "--plugin", "mine.py")
        assert done.code == 0, done.err
    analysis = place / "runs" / trial / "analysis"
    with np.load(analysis / "predictions.npz") as arrays:
        texts = {str(text) for name in arrays for text in arrays[name].ravel() if arrays[name].dtype.kind == "U"}
        assert "true" in texts
        assert any(text.startswith("found ") for text in texts)
    scalars = json.loads((analysis / "occlusion.json").read_bytes())["scalars"]
    assert scalars["loss@0.9"] != scalars["loss@0"]


def test_a_task_with_an_outline(place: Path) -> None:
    (place / "tiny_outline.py").write_text(OUTLINE, encoding="utf-8")
    (place / "tiny_whole.py").write_text("raise RuntimeError('imported although the outline is enough')\n")
    (place / "mine.py").write_text(
        "from harness.task import TASKS\n"
        "TASKS.add('tiny', 'tiny_whole:Tiny', help='points', outline='tiny_outline:TinyOutline')\n"
    )
    done = dropbench(place, "report", "tiny.yaml", "--plugin", "mine.py", path=[place])
    assert done.code == 0, done.err
    assert "dropkey 0.3" in done.out
    done = dropbench(place, "list", "tasks", "--plugin", "mine.py", "--json", path=[place])
    assert {row["name"]: row["help"] for row in done.json}["tiny"] == "points"
