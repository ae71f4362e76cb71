"""A trained trial, ready to be looked at: its task, its model with the weights that were selected, its sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from harness import checkpoint
from harness.adapter import site_of
from harness.align import draws_of, monte_carlo, through_attend
from harness.analysis import Options
from harness.binding import ATTENTION_KINDS, bind_trial, find_patches, sites, watch
from harness.errors import InputError
from harness.feed import to_device
from harness.rundir import RunDirectory
from harness.seeding import derive, seed_all
from harness.settings import Settings
from harness.site import Probe, Site, SiteKind
from harness.task import TASKS, Split
from harness.trial import Trial

ATTENTION: tuple[SiteKind, ...] = tuple(kind for kind in ATTENTION_KINDS if kind != "token")
"""What is looked at. Attention that makes the tokens is none of the layers that the papers measure, and its weights are
the most by far: 3,136 × 3,136 at 224 pixels."""
AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}


def find_run(runs: Path, start: str) -> RunDirectory:
    """The run directory whose id begins with `start`.

    Raises:
        InputError: there is none, or more than one.
    """
    found = [directory for directory in RunDirectory.all(runs) if directory.id.startswith(start)] if start else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"trial '{start}': none in {runs} whose id begins so: dropbench results --format json has ids")
    named = ", ".join(directory.id for directory in found[:4]) + (", …" if len(found) > 4 else "")
    raise InputError(f"trial '{start}': {len(found)} ids in {runs} begin so: {named}")


class Trained:
    """A trial that has succeeded.

    Evaluation is as at the trial's end: in eval mode, with its precision, seed and alignment.

    Attributes:
        directory: its run directory.
        trial: the trial.
        result: the content of ``result.json``.
        task: its task, set up.
        model: the model in eval mode, on the device, regularizer bound. Sites that training leaves alone (class
            attention) are there too, with no regularizer.
        sites: the sites of attention, in order of execution.
        device: where the model is.
        batch_size: number of samples of that batch.

    Raises:
        InputError: the trial has no result or no weights, or its data are not those that it was trained on.
    """

    def __init__(self, directory: RunDirectory, settings: Settings) -> None:
        self.directory = directory
        self.trial: Trial = directory.trial()
        result = directory.result()
        if result is None:
            raise InputError(f"trial {directory.id} has no result yet: expected one that succeeded")
        self.result = result
        cuda = settings.uses_cuda()
        if settings.device == "cuda" and not cuda:
            raise InputError("device cuda: there is no GPU here: expected auto or cpu")
        self.device = torch.device("cuda" if cuda else "cpu")
        self.task = TASKS.get(self.trial.task)(self.trial, settings)
        self.task.setup()
        seed_all(derive(self.trial.seed, "model"))
        model = self.task.build_model()
        bind_trial(model, self.trial)
        for patch in find_patches(model):
            if site_of(patch.module) is None and patch.refusal is None:
                patch.attach()
        try:
            weights = checkpoint.load_weights(directory.path / "checkpoint", int(result["selected_step"]))
            model.load_state_dict(weights)
        except (checkpoint.Damaged, KeyError, RuntimeError) as error:
            raise InputError(
                f"trial {directory.id}: its selected weights: {' '.join(str(error).split())[:200]}: train it again"
            ) from None
        self.model = model.to(self.device).eval()
        self.sites = [site for site in sites(model) if site.kind in ATTENTION]
        self.batch_size = 0

    def label(self, site: Site) -> str:
        """The name of a site in results: its kind and its layer from 1, or its path where two have the same."""
        short = [f"{other.kind}.{other.layer + 1}" for other in self.sites]
        mine = f"{site.kind}.{site.layer + 1}"
        return mine if short.count(mine) <= 1 else site.name

    def title(self) -> str:
        """The trial in a few words, for figures."""
        trial = self.trial
        name = trial.regularizer.name
        if "ratio" in trial.regularizer.params:
            name += f" {trial.regularizer.params['ratio']:g}"
        window = trial.regularizer.params.get("window", 1)
        parts = [name + (f", w={window}" if window != 1 else ""), trial.schedule * (trial.schedule != "constant")]
        parts.append(trial.align * (trial.align != "none"))
        return f"{', '.join(filter(None, parts))}: {trial.model} on {trial.data.name}, seed {trial.seed}"

    def indices(self, options: Options) -> list[int]:
        """The samples that are looked at, in the task's order of evaluation.

        Raises:
            InputError: more samples than the split has.
        """
        batches = self.task.evaluation_batches(options.split, self.task.recipe.batch_size)
        every = [index for batch in batches for index in batch]
        if options.samples is None:
            return every
        if not 0 < options.samples <= len(every):
            raise InputError(f"--samples {options.samples}: expected 1 to {len(every)}, as '{options.split}' has")
        order = torch.randperm(len(every), generator=torch.Generator().manual_seed(derive(0, "samples")))
        return [every[place] for place in sorted(order[: options.samples].tolist())]

    def evaluate(
        self, options: Options, *, probe: Probe | None = None, change: Callable[[Any], Any] | None = None
    ) -> dict[str, float]:
        """The task's metrics on the samples, without gradients.

        Args:
            options: which samples.
            probe: sees the attention weights of every site.
            change: makes of each batch, already on the device, the one that is evaluated.

        Raises:
            InputError: more samples than the split has.
        """
        indices = self.indices(options)
        with self.looking(), watch(self.model, probe, ATTENTION) if probe is not None else nullcontext():
            return self.task.evaluate(self.model, options.split, self._batches(options.split, indices, change))

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Within it the model may be called as at the trial's end, without gradients."""
        seed_all(derive(self.trial.seed, "evaluate", self.result["steps"]))
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(monte_carlo(self.model, draws_of(self.trial.align)))
            stack.enter_context(through_attend())
            dtype = AMP.get(self.task.recipe.amp)
            if dtype is not None:
                stack.enter_context(torch.autocast(self.device.type, dtype=dtype))
            yield

    def _batches(self, split: Split, indices: list[int], change: Callable[[Any], Any] | None) -> Iterator[Any]:
        size = self.task.recipe.batch_size
        for start in range(0, len(indices), size):
            part = indices[start : start + size]
            self.batch_size = len(part)
            batch = to_device(self.task.batch(split, part), self.device)
            yield batch if change is None else change(batch)
