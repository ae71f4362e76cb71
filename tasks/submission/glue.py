"""The submission of a trained trial to GLUE: predictions of the official test set, whose labels are not public."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from dropbench.harness.analysis import Findings
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.errors import InputError, check_text
from dropbench.harness.training.data_loading import to_device
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.dataset import DATASETS, Dataset
from dropbench.tasks.data.lines import single_spaces, stream_lines
from dropbench.tasks.data.resolve import resolve_data
from dropbench.tasks.text.whole_text import WholeTextTask

TEST = {"test.tsv": ""}
FILES = {
    name: {"test_matched.tsv": "-m", "test_mismatched.tsv": "-mm"} if name == "mnli" else TEST
    for name in ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst-2", "sts-b", "wnli")
}
"""Data set → its official test files, each with the end of the name of the file that is submitted."""
BY_NAME = {"mnli", "qnli", "rte"}
"""Sets whose predictions are names of classes; others are numbers of classes, or scores."""
SCORES = 0.0, 5.0
"""The range of scores, to which predictions are clipped."""
UNLABELED = cast(Split, "official test")
"""The split of the task that has the texts of a test file."""


def submission(trained: Trained, options: Options) -> Findings:
    """Predict the official test set, and return the files that GLUE takes: an index and a prediction in each line.

    Raises:
        InputError: the data are not a set of GLUE, an official test file is missing or has other columns, or `options`
            asks for some samples.
    """
    source, task = resolve_data(trained.trial, trained.task.settings), trained.task
    name = DATASETS.entry(trained.trial.data.name).name
    if name not in FILES or not isinstance(task, WholeTextTask):
        raise InputError(f"submission: data '{trained.trial.data.name}': expected one of GLUE: {', '.join(FILES)}")
    if options.samples is not None or options.split != "test":
        raise InputError("submission: has the whole official test set: remove --samples and --split")
    texts, arrays = dict[str, str](), dict[str, Any]()
    for file, end in FILES[name].items():
        indices, columns = _test_rows(source.folder / file, source.dataset)
        predictions = _predict(trained, task, columns)
        arrays[file] = predictions
        lines = zip(indices, _written(name, task, predictions), strict=True)
        content = "".join(f"{index}\t{prediction}\n" for index, prediction in lines)
        texts[f"{source.dataset.folder.rpartition('/')[2]}{end}.tsv"] = f"index\tprediction\n{content}"
    return Findings({}, arrays, texts=texts)


def _test_rows(path: Path, dataset: Dataset) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the indices of an official test file, its first column, and its columns of text."""
    if not path.is_file():
        raise InputError(f"{path}: not found: submission needs the official test file of GLUE")
    lines = stream_lines(path)
    header = next(lines)[1].split("\t")
    if missing := [name for name in dataset.texts if name not in header]:
        raise InputError(f"{path}:1: no column '{missing[0]}' among {', '.join(header)[:200]}")
    places, indices, rows = [header.index(name) for name in dataset.texts], list[str](), list[tuple[str, ...]]()
    for number, line in lines:
        values = line.split("\t")
        if len(values) <= max(places):
            raise InputError(f"{path}:{number}: {len(values)} columns: expected {len(header)}, as in line 1")
        check_text(line, f"{path}:{number}:")
        indices.append(values[0])
        rows.append(tuple(single_spaces(values[place]) for place in places))
    if not rows:
        raise InputError(f"{path}: no rows: expected one at least")
    return indices, list(zip(*rows, strict=True))


def _predict(trained: Trained, task: WholeTextTask, columns: list[tuple[str, ...]]) -> Any:
    """Return the scores (N,) or the classes (N,) of texts, or of pairs of them."""
    task.encode_split(UNLABELED, columns, ([pair] for pair in zip(*columns, strict=True)))
    task.labels[UNLABELED] = torch.zeros(len(columns[0]), dtype=task.labels["test"].dtype)
    predictions = np.zeros(len(columns[0]), np.float64)
    with trained.evaluation_context():
        for indices, logits in _logits(trained, task):
            predictions[indices] = (logits[:, 0] if task.labels["test"].is_floating_point() else logits.argmax(1)).cpu()
    return predictions


def _logits(trained: Trained, task: WholeTextTask) -> Iterator[tuple[list[int], torch.Tensor]]:
    for indices in task.evaluation_batches(UNLABELED, task.recipe.batch_size):
        inputs, _ = to_device(task.batch(UNLABELED, indices), trained.device)
        yield indices, task.logits(trained.model, inputs).float()


def _written(name: str, task: WholeTextTask, predictions: Any) -> list[str]:
    if task.labels["test"].is_floating_point():
        return [f"{score:.3f}" for score in np.clip(predictions, *SCORES)]
    classes = [task.classes[int(number)] for number in predictions]
    return classes if name in BY_NAME else [str(int(number)) for number in predictions]
