"""Test the import finder, and each shim around a real first import in a fresh Python process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_install_imports_no_library_and_installs_one_finder(run_fresh: Run) -> None:
    run_fresh("""
import importlib.util, sys
from dropbench.adapters.compat import install
install()
before = list(sys.meta_path)
install()
assert sys.meta_path == before
assert importlib.util.find_spec("torchvision").origin.endswith("__init__.py")
assert importlib.util.find_spec("fairseq_that_is_not_there") is None
assert not {"torch", "numpy", "torchvision", "mmcv", "fairseq"} & set(sys.modules)
""")


@pytest.mark.slow
def test_timm_can_be_imported_after_dropbench(run_fresh: Run) -> None:
    out = run_fresh(
        """
import dropbench
import timm, torch
from torchvision.extension import _has_ops
from torchvision.ops import nms, roi_pool
model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2)
model(torch.randn(2, 3, 32, 32)).sum().backward()
assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [5.0, 5.0, 6.0, 6.0]])
print(nms(boxes, torch.tensor([0.1, 0.2, 0.3]), 0.5).tolist())
try:
    print(_has_ops() or roi_pool(torch.rand(1, 1, 4, 4), torch.tensor([[0.0, 0, 0, 2, 2]]), (1, 1)))
except RuntimeError as error:
    print(error)
""",
        "-W",
        "error",
    )
    kept, remaining = out.split("\n", 1)
    assert kept == "[2, 1]"
    # Other missing operators keep torchvision's own message.
    assert remaining == "True\n" or remaining.startswith("Couldn't load custom C++ ops")


@pytest.mark.slow
def test_torchvision_with_operators_is_unchanged(run_fresh: Run, tmp_path: Path) -> None:
    # Any loadable shared library can stand in for torchvision's operators in this test.
    write(
        tmp_path / "torchvision/__init__.py",
        "import torch\nassert not hasattr(torch.ops.torchvision, 'nms'), 'shimmed'\nprint('whole')",
    )
    out = run_fresh("""
import importlib.machinery, pathlib, shutil, sys, torch
suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
library = next((pathlib.Path(torch.__file__).parent / "lib").glob("libtorch_global_deps.*"))
shutil.copy(library, f"torchvision/_C{suffix}")
sys.path.insert(0, "")
from dropbench.adapters.compat import install
install()
import torchvision
assert torchvision.__file__.startswith(str(pathlib.Path.cwd()))
""")
    assert out == "whole\n"


@pytest.mark.slow
def test_mmdet_has_a_detr_on_mmcv_lite(run_fresh: Run) -> None:
    run_fresh("""
from dropbench.adapters.compat import install
install()
import mmdet.models, torch
from mmdet.registry import MODELS, TASK_UTILS
from mmengine.registry import init_default_scope
from mmengine.utils.dl_utils.misc import mmcv_full_available

init_default_scope("mmdet")
assert {"DETR", "HungarianAssigner"} <= {*MODELS.module_dict, *TASK_UTILS.module_dict}
if not mmcv_full_available():
    from mmcv.ops import nms
    try:
        nms(torch.rand(1, 4), torch.rand(1), 0.5)
    except NotImplementedError as error:
        assert "'nms'" in str(error) and "without compiled ops" in str(error), error
    else:
        raise AssertionError("an operator that does not exist ran")
""")


def test_full_mmcv_is_unchanged(run_fresh: Run, tmp_path: Path) -> None:
    write(tmp_path / "mmcv/__init__.py", "")
    write(tmp_path / "mmcv/_ext.py", "nms = 'compiled'")
    run_fresh("""
import sys
sys.path.insert(0, "")
from dropbench.adapters.compat import install
install()
from mmcv import _ext
assert _ext.nms == "compiled"
""")


@pytest.mark.slow
def test_install_applies_the_shim_to_an_already_imported_mmcv(run_fresh: Run) -> None:
    run_fresh("""
import sys
sys.meta_path = [finder for finder in sys.meta_path if type(finder).__name__ != "_ShimFinder"]
import mmcv
whole = "mmcv._ext" in sys.modules
from dropbench.adapters.compat import install
install()
import mmcv._ext
assert whole or callable(mmcv._ext.nms)
""")


@pytest.mark.slow
def test_fairseq_is_imported_and_the_shim_restores_everything(run_fresh: Run) -> None:
    run_fresh(
        """
import dataclasses, logging
dataclass = dataclasses.dataclass
from dropbench.adapters.compat import install
install()
from fairseq.data import data_utils
assert dataclasses.dataclass is dataclass
assert logging.root.handlers == []
from fairseq.models.transformer import TransformerModel
import numpy as np

batches = data_utils.batch_by_size(np.arange(6), None, np.array([2, 3, 4, 5, 6, 7]), max_tokens=12)
assert [batch.tolist() for batch in batches] == [[0, 1, 2], [3, 4], [5]], batches
""",
        "-W",
        "error",
    )


def test_the_fairseq_shim_restores_everything_if_the_import_fails(run_fresh: Run, tmp_path: Path) -> None:
    write(tmp_path / "fairseq/__init__.py", "import dataclasses\nraise OSError(dataclasses.dataclass.__name__)")
    run_fresh("""
import dataclasses, logging, sys
sys.path.insert(0, "")
before = dataclasses.dataclass
from dropbench.adapters.compat import install
install()
try:
    import fairseq
except OSError as error:
    assert "hashable" in str(error), "the shim was not applied"
else:
    raise AssertionError("the library of this test was not imported")
assert dataclasses.dataclass is before and logging.root.handlers == []
""")
