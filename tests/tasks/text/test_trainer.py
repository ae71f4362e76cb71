"""Test that fine-tuning computes the losses of transformers' Trainer: same weights, batches, AdamW and schedule.

The fine-tuned checkpoint is then evaluated by both: with the same inputs, and the library's metrics.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import matthews_corrcoef
from torchmetrics.functional.text import squad

from dropbench.tasks.data.classification import ChoiceData
from dropbench.tasks.data.read import read
from dropbench.tasks.data.resolve import resolve_data
from dropbench.tasks.text.base import TextTask
from dropbench.tasks.text.question_answering import QuestionAnswering
from tests.tasks.making import CPU, SHORT, task_of, trial_of
from tests.tasks.test_weights import folder as bert  # noqa: F401 - used by pytest
from tests.training import curve, run

pytestmark = pytest.mark.usefixtures("few")
STEPS = 100
RECIPE: dict[str, Any] = {
    "steps": STEPS, "batch_size": 8, "max_length": 24, "evaluate_every": STEPS, "model.dropout": 0.0, "clip_norm": 1.0,
    "lr": 1e-4, "lr_schedule": "linear", "warmup": 0.1, "warmup_lr": 0.0, "optimizer": "adamw", "beta2": 0.999,
    "weight_decay": 0.0,
}  # fmt: skip
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class Batches(torch.utils.data.Dataset[dict[str, Any]]):
    """The batches of a task, in the order of training, as the library's models take them."""

    def __init__(self, task: TextTask) -> None:
        self.task = task
        self.indices = [indices for epoch in range(STEPS) for indices in task.epoch(8, task.epoch_seed(epoch))][:STEPS]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, step: int) -> dict[str, Any]:
        return arguments(self.task.batch("train", self.indices[step]))


def arguments(batch: Any) -> dict[str, Any]:
    """Return a batch of a task as the library's models take it."""
    if isinstance(batch, dict):
        inputs: Any = batch["tokens"], batch["features"]
        targets = dict(zip(("start_positions", "end_positions"), batch["targets"].T, strict=True))
    else:
        inputs, targets = batch[0], {"labels": batch[1]}
    tokens, others = inputs if isinstance(inputs, tuple) else (inputs, {})
    return {"input_ids": tokens, "attention_mask": (tokens != 0).long(), **targets, **others}


class InOrder(transformers.Trainer):  # type: ignore[misc]
    """A Trainer that takes whole batches in order, and keeps the loss of each step."""

    losses: list[float]

    def get_train_dataloader(self) -> Any:
        assert isinstance(self.train_dataset, Batches)
        return torch.utils.data.DataLoader(self.train_dataset, batch_size=None)

    def compute_loss(self, *args: Any, **options: Any) -> Any:
        loss = super().compute_loss(*args, **options)
        self.losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
        return loss


