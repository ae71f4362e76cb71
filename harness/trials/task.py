"""The base class of tasks (data, loss, metrics, evaluation), and their registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dropbench.harness.errors import InputError
from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.registry import Registry
from dropbench.harness.settings import Settings
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.recipe import Recipe, ResolvedRecipe
from dropbench.harness.trials.trial import Trial, TrialRequest

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn
    from torch.optim import Optimizer

    from dropbench.harness.trials.optimization import Share
    from dropbench.harness.trials.sample_view import BodyTokens, Overlays, SampleView

Split = Literal["train", "dev", "test"]
SeedSource = Literal["init", "order", "masks"]
"""Sources of randomness in training: initial weights, order and augmentation of the data, draws of the model."""
SUBSET = "subset: "
"""The beginning of a note that the data are a part of the published data."""


def _has_metrics(item: Any) -> bool:
    metrics = getattr(item, "metrics", None)
    return bool(metrics) and isinstance(metrics, tuple | list) and all(isinstance(each, Metric) for each in metrics)


class TaskRegistry(Registry["type[Task]"]):
    """The registry of tasks, which names the classes that it registers."""

    def add(self, name: str, target: Any, *aliases: str, help: str = "", **facts: Any) -> None:
        """Register a task, and set its `name` if the class does not define one; ValueError for two equal metrics."""
        if isinstance(target, type) and issubclass(target, Task) and "name" not in vars(target):
            target.name = name
        names = [metric.name for metric in target.metrics] if _has_metrics(target) else []
        if repeated := next((each for each in names if names.count(each) > 1), None):
            raise ValueError(f"task '{name}': two metrics '{repeated}': give each a name of its own")
        super().add(name, target, *aliases, help=help, **facts)


TASKS = TaskRegistry("task", "a Task with `metrics = (Metric(…), …)`", _has_metrics, "tasks")
"""The fact `spec` names a task's spec, see `spec_of`."""
for _name, _folder, _help in (
    ("image-classification", "images", "one label an image (DropKey 4.1)"),
    ("object-detection", "detection", "boxes with classes (DropKey 4.2)"),
    ("interaction-detection", "detection", "what persons do with objects (DropKey 4.3)"),
    ("mesh-recovery", "meshes", "bodies as meshes (DropKey 4.4)"),
    ("text-classification", "text", "one label a text (DropAttention 5.1)"),
    ("text-regression", "text", "one score a text, or a pair of texts, such as similarity"),
    ("sequence-labelling", "text", "one tag a word: entities, chunks, parts of speech (DropAttention 5.2)"),
    ("textual-entailment", "text", "what follows from what (DropAttention 5.3)"),
    ("multiple-choice", "text", "one of several choices a text"),
    ("question-answering", "text", "the part of a text that answers a question"),
    ("translation", "translation", "sentences of another language (DropAttention 5.4)"),
    ("language-modelling", "language", "the next token of a running text (Learned Dropout)"),
):
    _room, _class = f"dropbench.tasks.{_folder}", _name.title().replace("-", "")
    TASKS.add(_name, f"{_room}.{_name.replace('-', '_')}:{_class}", help=_help, spec=f"{_room}.spec:{_class}Spec")


def spec_of(name: str) -> type[Task]:
    """Return the part of a task that needs no torch: its recipe, its metrics, and how it makes trials.

    Raises:
        InputError: the name is unknown, or not that of the class.
    """
    spec = TASKS.get(name, "spec")
    if getattr(spec, "name", None) != (name := TASKS.entry(name).name):
        raise InputError(f"task '{name}': expected `name = \"{name}\"` in {spec!r}")
    return spec


