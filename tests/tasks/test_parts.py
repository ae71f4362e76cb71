"""A step has the gradient of the batch: over its parts, with activations that are computed again, channels last."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from dropbench.harness.regularizers.spec import parse_spec
from dropbench.harness.runs.run_directory import RunDirectory
from tests.harness.training.step_gradient import SGD, TRIALS, plain_trial, step_gradient
from tests.tasks.making import trial_of
from tests.tasks.test_recipe_keys import CASES

pytestmark = pytest.mark.usefixtures("few")


@pytest.mark.parametrize("task", TRIALS)
def test_parts_have_the_gradient_of_the_whole(tmp_path: Path, task: str) -> None:
    directory = RunDirectory.create(tmp_path, plain_trial(task))
    whole = step_gradient(directory)
    assert whole.norm() > 0
    for splits in (2, 3, 4):
        difference = float((step_gradient(directory, splits) - whole).norm() / whole.norm())
        assert difference < 1e-5, splits


LAYERS = {
    "vit": "drophead:ratio=0.3", "t2t-vit": "layerdrop:ratio=0.5", "volo": "dropkey:ratio=0.3",
    "text-classification": "dropkey:ratio=0.3", "sequence-labelling": "diverse-attention", "bert": "r-drop",
    "language model": "learned-dropout", "mixture of experts": "dropout:ratio=0.3", "translation": "dropkey:ratio=0.3",
    "detr": "dropattention-c:ratio=0.3", "qpic": "dropkey:ratio=0.3", "metro": "dropkey:ratio=0.3",
}  # fmt: skip
"""A regularizer for each family of models, a case of `CASES`."""


def gradient_and_kept(tmp_path: Path, case: str, regularizer: str, **key: bool) -> tuple[Tensor, list[Tensor]]:
    """Return the gradient of a step of a case of `CASES`, and the tensors that are kept for the backward pass."""
    (task, data, model), overrides, _ = CASES[case]
    spec, kept = parse_spec(regularizer), list[Tensor]()
    trial = trial_of(task, data, model, {**overrides, **SGD, **key}, regularizer=spec.name, params=spec.params)

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        return step_gradient(RunDirectory.create(tmp_path, trial)), kept


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case != "vit")) for case in LAYERS])
def test_activations_that_are_computed_again_leave_the_gradient_as_it_is(tmp_path: Path, case: str) -> None:
    (whole, kept), (again, inputs) = (
        gradient_and_kept(tmp_path, case, LAYERS[case], **key) for key in ({}, {"checkpoint_activations": True})
    )
    assert whole.norm() > 0
    assert torch.equal(again, whole)
    sizes = [sum(tensor.nbytes for tensor in tensors) for tensors in (inputs, kept)]
    assert sizes[0] < sizes[1] or "layerdrop" in LAYERS[case]  # skipped layers keep nothing


@pytest.mark.parametrize("case", ["volo", pytest.param("metro", marks=pytest.mark.slow)])
def test_channels_last_change_the_gradient_by_rounding_alone(tmp_path: Path, case: str) -> None:
    (whole, _), (other, kept) = (
        gradient_and_kept(tmp_path, case, "none", **key) for key in ({}, {"channels_last": True})
    )
    assert float((other - whole).norm() / whole.norm()) < 1e-12
    images = [tensor for tensor in kept if tensor.dim() == 4 and not tensor.is_contiguous()]
    assert any(image.is_contiguous(memory_format=torch.channels_last) for image in images)