@pytest.mark.parametrize(
    ("task", "data", "kind", "classes", "clip_norm"),
    [
        ("text-classification", "cola-synthetic", "SequenceClassification", 2, 0.0),
        pytest.param("textual-entailment", "snli-synthetic", "SequenceClassification", 3, 1.0, marks=pytest.mark.slow),
        ("text-regression", "sts-b-synthetic", "SequenceClassification", 1, 1.0),
        pytest.param("multiple-choice", "swag-synthetic", "MultipleChoice", 1, 1.0, marks=pytest.mark.slow),
        pytest.param("question-answering", "squad-synthetic", "QuestionAnswering", 2, 1.0, marks=pytest.mark.slow),
    ],
)
def test_losses_and_metrics_are_those_of_the_trainer(
    tmp_path: Path, request: pytest.FixtureRequest, task: str, data: str, kind: str, classes: int, clip_norm: float
) -> None:
    folder = request.getfixturevalue("bert")
    plain: Any = getattr(transformers, f"BertFor{kind}").from_pretrained(folder, num_labels=classes, **NO_DROPOUT)
    plain.save_pretrained(tmp_path / "weights")
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "weights")
    recipe = {**RECIPE, **SHORT.get(task, {}), "clip_norm": clip_norm}
    trial = trial_of(task, data, "transformers-encoder", recipe, weights=str(tmp_path / "weights"))
    run(tmp_path, trial)
    ours = [event["loss"] for event in curve(tmp_path, trial) if event["event"] == "train"]
    own = task_of(TextTask, trial)
    options = transformers.TrainingArguments(
        output_dir=str(tmp_path / "trainer"), max_steps=STEPS, learning_rate=1e-4, lr_scheduler_type="linear",
        warmup_steps=STEPS // 10, weight_decay=0.0, max_grad_norm=clip_norm, use_cpu=True, report_to=[],
        save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = InOrder(plain, options, train_dataset=Batches(own))
    trainer.losses = []
    trainer.train()
    assert len(ours) == STEPS
    assert ours == pytest.approx(trainer.losses, rel=1e-5)
    plain.eval().save_pretrained(tmp_path / "weights")
    own = task_of(TextTask, trial_of(task, data, "transformers-encoder", recipe, weights=str(tmp_path / "weights")))
    with torch.no_grad():
        batches = [own.batch("test", indices) for indices in own.evaluation_batches("test", 16)]
        metrics = own.evaluate(own.build_model().eval(), "test", batches)
        outputs = [plain(**arguments(own.batch("test", [index]))) for index in range(own.size("test"))]
    expected = answered(own, outputs) if isinstance(own, QuestionAnswering) else labeled(own, outputs)
    # Padded batches and single samples are rounded differently, which changes no class but correlations.
    assert metrics == pytest.approx(expected, rel=1e-4 if task == "text-regression" else 1e-5)


def labeled(task: Any, outputs: list[Any]) -> dict[str, float]:
    """Return the metrics of the logits of single samples, as the library's examples compute them."""
    targets = task.labels["test"].double().numpy()
    logits = torch.cat([output.logits for output in outputs]).double().numpy()
    if "pearson" in {metric.name for metric in task.metrics}:
        return {
            "pearson": 100 * float(pearsonr(targets, logits[:, 0]).statistic),
            "spearman": 100 * float(spearmanr(targets, logits[:, 0]).statistic),
        }
    predicted = logits.argmax(axis=1)
    matthews = {"matthews": 100 * float(matthews_corrcoef(targets, predicted))} if task.data_metrics else {}
    return {"accuracy": 100 * float((predicted == targets).mean()), **matthews}


def answered(task: QuestionAnswering, outputs: list[Any]) -> dict[str, float]:
    """Return the metrics of the best of all answers that the starts and the ends of single windows give."""
    rows, best = task.splits["test"], dict[int, tuple[float, str]]()
    for window, output in zip(task.windows["test"], outputs, strict=True):
        starts, ends = (logits[0].argsort(descending=True)[:20] for logits in (output.start_logits, output.end_logits))
        for start, end in itertools.product(starts.tolist(), ends.tolist()):
            (first, _), (_, last) = window.places[start], window.places[end]
            if min(first, last) < 0 or not start <= end < start + 30:
                continue
            score = float(output.start_logits[0, start] + output.end_logits[0, end])
            if score > best.get(window.row, (-math.inf, ""))[0]:
                best[window.row] = score, rows.contexts[window.row][first:last]
    predictions = [{"id": str(row), "prediction_text": text} for row, (_, text) in sorted(best.items())]
    targets: Any = [
        {"id": str(row), "answers": {"text": [text for text, _ in answers], "answer_start": [0] * len(answers)}}
        for row, answers in enumerate(rows.answers)
    ]
    scores = squad(predictions, targets)
    return {"f1": float(scores["f1"]), "exact-match": float(scores["exact_match"])}


def test_inputs_are_those_of_the_examples_of_the_library(request: pytest.FixtureRequest) -> None:
    """Choices and windows of questions are encoded as by one call of the library's tokenizer for all."""
    folder = request.getfixturevalue("bert")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    short = {"max_length": 32, "stride": 8}
    trial = trial_of("question-answering", "squad-synthetic", "transformers-encoder", short, weights=str(folder))
    task: Any = task_of(TextTask, trial)
    rows = task.splits["test"]
    encoded = tokenizer(
        list(rows.questions), list(rows.contexts), truncation="only_second", max_length=32, stride=8,
        return_overflowing_tokens=True, return_offsets_mapping=True,
    )  # fmt: skip
    assert [window.tokens.tolist() for window in task.windows["test"]] == encoded["input_ids"]
    assert [window.features["token_type_ids"].tolist() for window in task.windows["test"]] == encoded["token_type_ids"]
    assert [window.row for window in task.windows["test"]] == encoded["overflow_to_sample_mapping"]
    for window, offsets in zip(task.windows["test"], encoded["offset_mapping"], strict=True):
        given = [place for place, own in zip(offsets, window.places.tolist(), strict=True) if own[0] >= 0]
        assert given == [tuple(own) for own in window.places.tolist() if own[0] >= 0]
    swag = trial_of(
        "multiple-choice", "swag-synthetic", "transformers-encoder", {"max_length": 32}, weights=str(folder)
    )
    choices: Any = task_of(TextTask, swag)
    split = read(resolve_data(swag, CPU), ChoiceData).test
    firsts = [text for text in split.texts for _ in range(4)]
    encoded = tokenizer(firsts, list(itertools.chain(*split.choices)), truncation=True, max_length=32)
    assert [tokens.tolist() for row in choices.tokens["test"] for tokens in row] == encoded["input_ids"]
