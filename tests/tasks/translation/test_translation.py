"""Test translation: batches by tokens, scores, long pairs, and training."""

from __future__ import annotations

import gzip
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.training.regularization import bind_trial
from dropbench.harness.trials.task import Split
from dropbench.tasks.translation.bleu import Scorer
from dropbench.tasks.translation.translation import Translation
from tests.tasks.making import task_of, trial_of
from tests.training import curve, run

SIZE = {"encoder_layers": 1, "decoder_layers": 2, "dim": 32, "feedforward": 64, "dropout": 0.0}
SMALL = {f"model.{name}": value for name, value in SIZE.items()}
pytestmark = pytest.mark.usefixtures("cache")
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


def make(
    data: str = "multi30k-synthetic", *, regularizer: str = "none", folders: dict[str, Path] | None = None, **more: Any
) -> Translation:
    own = {"pieces": 120} if data.startswith("multi30k") else {}
    overrides = {**own, "max_tokens": 300, **SMALL, **more}
    settings = Settings(device="cpu", threads=1, folders=folders or {})
    trial = trial_of("translation", data, "transformer-wmt-en-de", overrides, settings, regularizer=regularizer)
    return task_of(Translation, trial, settings)


@pytest.fixture(scope="module")
def task() -> Translation:
    return make(accumulate=4)


def write_files(folder: Path, **texts: str) -> dict[str, Path]:
    """Write Multi30k's files, with the given texts by file and language."""
    for name in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            text = texts.get(f"{name}_{language}", "".join(f"word{n} other{n} .\n" for n in range(12)))
            (folder / f"{name}.{language}.gz").write_bytes(gzip.compress(text.encode()))
    return {"multi30k": folder}


def test_an_epoch_has_every_pair_once_in_batches_of_tokens(task: Translation) -> None:
    batches = list(task.epoch(1, seed=5))
    assert batches == list(task.epoch(1, seed=5))
    assert batches != list(task.epoch(1, seed=6))
    assert len(batches) == task.steps_per_epoch(1)
    assert sorted(index for batch in batches for index in batch) == list(range(task.size("train")))
    parts = [task.micro_batches(batch, 4) for batch in batches]
    assert [len(part) for part in parts[:-1]] == [4] * (len(parts) - 1)
    assert 1 <= len(parts[-1]) <= 4
    assert [[index for part in micro_batches for index in part] for micro_batches in parts] == batches
    for split in SPLITS:
        assert sorted(i for batch in task.evaluation_batches(split, 1) for i in batch) == list(range(task.size(split)))
    for part in (part for micro_batches in parts for part in micro_batches):
        batch = task.batch("train", part)
        assert max(batch["net_input"]["src_tokens"].numel(), batch["target"].numel()) <= 300
        pad = task.fairseq.target_dictionary.pad()
        assert task.num_loss_terms(batch) == batch["target"].ne(pad).sum()


def test_samples_are_in_the_requested_order(task: Translation) -> None:
    batch = task.batch("dev", [3, 0, 7, 5])
    assert batch["id"].tolist() == [3, 0, 7, 5]
    dataset = task.fairseq.dataset("valid")
    for row, index in enumerate([3, 0, 7, 5]):
        pair = dataset[index]
        source, target = batch["net_input"]["src_tokens"][row], batch["target"][row]
        assert source[-len(pair["source"]) :].tolist() == pair["source"].tolist()
        assert target[: len(pair["target"])].tolist() == pair["target"].tolist()
        assert batch["net_input"]["src_lengths"][row] == len(pair["source"])
        assert (
            batch["net_input"]["prev_output_tokens"][row, 1 : len(pair["target"])].tolist()
            == pair["target"][:-1].tolist()
        )


