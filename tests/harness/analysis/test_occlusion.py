"""Occlusion: hidden parts have no influence; models for which this cannot be guaranteed are refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dropbench.harness.analysis import ANALYSES
from dropbench.harness.analysis.occlusion import DRAWS, LOSSES, _hide_patches
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.errors import InputError
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Site
from dropbench.harness.settings import Settings
from tests.harness.analysis.trained_runs import make_run, make_trial, train_small

CPU = Settings(device="cpu", threads=1)


@pytest.mark.parametrize("form", ["none", "boolean", "additive"])
def test_hidden_keys_have_no_influence(form: str) -> None:
    site = Site("attention", "encoder-self", 0, 1, 2)
    q, k, v = (torch.randn(3, 2, 6, 4, dtype=torch.float64) for _ in range(3))
    hidden = torch.tensor([[0, 1, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1], [0] * 6]).bool()
    visible = torch.rand(3, 1, 6, 6) < 0.8
    visible[..., 0] = True
    mask = {"none": None, "boolean": visible, "additive": torch.randn(3, 1, 6, 6, dtype=torch.float64)}[form]
    site.masked_keys = hidden
    evaluated = attend(q, k, v, site, training=False, mask=mask)
    trained = attend(q, k, v, site, training=True, mask=mask)
    site.masked_keys = None
    assert torch.equal(trained, attend(q, k, v, site, training=True, mask=mask))
    for sample in range(3):
        rest = ~hidden[sample]
        i = slice(sample, sample + 1)
        part = None if mask is None else mask[i, ..., rest]
        expected = attend(q[i], k[i][:, :, rest], v[i][:, :, rest], site, training=False, mask=part)
        assert torch.allclose(evaluated[i], expected, atol=1e-12)


def test_hidden_patches_are_dropped_before_the_encoder(digits: Trained) -> None:
    """The logits equal those of a sequence without these patches (DropKey 4.1.1)."""
    images = digits.task.batch("test", range(5))[0]
    hide, generator = _hide_patches(digits), torch.Generator().manual_seed(3)
    digits.batch_size = 5
    hide(0.5, generator, images)
    hidden = digits.sites[0].masked_keys
    assert hidden is not None
    assert hidden.sum(1).tolist() == [8] * 5
    assert not hidden[:, 0].any()  # the class token is never hidden
    model: Any = digits.model
    with torch.no_grad():
        logits = model(images)
        for site in digits.sites:
            site.masked_keys = None
        tokens: Tensor = model._pos_embed(model.patch_embed(images))
        kept = torch.stack([sample[~mask] for sample, mask in zip(tokens, hidden, strict=True)])
        expected = model.forward_head(model.norm(model.blocks(kept)))
        assert torch.allclose(logits, expected, atol=1e-5)
        assert not torch.allclose(model(images), expected, atol=1e-2)


def test_hidden_words_become_padding_at_their_positions(texts: Trained) -> None:
    batch = texts.task.batch("test", range(20))
    generator = torch.Generator().manual_seed(0)
    tokens, labels = texts.task.mask_tokens(batch, 0.5, generator)  # type: ignore[misc]
    masked = tokens != batch[0]
    lengths = (batch[0] != 0).sum(1)
    assert masked.sum(1).tolist() == [min(round(length / 2), length - 1) for length in lengths.tolist()]
    assert (tokens[masked] == 0).all()
    assert torch.equal(labels, batch[1])
    assert ((tokens != 0).sum(1) >= 1).all()


@pytest.mark.parametrize("which", ["digits", "texts"])
def test_every_metric_is_the_mean_over_five_reproducible_draws(which: str, request: pytest.FixtureRequest) -> None:
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
    assert all(site.masked_keys is None for site in trained.sites)


def test_draws_differ_but_do_not_depend_on_the_trial(tmp_path: Path) -> None:
    masks_by_trial: list[list[Tensor]] = []
    for seed in (0, 1):
        trained = train_small(tmp_path, seed=seed)
        masks: list[Tensor | None] = []
        first = trained.sites[0]
        model = trained.model
        handle = model.register_forward_pre_hook(lambda *_, site=first, masks=masks: masks.append(site.masked_keys))
        ANALYSES.get("occlusion")(trained, Options(samples=3))
        handle.remove()
        masks_by_trial.append([mask for mask in masks if mask is not None])
    assert len(masks_by_trial[0]) == 5 * DRAWS
    assert all(torch.equal(*pair) for pair in zip(*masks_by_trial, strict=True))
    assert len({tuple(mask.flatten().tolist()) for mask in masks_by_trial[0]}) == 5 * DRAWS
    assert [int(mask[0].sum()) for mask in masks_by_trial[0][::DRAWS]] == [2, 5, 8, 11, 14]  # of 16 patches


def test_a_model_that_predicts_from_all_patches_is_refused(tmp_path: Path) -> None:
    trial = make_trial(overrides={"model.global_pool": "avg"})
    trained = Trained(make_run(tmp_path, trial), CPU)
    with pytest.raises(InputError, match="predicts from its class token alone"):
        ANALYSES.get("occlusion")(trained, Options(samples=4))
