"""Test language modeling: windows, metrics, keep rates of masks, trials with GPT-2's tokenizer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dropbench.harness.errors import Diverged, InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.models.regularize import bind
from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import StepBatches
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.language.gpt2_files import gpt2_digest
from dropbench.tasks.language.language_modelling import LanguageModelling, count_parameters
from tests.input_errors import one_line
from tests.tasks.language.gpt2_files import gpt2_folder
from tests.tasks.making import CPU, LANGUAGE_MODEL, task_of, trial_of

pytestmark = pytest.mark.usefixtures("cache")


def trial(
    regularizer: str = "none", params: dict[str, Any] | None = None, model: str = "learned-dropout-lm",
    data: str = "text-synthetic", settings: Settings = CPU, **overrides: Any,
) -> Trial:  # fmt: skip
    overrides = {**LANGUAGE_MODEL, **overrides}
    return trial_of(
        "language-modelling", data, model, overrides, settings, regularizer=regularizer, params=params or {}
    )


def make(*arguments: Any, **fields: Any) -> LanguageModelling:
    return task_of(LanguageModelling, trial(*arguments, **fields), fields.get("settings", CPU))


def make_in(folder: Path, **overrides: Any) -> LanguageModelling:
    settings = Settings(device="cpu", threads=1, folders={"text": folder})
    return make(data="text", settings=settings, **overrides)


@pytest.fixture(scope="module")
def task() -> LanguageModelling:
    return make()


class Fixed(nn.Module):
    """A model that returns the same logits for every token."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*tokens.shape, -1)


def test_a_window_is_indexed_by_its_start(task: LanguageModelling) -> None:
    last = task.size("dev") - 1
    batch = task.batch("dev", [0, 5, last])
    assert batch.shape == (3, 17)
    assert batch.dtype == torch.long
    tokens = task.text.tokens["dev"].tolist()
    assert batch.tolist() == [tokens[:17], tokens[5:22], tokens[-17:]]


def test_the_windows_of_a_step_depend_on_seed_and_step(task: LanguageModelling) -> None:
    batches = StepBatches(task, seed=3)
    [(first, *_)], [(again, *_)], [(following, *_)] = batches[40], StepBatches(task, seed=3)[40], batches[41]
    assert first.shape == (8, 17)
    assert torch.equal(first, again)
    assert not torch.equal(first, following)
    another = LanguageModelling(task.trial.model_copy(update={"seed": 4}), task.settings)
    another.text = task.text
    assert not torch.equal(first, StepBatches(another, seed=4)[40][0].batch)
    starts = {start for seed in range(300) for start in next(iter(task.epoch(8, seed)))}
    assert min(starts) < 0.01 * task.size("train")
    assert 0.99 * task.size("train") < max(starts) < task.size("train")


def test_a_batch_is_split_into_micro_batches() -> None:
    task = make(batch_size=32, accumulate=4)
    assert [part.shape for part, *_ in StepBatches(task, seed=0)[0]] == [(8, 17)] * 4
    assert [len(part) for part in task.evaluation_batches("dev", 32)] == [8] * 4


def test_evaluation_uses_adjacent_windows_up_to_the_limit(task: LanguageModelling) -> None:
    subset = [start for part in task.evaluation_batches("train", 8) for start in part]
    assert len(subset) == 4 * 8
    assert subset == sorted(set(subset))
    assert all(start % 16 == 0 for start in subset)
    assert max(subset) > 0.9 * task.size("train")
    every = make(evaluation_batches=10_000)
    starts = [start for part in every.evaluation_batches("dev", 8) for start in part]
    assert starts == list(range(0, every.size("dev"), 16))
    scored = torch.cat([every.batch("dev", [start])[0, 1:] for start in starts])
    assert scored.tolist() == every.text.tokens["dev"][1 : len(scored) + 1].tolist()
    assert len(every.text.tokens["dev"]) - 1 - len(scored) < 16
    assert not any("scored on" in note for note in every.notes)
    assert any(note.startswith("test is scored on 32 of its ") for note in task.notes)