def test_the_loss_of_a_step_is_the_mean_over_its_tokens_for_any_micro_batches(tmp_path: Path) -> None:
    losses = []
    recipes: dict[str, Any] = {"whole": {"max_tokens": 10_000}, "parts": {"max_tokens": 1000, "accumulate": 20}}
    for name, changes in recipes.items():
        task = make(steps=3, lr=1e-3, warmup=0, batch_size=1000, **changes)
        assert task.steps_per_epoch(1) == 1
        run(tmp_path / name, task.trial)
        losses.append([event["loss"] for event in curve(tmp_path / name, task.trial) if event["event"] == "train"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert len(losses[0]) == 3


def test_training_learns_the_synthetic_language(tmp_path: Path) -> None:
    task = make(epochs=6, lr=5e-3, warmup=20, beam=2, max_tokens=500, label_smoothing=0.0, average_last=2)
    result = run(tmp_path, task.trial)
    metrics = result["metrics"]
    assert metrics["test/perplexity"] < len(task.fairseq.target_dictionary) / 5
    assert metrics["test/loss"] == pytest.approx(math.log(metrics["test/perplexity"]))
    assert set(metrics) >= {"dev/loss", "dev/perplexity", "test/bleu", "test/sacrebleu"}
    assert not {"dev/bleu", "dev/sacrebleu"} & set(metrics)
    [bleu, sacrebleu] = result["notes"]
    assert bleu.startswith("bleu: case-sensitive, on Moses tokens by sacremoses: nrefs:1|case:mixed")
    assert sacrebleu.startswith("sacrebleu: on text of the data: nrefs:1|case:mixed|eff:no|tok:13a")


@pytest.mark.parametrize("kinds", ["encoder-self", "decoder-self,cross"])
def test_each_kind_of_attention_is_selectable(kinds: str) -> None:
    task = make(regularizer="dropattention-e", kinds=kinds)
    report = bind_trial(task.build_model(), task.trial)
    expected = {"encoder-self": 1, "decoder-self": 2, "cross": 2}
    assert Counter(site.kind for site in report.bound) == {kind: expected[kind] for kind in kinds.split(",")}


def test_a_long_pair_is_noted_and_stays_in_the_score(tmp_path: Path) -> None:
    long = "word1 " * 30 + "\n"
    short = "".join(f"word{n} other{n} .\n" for n in range(11))
    sides: Any = {f"{name}_en": long + short for name in ("train", "val", "test_2016_flickr")}
    positions: Any = {"model.positions": 20}
    task = make("multi30k", folders=write_files(tmp_path, **sides), pieces=60, **positions)
    notes = [note for note in task.notes if "longer than 20 tokens" in note]
    assert notes == [
        "1 pair of train longer than 20 tokens: left out",
        "1 pair of dev longer than 20 tokens: left out",
        "1 pair of test longer than 20 tokens: scored as empty",
    ]
    model = task.build_model().eval()
    scored: list[Sequence[str]] = []

    class RecordingScorer(Scorer):
        def __call__(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
            scored.extend([translations, references])
            return super().__call__(translations, references)

    task.scorer = RecordingScorer("de", tokenized=False)
    with torch.no_grad():
        task.summary(model)
    assert len(scored[0]) == len(scored[1]) == 12
    assert scored[0][0] == ""
    assert task.prepared.references is not None
    assert tuple(scored[1]) == task.prepared.references


def test_data_with_only_long_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data 'multi30k': no pair of train has at most 3 tokens per side"):
        make("multi30k", folders=write_files(tmp_path), pieces=30, max_tokens=3)


def test_a_reference_is_decoded_from_the_dictionary_and_its_unknown_tokens_are_never_matched() -> None:
    task = make("wmt16-en-de-synthetic")
    references = task.prepared.references
    task.prepared = replace(task.prepared, references=None)
    assert references == tuple(task.reference(index) for index in range(task.size("test")))
    task = make("wmt16-en-de-synthetic", symbols=16)
    task.prepared = replace(task.prepared, references=None)
    unknown = torch.tensor([task.fairseq.target_dictionary.unk()])
    assert task.decode(unknown) == "<unk>"
    assert task.decode(unknown, reference=True) == "<<unk>>"
    assert any("<<unk>>" in task.reference(index) for index in range(task.size("test")))


def test_masked_words_become_padding_in_place(task: Translation) -> None:
    batch = task.batch("test", [0, 1, 2])
    before = batch["net_input"]["src_tokens"]
    after = task.mask_tokens(batch, 0.5, torch.Generator().manual_seed(0))["net_input"]["src_tokens"]
    pad, end = task.fairseq.source_dictionary.pad(), task.fairseq.source_dictionary.eos()
    changed = before != after
    assert changed.any(dim=1).all()
    assert (after[changed] == pad).all()
    assert not changed[(before == pad) | (before == end)].any()
    assert torch.equal(batch["net_input"]["src_tokens"], before)


def test_a_sample_view_has_the_subwords_and_the_translation(task: Translation) -> None:
    view = task.sample_view("test", 3)
    assert task.prepared.references is not None
    assert view.label == task.prepared.references[3]
    assert view.words is not None
    assert view.words[-1] == "</s>"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.heads": 5}, r"model transformer-wmt-en-de: heads=5 does not divide dim=32"),
        ({"model.layers": 3}, r"unknown option of model transformer-wmt-en-de 'layers': did you mean"),
        ({"max_token": 3}, r"unknown recipe key 'max_token': did you mean max_tokens"),
        ({"kinds": "encoder"}, r"kinds"),
    ],
)
def test_invalid_options_are_refused_before_data_are_read(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**overrides)
