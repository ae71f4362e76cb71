"""Compare fairseq with our engine: losses in training and evaluation, and translations."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import models, options
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from torch import nn

from benchmarks.training.translation import command_line, prepared
from dropbench.adapters.libraries.options import TranslationOptions
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.engine import run_trial
from dropbench.tasks.translation.translation import Translation

pytestmark = [
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask and attn_mask"),
    # Warnings of fairseq's own command-line programs.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
SIZE: dict[str, Any] = {"model.encoder_layers": 2, "model.decoder_layers": 2, "model.dim": 32, "model.feedforward": 64}
SMALL: dict[str, Any] = {**SIZE, "pieces": 120, "max_tokens": 300, "warmup": 10, "lr": 2e-3}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, cache: None) -> Settings:
    return Settings(runs=tmp_path_factory.mktemp("runs"), device="cpu", threads=1)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"accumulate": 2}])
def test_the_loss_curve_equals_that_of_fairseq_train(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    task = prepared("multi30k-synthetic", settings, steps=20, evaluate_every=20, **SMALL, **more)
    directory = RunDirectory.create(tmp_path, task.trial)
    run_trial(directory, settings)
    ours = [event["loss"] for event in directory.events() if event["event"] == "train"]

    theirs: list[tuple[float, float]] = []
    forward = LabelSmoothedCrossEntropyCriterion.forward

    def record(self: Any, *inputs: Any, **more: Any) -> Any:
        out = forward(self, *inputs, **more)
        theirs.append((float(out[0]), float(out[1])))
        return out

    monkeypatch.setattr(LabelSmoothedCrossEntropyCriterion, "forward", record)
    from fairseq_cli.train import main

    arguments = options.parse_args_and_arch(options.get_training_parser(), command_line(task, tmp_path / "theirs"))
    main(convert_namespace_to_omegaconf(arguments))
    freq = task.recipe.accumulate
    assert task.steps_per_epoch(1) < 20  # so that epochs follow each other
    per_epoch, starts = len(task.batches["train"]), []
    for epoch in range(0, len(theirs), per_epoch):
        starts += [(at, min(at + freq, epoch + per_epoch)) for at in range(epoch, epoch + per_epoch, freq)]
    means = [
        sum(loss for loss, _ in theirs[a:b]) / sum(n for _, n in theirs[a:b]) for a, b in starts if b <= len(theirs)
    ]
    assert len(ours) == 20
    # The weights are equal bit for bit, so the losses differ only by the rounding of their means. Any other difference
    # would grow by a factor of ten every twenty updates.
    assert ours == pytest.approx(means[:20], abs=2e-6)
    assert ours[-1] < ours[0] - 0.5


@pytest.fixture(scope="module")
def task(settings: Settings) -> Translation:
    return prepared("multi30k-synthetic", settings, **SMALL)


@pytest.fixture(scope="module")
def pair(task: Translation) -> tuple[nn.Module, nn.Module]:
    """Return our model with a regularizer, and fairseq's with the same weights, in eval mode."""
    ours = task.build_model()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    arguments = Namespace(arch="transformer_wmt_en_de", **TranslationOptions(**task.recipe.model).arguments())
    models.ARCH_CONFIG_REGISTRY[arguments.arch](arguments)
    stock = task.fairseq.build_model(arguments)
    stock.load_state_dict(ours.state_dict())
    # A model that was loaded and never trained would call another kernel for the encoder layers.
    for layer in stock.encoder.layers:
        layer.ever_training = True
    bind(ours, "dropattention-e", ratio=0.3, window=2)
    return ours.eval(), stock.eval()


def test_losses_in_evaluation_are_equal(task: Translation, pair: tuple[nn.Module, nn.Module]) -> None:
    ours, stock = pair
    criterion = LabelSmoothedCrossEntropyCriterion(task.fairseq, False, task.recipe.label_smoothing)
    with torch.no_grad():
        for indices in task.evaluation_batches("dev", 1):
            batch = task.batch("dev", indices)
            loss, tokens, _ = criterion(stock, batch)
            assert torch.equal(task.loss(ours, batch), loss / tokens)


def test_the_closed_form_trains_as_the_criterion(settings: Settings, task: Translation) -> None:
    default = prepared("multi30k-synthetic", settings, **SMALL, order="dropbench")
    model, results = default.build_model().train(), []
    batch = default.batch("train", default.micro_batches(next(default.epoch(1, 0)), 1)[0])
    assert (batch["target"] == default.criterion.padding_idx).any()
    for each in (default, task):
        loss, logits = each.loss_and_logits(model, batch)
        assert torch.equal(loss, each.loss(model, batch))
        assert len(logits) == batch["ntokens"]
        results.append([loss, *torch.autograd.grad(loss, [*model.parameters()])])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)
    assert not all(map(torch.equal, *results))


def test_beam_search_finds_the_same_translations_with_the_same_scores(
    task: Translation, pair: tuple[nn.Module, nn.Module]
) -> None:
    ours, stock = pair
    batch = task.batch("test", range(8))
    results = [
        task.fairseq.build_generator([model], Namespace(beam=4, lenpen=0.6, max_len_b=20)).generate([model], batch)
        for model in (ours, stock)
    ]
    assert len({tuple(beams[0]["tokens"].tolist()) for beams in results[0]}) > 1
    kinds: set[str] = set()
    with watch(ours, lambda site, weights: kinds.add(site.kind)):
        assert task.translate(ours, batch) == task.translate(stock, batch)
    assert kinds == {"encoder-self", "decoder-self", "cross"}
    for ours_beams, theirs_beams in zip(*results, strict=True):
        assert len(ours_beams) == len(theirs_beams) == 4
        for beam, expected in zip(ours_beams, theirs_beams, strict=True):
            for key in ("tokens", "positional_scores", "score"):
                assert torch.equal(beam[key], expected[key])
