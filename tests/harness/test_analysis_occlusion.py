"""Occlusion: what is hidden is gone as if it had never been there, and only where that can be said of a model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.analysis import ANALYSES, Options
from harness.analysis.occlusion import DRAWS, LOSSES, _by_patches
from harness.analysis.trained import Trained
from harness.attention import attend
from harness.errors import InputError
from harness.settings import Settings
from harness.site import Site
from tests.harness.trained_runs import make_run, make_trial

CPU = Settings(device="cpu", threads=1)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(make_run(tmp_path_factory.mktemp("runs"), make_trial()), CPU)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(make_run(tmp_path_factory.mktemp("runs"), make_trial("trec-synthetic")), CPU)


@pytest.mark.parametrize("form", ["none", "boolean", "additive"])
def test_hidden_keys_are_as_if_they_were_not_there(form: str) -> None:
    site = Site("attention", "encoder-self", 0, 1, 2)
    q, k, v = (torch.randn(3, 2, 6, 4, dtype=torch.float64) for _ in range(3))
    hidden = torch.tensor([[0, 1, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1], [0] * 6]).bool()
    seen = torch.rand(3, 1, 6, 6) < 0.8
    seen[..., 0] = True
    mask = {"none": None, "boolean": seen, "additive": torch.randn(3, 1, 6, 6, dtype=torch.float64)}[form]
    site.hidden = hidden
    found = attend(q, k, v, site, training=False, mask=mask)
    trained = attend(q, k, v, site, training=True, mask=mask)
    site.hidden = None
    assert torch.equal(trained, attend(q, k, v, site, training=True, mask=mask))
    for sample in range(3):
        left = ~hidden[sample]
        part = None if mask is None else mask[sample : sample + 1, ..., left]
        one = slice(sample, sample + 1)
        expected = attend(q[one], k[one][:, :, left], v[one][:, :, left], site, training=False, mask=part)
        assert torch.allclose(found[one], expected, atol=1e-12)


def test_hidden_patches_are_dropped_before_the_encoder(digits: Trained) -> None:
    """The logits equal those of a sequence that never had these patches (DropKey 4.1.1)."""
    images = digits.task.batch("test", range(5))[0]
    hide, generator = _by_patches(digits), torch.Generator().manual_seed(3)
    digits.batch_size = 5
    hide(0.5, generator, images)
    hidden = digits.sites[0].hidden
    assert hidden is not None
    assert hidden.sum(1).tolist() == [8] * 5
    assert not hidden[:, 0].any()  # the class token is never hidden
    model: Any = digits.model
    with torch.no_grad():
        found = model(images)
        for site in digits.sites:
            site.hidden = None
        tokens: Tensor = model._pos_embed(model.patch_embed(images))
        kept = torch.stack([sample[~gone] for sample, gone in zip(tokens, hidden, strict=True)])
        expected = model.forward_head(model.norm(model.blocks(kept)))
        assert torch.allclose(found, expected, atol=1e-5)
        assert not torch.allclose(model(images), expected, atol=1e-2)


def test_words_become_padding_where_they_stand(texts: Trained) -> None:
    batch = texts.task.batch("test", range(20))
    generator = torch.Generator().manual_seed(0)
    tokens, labels = texts.task.without_words(batch, 0.5, generator)  # type: ignore[misc]
    gone = tokens != batch[0]
    lengths = (batch[0] != 0).sum(1)
    assert gone.sum(1).tolist() == [min(round(length / 2), length - 1) for length in lengths.tolist()]
    assert (tokens[gone] == 0).all()
    assert torch.equal(labels, batch[1])
    assert ((tokens != 0).sum(1) >= 1).all()


@pytest.mark.parametrize("which", ["digits", "texts"])
def test_every_loss_is_the_mean_of_five_draws_that_are_the_same_for_every_trial(
    which: str, request: pytest.FixtureRequest
) -> None:
    trained: Trained = request.getfixturevalue(which)
    options = Options(samples=60)
    findings = ANALYSES.get("occlusion")(trained, options)
    values = findings.arrays["accuracy"]
    assert values.shape == (len(LOSSES), DRAWS)
    assert findings.scalars == {
        f"accuracy@{loss:g}": pytest.approx(values[row].mean()) for row, loss in enumerate(LOSSES)
    }
    assert findings.scalars["accuracy@0"] == trained.evaluate(options)["accuracy"]
    assert len(set(values[3].tolist())) > 1 or math.isclose(values[3].std(), 0.0)
    again = ANALYSES.get("occlusion")(trained, options)
    assert np.array_equal(again.arrays["accuracy"], values)
    assert all(site.hidden is None for site in trained.sites)


def test_draws_differ_and_what_is_hidden_does_not_depend_on_the_trial(tmp_path: Path) -> None:
    seen: list[list[Tensor]] = []
    for seed in (0, 1):
        trained = Trained(make_run(tmp_path, make_trial(seed=seed)), CPU)
        masks: list[Tensor | None] = []
        first = trained.sites[0]
        model = trained.model
        handle = model.register_forward_pre_hook(lambda *_, site=first, kept=masks: kept.append(site.hidden))
        ANALYSES.get("occlusion")(trained, Options(samples=3))
        handle.remove()
        seen.append([mask for mask in masks if mask is not None])
    assert len(seen[0]) == 5 * DRAWS
    assert all(torch.equal(one, other) for one, other in zip(*seen, strict=True))
    assert len({tuple(mask.flatten().tolist()) for mask in seen[0]}) == 5 * DRAWS
    assert [int(mask[0].sum()) for mask in seen[0][::DRAWS]] == [2, 5, 8, 11, 14]  # of 16 patches


def test_a_model_that_answers_by_all_its_patches_is_refused(tmp_path: Path) -> None:
    trial = make_trial(overrides={"model.global_pool": "avg"})
    trained = Trained(make_run(tmp_path, trial), CPU)
    with pytest.raises(InputError, match="answers by its class token"):
        ANALYSES.get("occlusion")(trained, Options(samples=4))


def test_a_model_without_a_class_token_is_refused(tmp_path: Path) -> None:
    trial = make_trial(overrides={"model.global_pool": "avg", "model.class_token": False})
    trained = Trained(make_run(tmp_path, trial), CPU)
    with pytest.raises(InputError, match="answers by its class token"):
        ANALYSES.get("occlusion")(trained, Options(samples=4))
