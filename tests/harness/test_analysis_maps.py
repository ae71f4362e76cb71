"""Attention maps, and the figures of all analyses: legible, nothing over something else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from harness.analysis import ANALYSES, Options, figures
from harness.analysis.attention_figure import MOST_WORDS, attention_figure
from harness.analysis.attention_map import _between_words
from harness.analysis.trained import Trained
from harness.errors import InputError
from harness.settings import Settings
from harness.task import Shown, Task
from tests.harness.figure_flaws import flaws
from tests.harness.trained_runs import make_run, make_trial

CPU = Settings(device="cpu", threads=1)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(make_run(tmp_path_factory.mktemp("runs"), make_trial()), CPU)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(make_run(tmp_path_factory.mktemp("runs"), make_trial("trec-synthetic")), CPU)


def probed(trained: Trained, index: int) -> torch.Tensor:
    """The last site's weights of one sample, mean over heads."""
    found: list[torch.Tensor] = []
    trained.sites[-1].probe = lambda _, weights: found.append(weights[0].mean(0))
    with torch.no_grad():
        trained.model(trained.task.batch("test", [index])[0])
    trained.sites[-1].probe = None
    return found[0]


def test_an_images_map_is_the_class_tokens_on_the_patches(digits: Trained) -> None:
    findings = ANALYSES.get("attention-map")(digits, Options())
    assert len(findings.arrays["indices"]) == 4
    for place, index in enumerate(findings.arrays["indices"].tolist()):
        expected = probed(digits, index)[0, 1:].view(4, 4)
        assert np.allclose(findings.arrays[f"map.{place}"], expected, atol=1e-6)
        image = digits.task.shown("test", index)
        assert image is not None
        assert image.image is not None
        assert image.image.shape == (8, 8, 1)
        assert np.array_equal(findings.arrays[f"shown.{place}"], image.image)
    peaks = [findings.arrays[f"map.{place}"].max() * 16 for place in range(4)]
    assert findings.scalars == {"peak": pytest.approx(np.mean(peaks))}


def test_a_texts_map_is_between_its_words(texts: Trained) -> None:
    findings = ANALYSES.get("attention-map")(texts, Options(samples=3))
    for place, index in enumerate(findings.arrays["indices"].tolist()):
        words = findings.arrays[f"shown.{place}"].tolist()
        assert len(words) == len(texts.task.batch("test", [index])[0][0])
        assert np.allclose(findings.arrays[f"map.{place}"], probed(texts, index), atol=1e-3)
    assert findings.arrays["shown.0"].dtype.kind == "U"  # text, so that it is read without pickle


def test_words_that_are_unknown_to_the_model_are_shown_as_they_stand(texts: Trained) -> None:
    shown = texts.task.shown("test", 0)
    assert shown is not None
    assert shown.words
    assert shown.label in texts.task.classes  # type: ignore[attr-defined]


def test_a_task_that_cannot_show_its_samples_is_refused(digits: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(digits.task), "shown", Task.shown)
    with pytest.raises(InputError, match="no way to show its samples"):
        ANALYSES.get("attention-map")(digits, Options())


@pytest.mark.parametrize("kind", [kind for kind in ANALYSES if kind not in ("interactions", "predictions")])
@pytest.mark.parametrize("which", ["digits", "texts"])
def test_nothing_in_a_figure_lies_over_something_else(
    kind: str, which: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: Trained = request.getfixturevalue(which)
    figure = ANALYSES.get(kind)(trained, Options(samples=4)).draw()
    assert not flaws(figure, monkeypatch)


@pytest.mark.parametrize("layers", [1, 7, 14])
def test_many_layers_find_their_place(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    values = {f"encoder-self.{layer + 1}": generator.normal(layer, 1, 500) for layer in range(layers)}
    figure = figures.histograms("a title", "nats", values)
    assert not flaws(figure, monkeypatch)
    assert len(figure.axes) == layers
    assert not flaws(figures.bars("a title", "share", dict.fromkeys(values, 0.5), {}, ""), monkeypatch)


def test_a_histogram_of_equal_values_or_of_nan_is_drawn() -> None:
    for value in (2.0, float("nan")):
        assert figures.png(figures.histograms("title", "nats", {"a": np.full(10, value)})).startswith(b"\x89PNG")


def test_long_texts_are_cut_and_signs_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    words = tuple(f"word{place}$_{{" for place in range(60))
    long = Shown("a label that is far too long", words=words)
    short = Shown("short", words=("one",))
    figure = attention_figure("title", [long, short, short], [np.eye(60), np.eye(1), np.eye(1)])
    texts = [artist.get_text() for artist in figure.findobj(Text)]
    assert any(f"(the first {MOST_WORDS} words)" in text for text in texts)
    assert not any("word30" in text for text in texts)
    assert not flaws(figure, monkeypatch)


def test_images_in_colour_and_grids_that_are_not_square_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    samples = [Shown("label", image=generator.integers(0, 255, (24, 16, 3), dtype=np.uint8)) for _ in range(5)]
    figure = attention_figure("title", samples, [generator.random((3, 2)) for _ in samples])
    assert not flaws(figure, monkeypatch)


def test_a_texts_map_has_its_words_whichever_side_the_padding_is_on() -> None:
    words = np.array([[0.2, 0.8], [0.6, 0.4]])
    for side in ((0, 2), (2, 0)):
        weights = np.pad(words, (side, side))[None].repeat(2, axis=0)
        weights[:, :, : side[0]] = weights[:, :, 4 - side[1] :] = 0.0
        assert np.array_equal(_between_words(weights, 2), words)
