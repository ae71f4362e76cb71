"""Compare METRO with golden figures of its authors' code: outputs, losses and metrics; see docs/parity.md.

The authors' code was run outside of this repository, with weights and inputs made by the functions below.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dropbench.adapters.vision.metro import Metro, Recovered, build_metro
from dropbench.tasks.data.meshes.body_model import H36M_JOINTS, HIPS
from dropbench.tasks.meshes.metrics import Body, Frame, body_errors, mesh_losses
from tests.golden.figures import draws, picked
from tests.paths import GOLDEN_FILES

GOLDEN: dict[str, Any] = json.loads((GOLDEN_FILES / "metro.json").read_text("utf-8"))
TOLERANCE = 1e-9
MIDDLE, COARSE = np.arange(1723) * 6889 // 1722, np.arange(431) * 1722 // 430
"""Indices of the vertices of the coarser meshes."""


def filled(name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    normal = draws(name).standard_normal(shape)
    if len(shape) == 1:
        return 0.1 * normal + (1 if name.endswith("LayerNorm.weight") else 0)
    scale: float = 0.5 if "position_embeddings" in name else math.prod(shape[1:]) ** -0.5
    return scale * normal


def drawn(name: str, *shape: int) -> Tensor:
    return torch.from_numpy(draws(name).standard_normal(shape))


@pytest.fixture(scope="module")
def frame() -> Frame:
    rows = draws("regressor").random_sample((17, 6890)) ** 40
    regressor = torch.from_numpy(rows / rows.sum(1, keepdims=True))
    return Frame(regressor[list(H36M_JOINTS)], regressor[0], HIPS)


@pytest.fixture(scope="module")
def model(frame: Frame) -> Metro:
    """Return METRO without its backbone: the input is the backbone's features."""
    with torch.device("meta"):
        metro = build_metro("metro", GOLDEN["options"], image_size=224, joints=14, vertices=(431, 1723, 6890))
    metro.backbone, metro.image_size = nn.Identity(), 7
    metro = metro.to_empty(device="cpu").double().eval()
    with torch.no_grad():
        for name, values in metro.state_dict().items():
            values.copy_(torch.from_numpy(filled(name, tuple(values.shape))))
        template = 0.5 * drawn("template", 1, 6890, 3)
        tokens = torch.cat([frame.regressor @ template, template[:, MIDDLE][:, COARSE]], dim=1)
        metro.template.copy_((tokens - frame.pelvis @ template)[0])
    return metro


@pytest.fixture(scope="module")
def outputs(model: Metro) -> dict[str, dict[str, Tensor]]:
    """Return the outputs of the model and of each block, without and with masked tokens."""
    blocks: dict[str, Tensor] = {}
    for number, block in enumerate(model.trans_encoder):
        block.register_forward_hook(lambda module, args, out, number=number: blocks.update({f"block {number}": out}))
    features, shown = drawn("features", 2, 2048, 7, 7), draws("shown").random_sample((2, 445)) > 0.2
    outputs = {}
    with torch.no_grad():
        for kind, tokens in (("seen", None), ("masked", torch.from_numpy(shown))):
            bodies = model(features, tokens)
            outputs[kind] = {**blocks, **bodies._asdict()}
    return outputs


@pytest.fixture(scope="module")
def true(frame: Frame) -> Body:
    full = 0.5 * drawn("truth", 2, 6890, 3)
    full = frame.center_on_pelvis(full)
    return Body(full[:, MIDDLE][:, COARSE], full[:, MIDDLE], full, drawn("keypoints", 2, 14, 2))


def test_parameters_have_the_authors_names_and_shapes(model: Metro) -> None:
    lines = "\n".join(f"{name} {tuple(values.shape)}" for name, values in model.state_dict().items())
    assert hashlib.sha256(lines.encode()).hexdigest() == GOLDEN["layout"]


@pytest.mark.parametrize("kind", ["seen", "masked"])
def test_outputs_of_each_block_and_of_the_model(kind: str, outputs: dict[str, dict[str, Tensor]]) -> None:
    assert list(outputs[kind]) == list(GOLDEN["outputs"][kind])
    for name, expected in GOLDEN["outputs"][kind].items():
        figures = picked(outputs[kind][name])
        assert figures[:-1] == pytest.approx(expected[:-1], abs=TOLERANCE), name
        assert figures[-1] == pytest.approx(expected[-1], abs=TOLERANCE * outputs[kind][name].numel() ** 0.5), name


def test_losses(outputs: dict[str, dict[str, Tensor]], true: Body, frame: Frame) -> None:
    predicted = Recovered(*(outputs["seen"][name] for name in Recovered._fields))
    losses = mesh_losses(predicted, true, frame)
    assert {name: value.item() for name, value in losses.items()} == pytest.approx(GOLDEN["losses"], rel=TOLERANCE)


def test_metrics(outputs: dict[str, dict[str, Tensor]], true: Body, frame: Frame) -> None:
    errors = body_errors(outputs["seen"]["full"], true.full, frame)
    for name, expected in GOLDEN["metrics"].items():
        assert errors[name].tolist() == pytest.approx(expected, rel=TOLERANCE)
