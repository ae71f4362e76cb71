"""The state of a training run, as checkpoints hold it, and the weights that it has selected."""

from __future__ import annotations

import math
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from dropbench.harness.errors import Diverged
from dropbench.harness.source import code_digest
from dropbench.harness.training import checkpoint


@dataclass(config=ConfigDict(strict=True, extra="forbid"))
class TrainState:
    """The progress of a run. Every checkpoint holds all of it.

    Attributes:
        step: optimizer steps done.
        selected: step of the evaluation whose weights count: the best on dev so far, or the last with averaging.
        best: best value of the selection metric.
        worse: evaluations since then.
        averaged: steps whose weights are averaged if the recipe says so; the last one is `selected`.
        loss_steps: steps since the last train event.
        train_loss: mean loss of the last train event.
        phase: "train", or "finetune" for the phase without the regularizer (`dropbench.harness.trials.alignment`).
    """

    step: int = 0
    selected: int | None = None
    best: float | None = None
    worse: int = 0
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
        self.checkpointed: list[tuple[int | None, list[int]]] = []
        """`selected` and `averaged` of the checkpoints on disk, which may still need these files."""

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
        needed = [(state.selected, state.averaged), *self.checkpointed]
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
