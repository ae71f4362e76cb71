"""The trials whose predictions are listed or compared: one, or the seeds of one configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dropbench.db.reference.predictions import load_reference_predictions
from dropbench.db.schema.reference import PREFIX
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.predictions.schema import Predictions
from dropbench.harness.runs.predictions import load_predictions
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.settings import MAX_SEEDS, Settings
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.predictions.scores import ExampleScores, example_scores
from dropbench.jobs.queue.reconcile import opened_results


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

    def scores(self) -> dict[str, list[ExampleScores]]:
        """Return the scores of each metric by seed."""
        by_seed = [example_scores(predictions.header, predictions.rows) for predictions in self.by_seed.values()]
        return {name: [scores[name] for scores in by_seed] for name in by_seed[0]}

    def take(self, ids: Sequence[str], seeds: Sequence[int]) -> Side:
        """Return the predictions of some seeds for some examples, in the order of `ids`."""
        taken = {}
        for seed in seeds:
            predictions = self.by_seed[seed]
            rows = {row["id"]: row for row in predictions.rows}
            taken[seed] = Predictions(predictions.header, [rows[id] for id in ids])
        return Side(taken)


def load_side(words: str, split: str, settings: Settings, location: str | None = None) -> Side:
    """Return the predictions of a trial, by the beginning of its id, or of the trials that match a filter.

    Args:
        words: the beginning of an id, or a filter.
        split: "dev" or "test".
        settings: paths.
        location: a file of reference results whose trials may match, too
            (`dropbench.db.reference.load.open_reference`).

    Raises:
        InputError: no trained trial matches, several configurations do, or one has no stored predictions.
    """
    if words and set(words) <= set("0123456789abcdef"):
        directory = Runs(settings.runs).find(words)
        trial = directory.trial()
        by_seed = {trial.seed: _load(directory, trial, split)}
    else:
        with opened_results(settings, location) as store:
            by_seed = _load_matching(words, split, store, settings)
    side = Side(by_seed)
    common = set.intersection(*({row["id"] for row in predictions.rows} for predictions in by_seed.values()))
    if not common and side.ids:
        raise InputError(f"'{words}': no example is in {split} of all seeds: add `seed=0` to the filter")
    return side.take([id for id in side.ids if id in common], list(by_seed))


def _load_matching(words: str, split: str, store: Store, settings: Settings) -> dict[int, Predictions]:
    trials = store.trials(store.find(f"succeeded {words}"))
    # The seeds of tables; those that only chose candidates if there are no others.
    trials = {id: trial for id, trial in trials.items() if trial.seed < MAX_SEEDS} or trials
    if not trials:
        raise InputError(f"no trained trial matches '{words}': run `dropbench status` to count the trials")
    if (count := len({(trial.config_id, id.startswith(PREFIX)) for id, trial in trials.items()})) > 1:
        raise InputError(
            f"'{words}' matches {count} configurations: expected one: add words to the filter, such as"
            " `result_versions=…` of `dropbench results`"
        )
    by_seed = {}
    for id, trial in sorted(trials.items(), key=lambda item: item[1].seed):
        if id.startswith(PREFIX):
            predictions = load_reference_predictions(store, id, split)
            if predictions is None:
                raise InputError(f"trial {id} of the reference has no predictions on {split}: train it yourself")
        else:
            predictions = _load(Runs(settings.runs)[id], trial, split)
        by_seed[trial.seed] = predictions
    return by_seed


def _load(directory: RunDirectory, trial: Trial, split: str) -> Predictions:
    predictions = load_predictions(directory, split)
    if predictions is None:
        if not directory.succeeded():
            raise InputError(f"trial {directory.id} has no result yet: expected a trial that has succeeded")
        raise InputError(f"trial {directory.id} has no predictions on {split}: task '{trial.task}' stores none")
    return predictions
