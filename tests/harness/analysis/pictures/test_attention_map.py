"""Attention maps, and the legibility of the figures of all analyses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from dropbench.harness.analysis import ANALYSES, figures
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.pictures.attention_figure import MAX_WORDS, attention_figure
from dropbench.harness.analysis.pictures.attention_map import _word_map
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.trials.sample_view import SampleView
from dropbench.harness.trials.task import Task
from tests.harness.analysis.figure_flaws import flaws

CPU = Settings(device="cpu", threads=1)


def probed(trained: Trained, index: int) -> torch.Tensor:
    """Return the last site's weights for one sample, averaged over heads."""
    recorded: list[torch.Tensor] = []
    trained.sites[-1].probe = lambda _, weights: recorded.append(weights[0].mean(0))
    with torch.no_grad():
        trained.model(trained.task.batch("test", [index])[0])
    trained.sites[-1].probe = None
    return recorded[0]


def test_the_map_of_an_image_is_the_class_tokens_attention_to_patches(digits: Trained) -> None:
    findings = ANALYSES.get("attention-map")(digits, Options())
    assert len(findings.arrays["indices"]) == 4
    for i, index in enumerate(findings.arrays["indices"].tolist()):
        expected = probed(digits, index)[0, 1:].view(4, 4)
        assert np.allclose(findings.arrays[f"map.{i}"], expected, atol=1e-6)
        image = digits.task.sample_view("test", index)
        assert image is not None
        assert image.image is not None
        assert image.image.shape == (8, 8, 1)
        assert np.array_equal(findings.arrays[f"shown.{i}"], image.image)
    peaks = [findings.arrays[f"map.{i}"].max() * 16 for i in range(4)]
    assert findings.scalars == {"peak": pytest.approx(np.mean(peaks))}


def test_the_map_of_a_text_is_attention_between_its_words(texts: Trained) -> None:
    findings = ANALYSES.get("attention-map")(texts, Options(samples=3))
    for i, index in enumerate(findings.arrays["indices"].tolist()):
        words = findings.arrays[f"shown.{i}"].tolist()
        assert len(words) == len(texts.task.batch("test", [index])[0][0])
        assert np.allclose(findings.arrays[f"map.{i}"], probed(texts, index), atol=1e-3)
    assert findings.arrays["shown.0"].dtype.kind == "U"  # text, which loads without pickle


def test_a_task_that_cannot_display_its_samples_is_refused(digits: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(digits.task), "sample_view", Task.sample_view)
    with pytest.raises(InputError, match="cannot display its samples"):
        ANALYSES.get("attention-map")(digits, Options())


def test_a_histogram_of_equal_values_or_of_nan_is_drawn() -> None:
    for value in (2.0, float("nan")):
        assert figures.png(figures.histograms("title", "nats", {"a": np.full(10, value)})).startswith(b"\x89PNG")


def test_long_texts_are_truncated_and_special_characters_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    words = tuple(f"word{i}$_{{" for i in range(60))
    long = SampleView("a label that is far too long", words=words)
    short = SampleView("short", words=("one",))
    figure = attention_figure("title", [long, short, short], [np.eye(60), np.eye(1), np.eye(1)])
    texts = [artist.get_text() for artist in figure.findobj(Text)]
    assert any(f"(the first {MAX_WORDS} words)" in text for text in texts)
    assert not any("word30" in text for text in texts)
    assert not flaws(figure, monkeypatch)


def test_color_images_and_grids_that_are_not_square_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    samples = [SampleView("label", image=generator.integers(0, 255, (24, 16, 3), dtype=np.uint8)) for _ in range(5)]
    figure = attention_figure("title", samples, [generator.random((3, 2)) for _ in samples])
    assert not flaws(figure, monkeypatch)


def test_the_map_of_a_text_excludes_padding_on_either_side() -> None:
    words = np.array([[0.2, 0.8], [0.6, 0.4]])
    for side in ((0, 2), (2, 0)):
        weights = np.pad(words, (side, side))[None].repeat(2, axis=0)
        weights[:, :, : side[0]] = weights[:, :, 4 - side[1] :] = 0.0
        assert np.array_equal(_word_map(weights, 2), words)
