"""Figures of predictions next to the ground truth, and attention between a body's joints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dropbench.adapters.vision.metro import project
from dropbench.harness.analysis import ANALYSES
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.pictures import predictions
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.trials.sample_view import Overlay, Overlays, SampleView
from dropbench.tasks.detection.overlays import box_line, joined_boxes, mesh_line
from tests.harness.analysis.figure_flaws import flaws
from tests.harness.analysis.trained_runs import train_small

CPU = Settings(device="cpu", threads=1)


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train_small(tmp_path_factory.mktemp("runs"), "humbi-synthetic")


def test_interactions_match_the_formulas_sample_by_sample(bodies: Trained) -> None:
    findings = ANALYSES.get("interactions")(bodies, Options(samples=3))
    task: Any = bodies.task
    rest = task.body.tokens() * 1000
    keys, distances = [], []
    for i, index in enumerate(findings.arrays["indices"].tolist()):
        rows: list[torch.Tensor] = []
        bodies.sites[-1].probe = lambda _, weights, rows=rows: rows.append(weights[0].mean(0))
        with torch.no_grad():
            bodies.model(task.batch("test", [index])["images"])
        bodies.sites[-1].probe = None
        rows[0] = rows[0][:14].double()
        assert torch.allclose(torch.from_numpy(findings.arrays["weights"][i]).double(), rows[0], atol=1e-6)
        for joint, row in enumerate(rows[0].numpy()):
            keys.append(np.exp(-(row * np.log(row)).sum()))
            distances.append((row * np.linalg.norm(rest - rest[joint], axis=1)).sum())
    assert findings.scalars["keys"] == pytest.approx(np.mean(keys), rel=1e-5)
    assert findings.scalars["distance"] == pytest.approx(np.mean(distances), rel=1e-5)
    assert 1 < findings.scalars["keys"] < len(rest)
    elbow = list(task.body.joints).index("right elbow")
    assert findings.scalars["keys@right-elbow"] == pytest.approx(np.mean(keys[elbow::14]), rel=1e-5)
    assert findings.scalars["distance@right-elbow"] == pytest.approx(np.mean(distances[elbow::14]), rel=1e-5)
    assert findings.arrays["query"] == elbow
    assert np.allclose(findings.arrays["map.1"], findings.arrays["weights"][1, elbow])


def test_tokens_are_drawn_at_their_predicted_positions(bodies: Trained) -> None:
    findings = ANALYSES.get("interactions")(bodies, Options(samples=2))
    task: Any = bodies.task
    with torch.no_grad():
        output = bodies.model(task.batch("test", findings.arrays["indices"][1:2].tolist())["images"])
    points = project(torch.cat([output.joints, output.coarse], 1), output.camera)[0]
    assert np.allclose(findings.arrays["places.1"], (points.numpy() + 1) * 32, atol=1e-4)


def test_interactions_require_a_body_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not joints and vertices: expected a trial of mesh-recovery"):
        ANALYSES.get("interactions")(train_small(tmp_path, "digits"), Options())


def test_predictions_require_a_task_with_overlays(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'image-classification' draws no overlays on its samples"):
        ANALYSES.get("predictions")(train_small(tmp_path, "digits"), Options())


def test_true_meshes_match_the_image(bodies: Trained) -> None:
    """All points are on pixels of the person, who is drawn on a uniform background."""
    findings = ANALYSES.get("predictions")(bodies, Options(samples=3))
    for i in range(3):
        line = findings.arrays[f"true.{i}.0"]
        points = line[~np.isnan(line[:, 0])]
        image = findings.arrays[f"shown.{i}"].astype(int)
        background = np.abs(image - np.median(image.reshape(-1, 3), axis=0)).sum(axis=2) < 30
        columns, rows = points.round().astype(int).clip(0, 63).T
        near = [
            ~background[max(0, y - 2) : y + 3, max(0, x - 2) : x + 3].all() for x, y in zip(columns, rows, strict=True)
        ]
        assert np.mean(near) > 0.99
        assert findings.arrays[f"true.{i}.scores"].shape == (1,)


@pytest.mark.parametrize("data", [pytest.param("coco-synthetic", marks=pytest.mark.slow), "hico-det-synthetic"])
def test_true_boxes_match_the_image(tmp_path: Path, data: str) -> None:
    """Boxes are scaled with the image: the background is half blue everywhere, shapes fully or not at all."""
    trained = train_small(tmp_path, data)
    findings = ANALYSES.get("predictions")(trained, Options(samples=4))
    num_boxes = 0
    for i in range(4):
        image = findings.arrays[f"shown.{i}"].astype(int)
        assert abs(image[2, 2, 2] - 128) < 40
        count = len(findings.arrays[f"true.{i}.labels"])
        assert len(findings.arrays[f"found.{i}.labels"]) == max(1, count)
        assert ((scores := findings.arrays[f"found.{i}.scores"]) >= 0).all()
        assert (np.diff(scores) <= 0).all()
        for number in range(count):
            line = findings.arrays[f"true.{i}.{number}"]
            for box in [line] if data.startswith("coco") else [line[:5], line[6:11]]:
                (left, top), (right, bottom) = box[0], box[2]
                middle = image[int((top + bottom) / 2), int((left + right) / 2)]
                assert abs(middle[2] - 128) > 80
                assert -0.5 <= left < right <= image.shape[1] + 0.5
                assert -0.5 <= top < bottom <= image.shape[0] + 0.5
                num_boxes += 1
    assert num_boxes > 4


def test_legends_count_equal_labels_and_are_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    image = np.zeros((40, 60, 3), np.uint8)
    names = [f"a thing with a long name {number}" for number in range(9)]
    true = [Overlay(name, box_line([number, 2, number + 9, 20])) for number, name in enumerate(names)]
    predicted = [Overlay("chair", box_line([0, 0, 9, 9]), score) for score in (0.71, 0.52)]
    figure = predictions.overlay_figure(
        "title", [SampleView("", image)] * 3, [Overlays(true, predicted), Overlays([], []), Overlays([], predicted)]
    )
    above, below = (figure.axes[i].get_legend() for i in (0, 3))
    assert above is not None
    assert below is not None
    assert [text.get_text() for text in above.get_texts()][-1] == "and 3 more"
    assert len(above.get_texts()) == 7
    assert [text.get_text() for text in below.get_texts()] == ["chair ×2 0.71"]
    assert not flaws(figure, monkeypatch)


def test_outlines() -> None:
    assert box_line([1, 2, 4, 6]).tolist() == [[1, 2], [4, 2], [4, 6], [1, 6], [1, 2]]
    line = joined_boxes([0, 0, 2, 2], [4, 4, 8, 8])
    assert line[-2:].tolist() == [[1, 1], [6, 6]]
    assert np.isnan(line[[5, 11]]).all()
    assert np.isnan(line).any(axis=1).sum() == 2
    points = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    mesh = mesh_line(points, np.array([[0, 1, 2], [0, 2, 3]]))
    edges = {frozenset(map(tuple, part[:2].tolist())) for part in mesh.reshape(-1, 3, 2)}
    assert len(mesh) == 15
    assert frozenset({(0.0, 0.0), (1.0, 1.0)}) in edges
    assert len(edges) == 5
