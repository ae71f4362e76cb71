"""The state of a training run, as its files hold it: progress, selected weights, and evaluations that were stopped."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from dropbench.harness.errors import Diverged
from dropbench.harness.predictions.schema import Row
from dropbench.harness.source import code_digest
from dropbench.harness.training import checkpoint

PLAIN = (Tensor, np.ndarray, str, bytes, int, float, type(None))
"""Types of which the results of batches are kept, in lists, tuples and dicts."""
_ARRAY = "ndarray"

BatchResult = tuple[Any, list[Row]]
"""The result of a batch, on the CPU, and the rows that it recorded."""


@dataclass(config=ConfigDict(strict=True, extra="forbid"))
class TrainState:
    """The progress of a run. Every checkpoint holds all of it.

    Attributes:
        step: optimizer steps done.
        selected: step of the evaluation whose weights count: the best on dev so far, or the last with averaging.
        best: best value of the selection metric.
        worse: evaluations since then.
        evaluated: step of the last evaluation, or that at which the phase began.
        averaged: steps whose weights are averaged if the recipe says so; the last one is `selected`.
        loss_steps: steps since the last train event.
        train_loss: mean loss of the last train event.
        phase: "train", or "finetune" for the phase without the regularizer (`dropbench.harness.trials.alignment`).
    """

    step: int = 0
    selected: int | None = None
    best: float | None = None
    worse: int = 0
    evaluated: int = 0
    averaged: list[int] = field(default_factory=list)
    loss_steps: int = 0
    train_loss: float = math.nan
    phase: Literal["train", "finetune"] = "train"

    def selected_step(self) -> int:
        """Return the step of the selected weights; raises Diverged if no evaluation gave a finite value."""
        if self.selected is None:
            raise Diverged("no evaluation gave a finite value of the selection metric")
        return self.selected


class SelectedWeights:
    """Files of the weights that a run selects: the best on dev, or the mean over its last evaluations.

    They are in the checkpoint folder of the run. `average_last` is how many evaluations are averaged, None: none, and
    `writes` is whether this process writes files.
    """

    def __init__(self, folder: Path, average_last: int | None, *, writes: bool) -> None:
        self.folder, self.average_last, self.writes = folder, average_last, writes
        self.checkpointed: dict[int, tuple[int | None, list[int]]] = {}
        """`selected` and `averaged` of the checkpoints on disk by step, which may still need these files."""

    def add_checkpoint(self, state: TrainState) -> None:
        """Note the weights that the next checkpoint needs, which replaces the oldest one, or one of the same step."""
        checkpointed = {**self.checkpointed, state.step: (state.selected, state.averaged)}
        self.checkpointed = dict([*checkpointed.items()][-checkpoint.KEEP :])

    def select(self, state: TrainState, weights: dict[str, Any]) -> None:
        """Select the weights of this step, or their mean with those of the evaluations before."""
        state.selected = state.step
        if self.average_last is not None:
            state.averaged = [*state.averaged, state.step][-self.average_last :]
        if self.writes:
            if state.averaged:
                weights = checkpoint.averaged_weights(self.folder, state.averaged, weights)
            checkpoint.save_weights(self.folder, state.step, weights)
            self.delete_unused(state)

    def delete_unused(self, state: TrainState) -> None:
        """Delete files that neither the run nor one of its checkpoints may need."""
        needed = [(state.selected, state.averaged), *self.checkpointed.values()]
        selected, parts = {step for step, _ in needed}, {step for _, steps in needed for step in steps}
        for stem, steps in (("weights", selected), ("part", parts)):
            for path in self.folder.glob(f"{stem}-{'[0-9]' * 9}.pt"):
                if int(path.stem.removeprefix(f"{stem}-")) not in steps:
                    path.unlink(missing_ok=True)

    def load(self, state: TrainState) -> dict[str, Any]:
        """Return the selected weights; raises Diverged if there are none and Damaged if their file is."""
        return checkpoint.load_weights(self.folder, state.selected_step())


@dataclass(config=ConfigDict(extra="forbid"))
class History:
    """The code and the generators that trained a run so far.

    Attributes:
        codes: states of the code: the first step and the digest of each.
        draws_on_device: whether steps drew from a GPU's generator.
    """

    codes: list[tuple[int, str]] = field(default_factory=list)
    draws_on_device: bool = False

    def add_code(self, step: int) -> str | None:
        """Add the code of this process from `step` on; return a note for readers of the results if there is other."""
        if not self.codes or self.codes[-1][1] != code_digest():
            self.codes.append((step, code_digest()))
        texts = ", ".join(f"{digest} from step {start}" for start, digest in self.codes)
        return f"trained by several states of the code: {texts}" if len(self.codes) > 1 else None


@dataclasses.dataclass
class MappedBatches:
    """The results of the first batches of one call of `Task.map_batches`, in order.

    Attributes:
        results: one for each batch.
        generators: the states of the random generators after these batches (`harness.seeding.generator_states`).
        draws: whether the model draws from them, so that each batch depends on those before.
        definition: that of the rows (`Recorder.definition`); {} if none are recorded.
    """

    results: list[BatchResult] = dataclasses.field(default_factory=list)
    generators: list[Tensor] = dataclasses.field(default_factory=list)
    draws: bool = False
    definition: dict[str, Any] = dataclasses.field(default_factory=dict)


class EvaluationProgress:
    """The evaluations of one step so far: the one that selects weights, or the final ones.

    Attributes:
        path: the file that holds them between two attempts.
        splits: parts that each batch is split into; results of other parts are not taken.
        step: the step whose weights are evaluated.
    """

    def __init__(self, folder: Path, splits: int) -> None:
        self.path, self.splits = folder / checkpoint.EVALUATION, splits
        self.step = -1
        self.calls: dict[str, list[MappedBatches]] = {}
        self._current: tuple[str, int] = ("", 0)

    def begin(self, step: int, name: str) -> None:
        """Begin an evaluation of a step, or one that was stopped again; forget those of other steps."""
        if step != self.step:
            self.step, self.calls = step, {}
        self._current = (name, 0)

    def clear(self) -> None:
        """Forget the evaluations."""
        self.calls, self._current = {}, (self._current[0], 0)

    def delete_unused(self) -> None:
        """Delete the file if no evaluation has begun, so that a new checkpoint makes it useless."""
        if not self.calls:
            self.path.unlink(missing_ok=True)

    def next_call(self, generators: list[Tensor]) -> MappedBatches:
        """Return what the next call of `Task.map_batches` has done already; nothing if it drew on another device."""
        name, number = self._current
        self._current = (name, number + 1)
        calls = self.calls.setdefault(name, [])
        if number < len(calls) and len(calls[number].generators) != len(generators):
            del calls[number:]
        if number == len(calls):
            calls.append(MappedBatches(generators=generators))
        return calls[number]

    def sizes(self) -> list[Any]:
        """Return the step, and the numbers of batches by evaluation and call."""
        return [self.step, {name: [len(call.results) for call in calls] for name, calls in self.calls.items()}]

    def save(self) -> int:
        """Write the file, unless results are of other types than `PLAIN`; return the number of results in it."""
        calls = {name: [vars(call) for call in calls] for name, calls in self.calls.items()}
        if all(isinstance(leaf, PLAIN) for leaf in tree_leaves(calls)):
            arrays = tree_map_only(np.ndarray, lambda array: {_ARRAY: torch.from_numpy(array)}, calls)
            content = {"step": self.step, "splits": self.splits, "calls": arrays}
            checkpoint.write(self.path, content)
            return sum(len(call.results) for each in self.calls.values() for call in each)
        return 0

    def load(self, step: int) -> str | None:
        """Read the evaluations of a step; return the problem of a file that cannot be read."""
        if not self.path.exists():
            return None
        try:
            content = checkpoint.read(self.path)
            if (content["step"], content["splits"]) == (step, self.splits):
                calls: Mapping[str, Any] = tree_map(_array, content["calls"], is_leaf=_is_array)
                read = {name: [MappedBatches(**call) for call in each] for name, each in calls.items()}
                if any(len(result) != 2 for each in read.values() for call in each for result in call.results):
                    raise ValueError("expected a result and rows for each batch")
                self.step, self.calls = step, read
        except (checkpoint.Damaged, LookupError, TypeError, ValueError, AttributeError) as error:
            return f"{self.path.name}: {' '.join(str(error).split())[:200]}: evaluating from the first batch"
        return None


def _is_array(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {_ARRAY}


def _array(value: Any) -> Any:
    return value[_ARRAY].numpy() if _is_array(value) else value