def test_a_split_of_one_window_is_scored(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{line} words are here\n" for line in range(150)))
    task = make_in(tmp_path, context=30)
    assert 0 < task.size("dev") < 60
    assert list(task.evaluation_batches("dev", 8)) == [[0]]


def test_a_text_shorter_than_the_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{line} words are here\n" for line in range(40)))
    with one_line(r"'text': train has \d+ tokens: expected more than context=200"):
        make_in(tmp_path, context=200)


def test_a_unigram_model_of_train_scores_the_unigram_loss(task: LanguageModelling) -> None:
    counts = torch.bincount(torch.from_numpy(task.text.tokens["train"].astype("int64")), minlength=300).double() + 1
    model = Fixed((counts / counts.sum()).log())
    every = make(evaluation_batches=10_000)
    metrics = every.evaluate(model, "test", [every.batch("test", part) for part in every.evaluation_batches("test", 8)])
    assert metrics["loss"] == pytest.approx(metrics["unigram-loss"], rel=0.02)
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))
    size = every.text.sizes["test"]
    assert metrics["bits-per-byte"] == pytest.approx(metrics["loss"] / math.log(2) * size.tokens / size.bytes)
    assert every.summary(model)["train-loss"] == pytest.approx(every.text.sizes["train"].unigram_loss, rel=0.02)
    assert "kept" not in every.summary(model)


def test_a_loss_that_is_not_finite_ends_the_run(task: LanguageModelling) -> None:
    with pytest.raises(Diverged, match="the loss on dev became nan"):
        task.evaluate(Fixed(torch.full((300,), torch.nan)), "dev", [task.batch("dev", [0])])


@pytest.mark.parametrize(
    ("shift", "training", "evaluation"), [(0.0, (0.95, 1.0), (0.99, 1.0)), (math.pi, (0.0, 0.05), (0.0, 0.01))]
)
def test_keep_rates_of_masks(shift: float, training: tuple[float, float], evaluation: tuple[float, float]) -> None:

    task = make("learned-dropout", {"shift_init": shift})
    model = task.build_model()
    bind(model, "learned-dropout", shift_init=shift)
    model.eval()
    batches = [task.batch("test", [0, 16])]
    with torch.no_grad():
        metrics = {**task.evaluate(model, "test", batches), **task.summary(model)}
    assert training[0] <= metrics["kept"] <= training[1]
    assert evaluation[0] <= metrics["kept-in-evaluation"] <= evaluation[1]
    assert not model.training
    assert set(metrics) <= {metric.name for metric in LanguageModelling.metrics}
    assert metrics["parameters"] == metrics["active-parameters"] == count_parameters(model)
    for _ in range(40):  # undiscarded auxiliary losses would raise an error by now
        with torch.no_grad():
            task.summary(model)


@pytest.mark.parametrize(
    ("model", "regularizer", "params", "total", "active"),
    [
        ("learned-dropout-lm", "learned-dropout", {}, 15_335_424, 15_335_424),
        ("learned-dropout-lm-baseline", "none", {}, 15_441_192, 15_441_192),
        ("learned-dropout-lm-moe", "none", {}, 30_105_504, 15_335_424),
    ],
)
def test_published_sizes(model: str, regularizer: str, params: dict[str, Any], total: int, active: int) -> None:
    with torch.device("meta"):
        built = MODELS.get(model)(model, {}, vocabulary=50_257, context=200)
    bind(built, regularizer, **params)
    assert count_parameters(built) == total
    assert total - getattr(built, "inactive_parameters", 0) == active


def test_a_sample_view_has_the_tokens_of_a_window(task: LanguageModelling) -> None:
    view = task.sample_view("test", 4)
    assert view.words is not None
    assert len(view.words) == 16
    assert "".join(view.words) == task.text.tokenizer.decode(task.text.tokens["test"][4:20].tolist())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"epochs": 3}, "trained on random windows for a number of steps: expected steps"),
        ({"vocabulary": 256}, "vocabulary=256: input should be greater than or equal to 257"),
        ({"tokenizer": "word"}, "tokenizer=word: input should be 'bpe' or 'gpt2'"),
    ],
)
def test_an_invalid_recipe_raises_an_error_of_one_line(overrides: dict[str, Any], message: str) -> None:
    with one_line(message):
        trial(**overrides)


def test_gpt2s_tokenizer_is_part_of_the_trial(tmp_path: Path) -> None:
    folder = gpt2_folder(tmp_path)
    settings = Settings(device="cpu", threads=1, data=tmp_path)
    original = trial(settings=settings, tokenizer="gpt2")
    assert original.recipe["tokenizer_digest"] == gpt2_digest(tmp_path)
    assert original.id != trial(settings=settings).id
    task = task_of(LanguageModelling, original, settings)
    assert int(task.text.tokens["train"].max()) <= 299
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(vocabulary.read_text() + "\n")
    assert trial(settings=settings, tokenizer="gpt2").id != original.id
    with pytest.raises(InputError, match="files of GPT-2's tokenizer have changed since the trial was made"):
        LanguageModelling(original, settings).setup()
    (folder / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(InputError, match=r"merges\.txt: 0 merges: expected 43"):
        trial(settings=settings, tokenizer="gpt2")
