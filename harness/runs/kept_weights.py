"""The fine-tuned weights that a finished trial keeps: none, or those of the best trial of a cell.

Weights of a trial that began from random ones always stay: they are small, or took long to train.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.trials.metric import Metric, MetricName
from dropbench.harness.trials.trial import Trial

FILE = "keep-weights.json"
"""In a run directory: the trials among which this one keeps its weights if it is the best, and by which metric."""


def keep_weights(runs: Runs, trial: Trial, rivals: Iterable[str], metric: Metric) -> None:
    """Let the best of some trials of a cell keep its weights; without rivals, `trial` keeps its own."""
    directory = RunDirectory.create(runs.folder, trial)
    score = str(MetricName("dev", metric.name))
    content = {
        "rivals": sorted({*rivals} - {trial.id}),
        "metric": score,
        "higher": metric.higher_is_better is not False,
    }
    directory.write(FILE, content)


def keeps_weights(directory: RunDirectory) -> bool:
    """Return whether a finished trial keeps its weights, as far as its rivals have finished."""
    return directory.trial().weights is None or best_of_cell(directory) == directory.id


def best_of_cell(directory: RunDirectory) -> str | None:
    """Return the trial that keeps its weights, a fine-tuned one or a rival; None if nothing asked for them."""
    try:
        wanted = directory.read(FILE)
    except FileNotFoundError:
        return None
    names = [directory.id, *wanted["rivals"]]
    runs = Runs(directory.path.parent)
    scores = {name: _score(runs[name], wanted["metric"], higher=wanted["higher"]) for name in names}
    best: str = max(names, key=lambda name: (scores[name], name))
    return best


def has_no_weights(directory: RunDirectory) -> bool:
    """Return whether a fine-tuned trial finished before anything asked for its weights."""
    return directory.succeeded() and not (directory.path / FILE).exists()


def discard_weights(directory: RunDirectory) -> None:
    """Delete the weights of a trial that has just succeeded, or those of its rivals that were the best before it.

    Trials that end at the same time agree, as each has written its result before it looks.
    """
    with suppress(FileNotFoundError):
        for rival in directory.read(FILE)["rivals"] if directory.trial().weights is not None else ():
            if (other := Runs(directory.path.parent)[rival]).succeeded() and not keeps_weights(other):
                _delete(other)
    if not keeps_weights(directory):
        _delete(directory)


def _delete(directory: RunDirectory) -> None:
    for file in (directory.path / "checkpoint").glob("weights-*.pt"):
        file.unlink(missing_ok=True)


def _score(directory: RunDirectory, metric: str, *, higher: bool) -> float:
    """Return the metric of a finished trial, negated if lower is better; -inf if it has none."""
    value: float | None = None
    with suppress(InputError):
        value = (directory.result() or {"metrics": {}})["metrics"].get(metric)
    return float("-inf") if value is None else value if higher else -value