def cut(indices: list[int], parts: int) -> list[list[int]]:
    """Split a list into at most `parts` runs of nearly equal length, none empty."""
    parts = min(parts, len(indices))
    bounds = [len(indices) * part // parts for part in range(parts + 1)]
    return [indices[start:end] for start, end in pairwise(bounds)]


class Task(ABC):
    """One kind of benchmark. A subclass defines data, model, loss and metrics; the engine trains it.

    Class attributes:
        name: the registered name; `TASKS.register` sets it.
        recipe_type: the model of its hyper-parameters.
        metrics: the metrics that `evaluate` and `summary` may return; `evaluate` always returns `selection_metric`.
        result_version: raised when a change of the task changes its numbers
            (`dropbench.harness.trials.result_versions`).

    Attributes:
        notes: facts for readers of the results, such as how the data were split or truncated. `setup` sets them; they
            are in the log and in ``environment.json``.
        recorder: takes the predictions of the final evaluation, see `example_id`; None in every other evaluation.
        map_batches: yields a function's result for each batch of an evaluation, in order, as `map` does. Processes that
            train together share the work: each gets the results of all, on the CPU, and the rows of all in `recorder`.
            A stopped evaluation resumes after these batches, if the results are plain values, tensors and arrays.
        share: that of the micro-batch whose loss the trainer computes; None if the batch is whole.

    The worker creates instances. Only `setup`, which reads the data, may be slow.
    """

    name: ClassVar[str]
    recipe_type: ClassVar[type[Recipe]] = Recipe
    metrics: ClassVar[tuple[Metric, ...]]
    result_version: ClassVar[int] = 1
    recorder: Recorder | None = None
    map_batches: Callable[[Callable[[Any], Any], Any], Iterable[Any]] = map
    share: Share | None = None

    def __init__(self, trial: Trial, settings: Settings) -> None:
        self.trial = trial
        self.settings = settings
        self.recipe = self.recipe_type.model_validate(trial.recipe)
        self.notes: list[str] = []

    def seed_of(self, source: SeedSource) -> int:
        """Return the seed of a source of randomness: the recipe's, or else the trial's."""
        fixed: int | None = getattr(self.recipe, f"seed_{source}", None)
        return self.trial.seed if fixed is None else fixed

    @classmethod
    @abstractmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """Fill in the recipe and the data's fingerprint; raises InputError if the fields do not fit together.

        It is called per cell whenever a table is printed, so it imports no model library. Nothing but the trial's seed
        may depend on the seed.
        """

    @classmethod
    def draft_for(cls, request: TrialRequest) -> Trial | None:
        """Return the trial of a request as far as it is known without any file; None if the task does not know it.

        Fingerprints and digests are "", and the recipe lacks those of files besides the data. Raises InputError as
        `trial_for` does.
        """
        return None

    @classmethod
    def resolved(cls, request: TrialRequest) -> ResolvedRecipe | None:
        """Return the recipe of a request, without reading data; None for a task without presets."""
        return None

    @classmethod
    def recipe_parts(cls, request: TrialRequest) -> dict[str, Mapping[str, Any]]:
        """Return by name what a request's recipe is composed of, before overrides; {} for a task without presets."""
        return {}

    @classmethod  # noqa: B027 - a task may have nothing to check
    def check(cls, trial: Trial) -> None:
        """Check a trial that is about to be queued; raises InputError, UnsuitableError if a suite should skip it."""

    @abstractmethod
    def setup(self) -> None:
        """Read the data; raises InputError if they are missing or damaged, or do not have the trial's fingerprint."""

    @abstractmethod
    def build_model(self) -> nn.Module:
        """Return the model with its initial weights, not regularized, on the CPU."""

    @abstractmethod
    def size(self, split: Split) -> int:
        """Return the number of samples of a split."""

    @abstractmethod
    def batch(self, split: Split, indices: Sequence[int]) -> Any:
        """Return the samples of these indices as one batch of CPU tensors (any nest of tuples, lists and dicts).

        On "train" it may draw random numbers for augmentation: the generators are seeded per batch.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the training loss of a batch, a scalar: the mean over its samples."""

    def loss_and_logits(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return `loss` with the logits (N, C) of the N predictions that it scores, for regularizers of the loss.

        A task that implements it returns its first value from `loss`.
        """
        raise NotImplementedError

    @classmethod
    def gives_logits(cls) -> bool:
        """Return whether `loss_and_logits` computes the same loss as `loss`, and not that of a base class."""
        order = [next(base for base in cls.__mro__ if name in vars(base)) for name in ("loss", "loss_and_logits")]
        return order[1] is not Task and issubclass(order[1], order[0])

    @property
    def divides_gradients(self) -> bool:
        """True if a step divides the gradients of its summed loss instead of the loss; only rounding differs."""
        return False

    def build_optimizer(self, model: nn.Module) -> Optimizer:
        """Return the recipe's optimizer; its groups have the `share` of `harness.trials.optimization.set_rate`."""
        from dropbench.harness.trials.optimization import build_optimizer  # imports torch

        return build_optimizer(model, self.recipe)

    def num_loss_terms(self, batch: Any) -> float | None:
        """Return the number of terms, such as tokens, that the loss of a batch is the mean of; None: its samples.

        They weight micro-batches and processes of a step, so that the gradient is that of the batch's mean.
        """
        return None

    def num_targets(self, batch: Any) -> tuple[float, ...]:
        """Return the numbers of targets, such as boxes, that terms of the loss are divided by besides its loss terms.

        While `share` is set, `loss` divides by its share of those of the whole batch: micro-batches may differ in them.
        """
        return ()

    def extent(self, batch: Any) -> tuple[int, ...]:
        """Return the size that `loss` pads a batch to, if that changes it; `share` has that of the micro-batch."""
        return ()

    @abstractmethod
    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return the metrics of a split, by the names in `metrics`; the model is in eval mode, without gradients.

        It takes the batches by `map_batches`: a loop over them would evaluate all in each process, and never resume.
        """

    def summary(self, model: nn.Module) -> dict[str, float]:
        """Return metrics of the selected weights besides those of `evaluate`, which are stored with those of test."""
        return {}

    def example_id(self, split: Split, index: int) -> str | None:
        """Return an id of a sample by its content (`harness.predictions.schema.content_id`); None if there is none.

        Predictions that `evaluate` and `summary` add to `recorder` are stored with the trial if they have ids.
        """
        return None

    @property
    def selection_metric(self) -> Metric:
        """The metric that selects the model, on dev."""
        return self.metrics[0]

    def sample_view(self, split: Split, index: int) -> SampleView | None:
        """Return a sample for figures; None if the task cannot display it."""
        return None

    def overlays(self, model: nn.Module, split: Split, index: int) -> Overlays | None:
        """Return the true and predicted overlays of `sample_view`'s image; None if the task has none."""
        return None

    def body_tokens(self, model: nn.Module, split: Split, index: int) -> BodyTokens | None:
        """Return the model's tokens in `sample_view`'s image; None if they are not points of a body."""
        return None

    def mask_tokens(self, batch: Any, share: float, generator: Generator) -> Any | None:
        """Return a batch without a random share of each sample's words, never all; None if it has no words.

        Args:
            batch: a batch from `batch`, on any device.
            share: share of each sample's words, rounded to the nearest number of words.
            generator: random generator on the CPU.
        """
        return None

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """Yield the batches of an epoch, indices into "train"; a last, smaller one is dropped unless it is alone."""
        import torch

        order = torch.randperm(self.size("train"), generator=torch.Generator().manual_seed(seed)).tolist()
        last = len(order) - len(order) % size if len(order) >= size else len(order)
        for start in range(0, last, size):
            yield order[start : start + size]

    def epoch_seed(self, number: int) -> int:
        """Return the seed of epoch `number`, from 0."""
        from dropbench.harness.seeding import derive

        return derive(self.seed_of("order"), "epoch", number)

    def micro_batches(self, indices: list[int], parts: int) -> list[list[int]]:
        """Split a batch as `cut` does."""
        return cut(indices, parts)

    def steps_per_epoch(self, size: int) -> int:
        """Return how many batches `epoch` yields."""
        return max(1, self.size("train") // size)

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """Yield the batches of a split for evaluation, every sample once."""
        order = range(self.size(split))
        yield from (list(order[start : start + size]) for start in range(0, len(order), size))
