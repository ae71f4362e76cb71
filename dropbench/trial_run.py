"""A trial in its run directory: its curves, its trained model, and its predictions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

from dropbench.db.queries.marks import flatten
from dropbench.db.report.page.details import differences
from dropbench.db.schema.tables import FINAL
from dropbench.db.store.run_record import read_run_record
from dropbench.harness.errors import unknown_name
from dropbench.harness.runs.predictions import load_predictions
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import Split
from dropbench.harness.trials.trial import Trial, TrialState
from dropbench.jobs.queue.progress_bar import describe
from dropbench.prediction_frames import evaluate_predictions, predictions_frame

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import nn

    from dropbench.harness.analysis.trained import Trained


class TrialRun:
    """A trial in its run directory, as `dropbench.trial` returns it. Its files are read anew by each call.

    Attributes:
        id: 12 hexadecimal digits.
        trial: everything that determines its result: task, data, model, regularizer, schedule, recipe, seed.
    """

    def __init__(self, directory: RunDirectory, settings: Settings) -> None:
        self.id: str = directory.id
        self.trial: Trial = directory.trial()
        self._directory, self._settings = directory, settings

    def __repr__(self) -> str:
        return f"<TrialRun {describe(self.trial)}>"

    @property
    def state(self) -> TrialState:
        """State of the trial, such as "succeeded"."""
        return read_run_record(self._directory).state

    @property
    def metrics(self) -> dict[str, float | None]:
        """Final values by name, such as ``test/accuracy``; None if a value is not a finite number."""
        return {name: value for name, step, value in read_run_record(self._directory).metrics if step == FINAL}

    def history(self) -> DataFrame:
        """Return the curves: one column per curve, such as ``train/loss``; the index is the optimizer step.

        A curve is NaN at the steps at which it was not measured.
        """
        from pandas import DataFrame, Index

        curves: dict[str, dict[int, float | None]] = {}
        for name, step, value in read_run_record(self._directory).metrics:
            if step != FINAL:
                curves.setdefault(name, {})[step] = value
        frame = DataFrame(curves, dtype=float).sort_index()
        return frame.set_index(Index(frame.index, dtype=int, name="step"))

    def compare(self, other: TrialRun) -> DataFrame:
        """Compare two trials: the fields in which they differ, and then all their final values.

        Returns:
            One column per trial, named by its id. The index has the field, such as ``recipe.lr`` (its values are texts,
            "–" if a trial does not have it), or the name of the final value, such as ``test/accuracy``.
        """
        from pandas import DataFrame

        runs = self, other
        rows: list[tuple[Any, ...]] = []
        rows += differences(*(flatten({**run.trial.config(), "seed": run.trial.seed}) for run in runs))
        finals = [run.metrics for run in runs]
        rows += [(name, *(values.get(name) for values in finals)) for name in dict.fromkeys([*finals[0], *finals[1]])]
        frame = DataFrame(rows, columns=["field", *(run.id for run in runs)], dtype=object)
        return frame.set_index("field")

    def model(self) -> nn.Module:
        """Return a new copy of the trained model: selected weights, eval mode, its regularizer installed.

        Raises:
            InputError: the trial has no result yet, or its data or weights are missing or have changed.
        """
        return self._trained().model

    def predictions(self, split: Split = "test") -> DataFrame:
        """Return the predictions on a split, in the order of the data.

        Those of "dev" and "test" are stored with the trial. Otherwise (on "train", or of a task that stores none) the
        trained model is evaluated, for tasks that predict classes.

        Args:
            split: "train", "dev" or "test". Samples of "train" are augmented as in training.

        Returns:
            One row per sample: `sample` (index in the split) and the stored columns (docs/predictions.md), such as
            `target`, `prediction` (names of classes), `probability` (of the prediction, 0 to 1), `loss` and `correct`.
            For sequence labeling one row per word, with `word` (index in the sample). The last column is `id`, the same
            for a sample in every order of the data; predictions that are not stored have none.

        Raises:
            InputError: the stored file is damaged. Without one, as `model`; or the task predicts no classes, or has
                mixed labels on this split.
        """
        if split not in get_args(Split):
            raise unknown_name("split", split, get_args(Split))
        predictions = load_predictions(self._directory, split)
        if predictions is None:
            with _unchanged_generators():
                predictions = evaluate_predictions(self._trained(), split)
        return predictions_frame(predictions)

    def _trained(self) -> Trained:
        from dropbench.harness.analysis.trained import Trained

        with _unchanged_generators():
            return Trained(self._directory, self._settings)


@contextmanager
def _unchanged_generators() -> Iterator[None]:
    """Restore the random generators of Python, NumPy and torch afterwards: they are those of the caller's program."""
    import numpy as np
    import torch

    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
