"""A trained trial for analysis: its task, its model with the selected weights, and its attention sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch

from dropbench.harness.analysis.options import Options
from dropbench.harness.errors import InputError
from dropbench.harness.models.adapter import site_of
from dropbench.harness.models.regularize import find_patches
from dropbench.harness.models.sites import ATTENTION_KINDS, sites, watch
from dropbench.harness.regularizers.base import Probe, Site, SiteKind
from dropbench.harness.runs.kept_weights import best_of_cell, keeps_weights
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.seeding import derive, seed_all
from dropbench.harness.settings import Settings
from dropbench.harness.training import checkpoint
from dropbench.harness.training.data_loading import to_device
from dropbench.harness.training.regularization import bind_trial, monte_carlo
from dropbench.harness.trials.alignment import num_mc_samples
from dropbench.harness.trials.plugins import plugins_of
from dropbench.harness.trials.task import TASKS, Split
from dropbench.harness.trials.trial import Trial

ATTENTION: tuple[SiteKind, ...] = tuple(kind for kind in ATTENTION_KINDS if kind != "token")
"""Analyzed kinds of sites. The attention that produces T2T-ViT's tokens is excluded: the papers do not measure it, and
its weights are by far the largest (3,136 × 3,136 at 224 pixels)."""
AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}
T = TypeVar("T")


class Trained:
    """A trial that has succeeded.

    It is evaluated as at the end of the trial: in eval mode, with its precision, seed and alignment.

    Attributes:
        directory: run directory of the trial.
        trial: the trial.
        result: content of ``result.json``.
        task: the trial's task, set up.
        model: the model in eval mode on the device, with the regularizer bound. Sites that training does not regularize
            (class attention) are patched too, without a regularizer.
        sites: attention sites, in order of execution.
        device: device of the model.
        batch_size: number of samples in the batch under evaluation.

    Raises:
        InputError: the trial has no result or no weights, its data have changed since training, a plug-in has
            without a copy of its version, or there is no GPU.
    """

    def __init__(self, directory: RunDirectory, settings: Settings) -> None:
        self.directory = directory
        self.trial: Trial = directory.trial()
        result = directory.result()
        if result is None:
            raise InputError(f"trial {directory.id} has no result yet: expected a trial that has succeeded")
        self.result = result
        self.device = torch.device("cuda" if settings.uses_cuda() else "cpu")
        with plugins_of(self.trial, directory.path.parent):
            self.task = TASKS.get(self.trial.task)(self.trial, settings)
            self.task.setup()
            seed_all(derive(self.task.seed_of("init"), "model"))
            model = self.task.build_model()
            bind_trial(model, self.trial)
        for patch in find_patches(model):
            if patch.slot == "site" and site_of(patch.module) is None and patch.refusal is None:
                patch.attach()
        if not keeps_weights(directory):
            remedy = (
                f"delete result.json and checkpoint/ in {directory.path}, then run `dropbench db rebuild` and its"
                " command with `--keep-weights`"
            )
            if (best := best_of_cell(directory)) is not None:
                remedy = f"of its cell, {best} did, the best on dev: take that"
            raise InputError(f"trial {directory.id} kept no fine-tuned weights: {remedy}")
        try:
            weights = checkpoint.load_weights(directory.path / "checkpoint", int(result["selected_step"]))
            model.load_state_dict(weights)
        except (checkpoint.Damaged, KeyError, RuntimeError) as error:
            cause = " ".join(str(error).split())[:200]
            raise InputError(f"trial {directory.id}: selected weights: {cause}: train it again") from None
        self.model = model.to(self.device).eval()
        self.sites = [site for site in sites(model) if site.kind in ATTENTION]
        self.batch_size = 0

    def label(self, site: Site) -> str:
        """Return a site's label in results: kind and layer (from 1), or its module path if these are not unique."""
        labels = [f"{other.kind}.{other.layer + 1}" for other in self.sites]
        label = f"{site.kind}.{site.layer + 1}"
        return label if labels.count(label) <= 1 else site.name

    def in_order(self, values: Mapping[str, T]) -> dict[str, T]:
        """Return values by site label in order of execution; raises InputError if there are none."""
        if not values:
            raise InputError(f"model '{self.trial.model}' computed no attention that can be analyzed")
        return {label: values[label] for label in map(self.label, self.sites) if label in values}

    def title(self) -> str:
        """Return a short description of the trial for figures."""
        trial = self.trial
        name = trial.regularizer.name
        if "ratio" in trial.regularizer.params:
            name += f" {trial.regularizer.params['ratio']:g}"
        window = trial.regularizer.params.get("window", 1)
        parts = [name, f"w={window}" * (window != 1)]
        parts += [trial.schedule * (trial.schedule != "constant"), trial.align * (trial.align != "none")]
        return f"{', '.join(filter(None, parts))}: {trial.model} on {trial.data.name}, seed {trial.seed}"

    def indices(self, options: Options) -> list[int]:
        """Return the samples to evaluate, in the task's order; raises InputError if the split has too few."""
        batches = self.task.evaluation_batches(options.split, self.task.recipe.batch_size)
        indices = [index for batch in batches for index in batch]
        if options.samples is None:
            return indices
        if not 0 < options.samples <= len(indices):
            raise InputError(
                f"--samples {options.samples}: expected 1 to {len(indices)}, the size of split '{options.split}'"
            )
        order = torch.randperm(len(indices), generator=torch.Generator().manual_seed(derive(0, "samples")))
        return [indices[position] for position in sorted(order[: options.samples].tolist())]

    def evaluate(
        self, options: Options, *, probe: Probe | None = None, change: Callable[[Any], Any] | None = None
    ) -> dict[str, float]:
        """Return the task's metrics on the samples, computed without gradients; raises InputError as `indices`.

        `probe` is called with the attention weights of every site in every forward pass. `change` transforms each
        batch, already on the device, before evaluation.
        """
        indices = self.indices(options)
        with self.evaluation_context(), watch(self.model, probe, ATTENTION) if probe is not None else nullcontext():
            return self.task.evaluate(self.model, options.split, self._batches(options.split, indices, change))

    @contextmanager
    def evaluation_context(self) -> Iterator[None]:
        """Context manager: call the model as at the end of the trial, without gradients."""
        seed_all(derive(self.task.seed_of("masks"), "evaluate", self.result["steps"]))
        amp = self.task.recipe.amp
        dtype = None if amp == "fp16" and self.device.type == "cpu" else AMP.get(amp)  # as in training
        autocast = nullcontext() if dtype is None else torch.autocast(self.device.type, dtype=dtype)
        with torch.no_grad(), monte_carlo(self.model, num_mc_samples(self.trial.align)), autocast:
            yield

    def _batches(self, split: Split, indices: list[int], change: Callable[[Any], Any] | None) -> Iterator[Any]:
        size = self.task.recipe.batch_size
        for start in range(0, len(indices), size):
            chunk = indices[start : start + size]
            self.batch_size = len(chunk)
            batch = to_device(self.task.batch(split, chunk), self.device)
            yield batch if change is None else change(batch)
