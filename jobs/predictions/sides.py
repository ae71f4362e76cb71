"""The trials whose predictions are listed or compared: one, or the seeds of one configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from db.cli.output import opened
from harness.errors import InputError
from harness.predictions.schema import Predictions
from harness.runs.predictions import load_predictions
from harness.runs.run_directory import RunDirectory, Runs
from harness.settings import Settings
from harness.trials.trial import Trial
from jobs.queue.reconcile import refresh


@dataclass(frozen=True, eq=False)
class Side:
    """The predictions of a configuration.

    Attributes:
        by_seed: the predictions by seed; all have the same examples in the same order.
    """

    by_seed: dict[int, Predictions]

    @property
    def first(self) -> Predictions:
        """The predictions of the first seed."""
        return next(iter(self.by_seed.values()))

    @property
    def ids(self) -> list[str]:
        """The ids of the examples."""
        return [row["id"] for row in self.first.rows]

    def take(self, ids: Sequence[str], seeds: Sequence[int]) -> Side:
        """Return the predictions of some seeds for some examples, in the order of `ids`."""
        taken = {}
        for seed in seeds:
            predictions = self.by_seed[seed]
            rows = {row["id"]: row for row in predictions.rows}
            taken[seed] = Predictions(predictions.header, [rows[id] for id in ids])
        return Side(taken)


def load_side(words: str, split: str, settings: Settings) -> Side:
    """Return the predictions of a trial, by the beginning of its id, or of the trials that match a filter.

    Raises:
        InputError: no trained trial matches, several configurations do, or one has no stored predictions.
    """
    if words and set(words) <= set("0123456789abcdef"):
        directories = [Runs(settings.runs).find(words)]
    else:
        with opened(settings) as store:
            refresh(store, settings)
            directories = [Runs(settings.runs)[id] for id in store.find(f"succeeded {words}")]
    if not directories:
        raise InputError(f"no trained trial matches '{words}': run `dropbench status` to count the trials")
    loaded = [(directory.trial(), directory) for directory in directories]
    if (count := len({trial.config_id for trial, _ in loaded})) > 1:
        raise InputError(f"'{words}' matches {count} configurations: expected one: add words to the filter")
    loaded.sort(key=lambda item: item[0].seed)
    by_seed = {trial.seed: _load(directory, trial, split) for trial, directory in loaded}
    side = Side(by_seed)
    common = set.intersection(*({row["id"] for row in predictions.rows} for predictions in by_seed.values()))
    return side.take([id for id in side.ids if id in common], list(by_seed))


def _load(directory: RunDirectory, trial: Trial, split: str) -> Predictions:
    predictions = load_predictions(directory, split)
    if predictions is None:
        if not directory.succeeded():
            raise InputError(f"trial {directory.id} has no result yet: expected a trial that has succeeded")
        reason = f"task '{trial.task}' stores none, or an earlier version of dropbench trained it"
        raise InputError(f"trial {directory.id} has no predictions on {split}: {reason}")
    return predictions
