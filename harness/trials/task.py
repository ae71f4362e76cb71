"""What a task is: data, loss, metrics, evaluation, and how a trial of it is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from harness.deprecation import alias_renamed_methods
from harness.registry import Registry, load
from harness.settings import Settings
from harness.trials.metric import Metric
from harness.trials.recipe import Recipe
from harness.trials.samples import BodyTokens, Overlays, SampleView
from harness.trials.trial import Trial, TrialRequest

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn
    from torch.optim import Optimizer

    from harness.trials.recipe import ResolvedRecipe

Split = Literal["train", "dev", "test"]
RENAMED_METHODS = {
    "weight": "num_loss_terms",
    "steps_an_epoch": "steps_per_epoch",
    "selecting": "selection_metric",
    "shown": "sample_view",
    "marks": "overlays",
    "without_words": "mask_tokens",
}
"""Of a task, up to 0.1."""
SUBSET = "subset: "
"""How a note begins that says that the data are a part of those that were published."""
TASKS: Registry[type[Task]] = Registry("task")
"""The fact `spec` names a task's spec, see `spec_of`."""
for _name, _folder, _help in (
    ("image-classification", "images", "one label an image (DropKey 4.1)"),
    ("object-detection", "detection", "boxes with classes (DropKey 4.2)"),
    ("interaction-detection", "detection", "what persons do with objects (DropKey 4.3)"),
    ("mesh-recovery", "meshes", "bodies as meshes (DropKey 4.4)"),
    ("text-classification", "text", "one label a text (DropAttention 5.1)"),
    ("sequence-labelling", "text", "one tag a word: entities, chunks, parts of speech (DropAttention 5.2)"),
    ("textual-entailment", "text", "what follows from what (DropAttention 5.3)"),
    ("translation", "translation", "sentences of another language (DropAttention 5.4)"),
    ("language-modelling", "language", "the next token of a running text (Learned Dropout)"),
):
    _class = _name.title().replace("-", "")
    TASKS.add(
        _name,
        f"tasks.{_folder}.{_name.replace('-', '_')}:{_class}",
        help=_help,
        spec=f"tasks.{_folder}.spec:{_class}Spec",
    )


def spec_of(name: str) -> type[Task]:
    """Return a task without what trains it: its recipe, its metrics, how its trials are made. It imports no torch.

    Raises:
        InputError: the name is unknown.
    """
    entry = TASKS.entry(name)
    # "outline" is the fact's name up to 0.1; plug-ins may still say it.
    target = entry.facts.get("spec", entry.facts.get("outline"))
    found: type[Task] = load(target) if target is not None else TASKS.get(name)
    return found


def cut(indices: list[int], parts: int) -> list[list[int]]:
    """Split a list into at most `parts` runs of nearly equal length, none empty."""
    parts = min(parts, len(indices))
    bounds = [len(indices) * part // parts for part in range(parts + 1)]
    return [indices[start:end] for start, end in pairwise(bounds)]


class Task(ABC):
    """One kind of benchmark. The engine trains it; a subclass says what is trained and how it is judged.

    Class attributes:
        name: as registered.
        recipe_type: its hyper-parameters.
        metrics: what `evaluate`, which always returns `selection_metric`, and `summary` may return.

    Attributes:
        notes: what a reader of the results should know: how the data were split, what was cut or left out. Set by
            `setup`; a run's log and ``environment.json`` have them.

    Instances are made by the worker. `setup` reads the data; nothing before it is slow.
    """

    name: ClassVar[str]
    recipe_type: ClassVar[type[Recipe]] = Recipe
    metrics: ClassVar[tuple[Metric, ...]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        alias_renamed_methods(cls, RENAMED_METHODS)

    def __init__(self, trial: Trial, settings: Settings) -> None:
        self.trial = trial
        self.settings = settings
        self.recipe = self.recipe_type.model_validate(trial.recipe)
        self.notes: list[str] = []

    @classmethod
    @abstractmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """Fill in the recipe and the data's fingerprint; raises InputError for what does not fit together.

        It is called for every cell of a table each time the table is printed, and so imports no model library. The
        trials of a cell differ in their seed alone: nothing else may depend on it.
        """

    @classmethod
    def resolved(cls, request: TrialRequest) -> ResolvedRecipe | None:
        """Return the recipe that a request stands for, whatever its data hold; None for a task without presets."""
        return None

    @classmethod  # noqa: B027 - a task may have nothing to look at
    def check(cls, trial: Trial) -> None:
        """Look closer at a trial that is about to be queued for the first time; raises InputError."""

    @abstractmethod
    def setup(self) -> None:
        """Read the data; raises InputError where it is missing, damaged, or not what the trial's fingerprint says."""

    @abstractmethod
    def build_model(self) -> nn.Module:
        """The model with its initial weights, not regularised, on the CPU."""

    @abstractmethod
    def size(self, split: Split) -> int:
        """Number of samples of a split."""

    @abstractmethod
    def batch(self, split: Split, indices: Sequence[int]) -> Any:
        """The samples of those indices as one batch of CPU tensors (any nest of tuples, lists and dicts).

        It may draw random numbers for augmentation on "train": the generators are seeded for this batch alone.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The training loss of a batch, a scalar: the mean over its samples."""

    @property
    def divides_gradients(self) -> bool:
        """Whether a step divides the gradients of the sum over its terms, and not the sum; only roundings differ."""
        return False

    def build_optimizer(self, model: nn.Module) -> Optimizer:
        """The recipe's optimizer; its groups have the `share` that `harness.trials.optimization.set_rate` asks for."""
        from harness.trials.optimization import build_optimizer  # which needs torch

        return build_optimizer(model, self.recipe)

    def num_loss_terms(self, batch: Any) -> float:
        """How many terms the loss of a batch is the mean of, such as tokens: what it counts for in its step.

        Micro-batches and processes of a step count by it, so that the gradient is that of the whole batch's mean.
        """
        return 1.0

    @abstractmethod
    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """The metrics of a split, by the names in `metrics`; the model is in eval mode, without gradients."""

    def summary(self, model: nn.Module) -> dict[str, float]:
        """Metrics of the selected weights that a run ends with beside those of the splits; the model as in `evaluate`.

        They are kept with those of test. Analyses, which look at the forward passes of `evaluate`, do not ask for them.
        """
        return {}

    @property
    def selection_metric(self) -> Metric:
        """The metric that selects the model, on dev."""
        return self.metrics[0]

    def sample_view(self, split: Split, index: int) -> SampleView | None:
        """A sample as a person sees it; None: the task has no way to show it."""
        return None

    def overlays(self, model: nn.Module, split: Split, index: int) -> Overlays | None:
        """What is to be found in the image of `shown`, and what the model, as in `evaluate`, finds; None: no marks."""
        return None

    def body_tokens(self, model: nn.Module, split: Split, index: int) -> BodyTokens | None:
        """Where the model, as in `evaluate`, finds its tokens in the image of `shown`; None: they are no points."""
        return None

    def mask_tokens(self, batch: Any, share: float, generator: Generator) -> Any | None:
        """A batch with a random share of each sample's words taken out, never all; None: it is not made of words.

        Args:
            batch: as `batch` makes it, on any device.
            share: of the words of each sample, rounded to the nearest number of words.
            generator: where to draw from, on the CPU.
        """
        return None

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """The batches of one epoch as indices into "train", the same for the same seed.

        The last, smaller batch is left out where there is a whole one.
        """
        import torch

        order = torch.randperm(self.size("train"), generator=torch.Generator().manual_seed(seed)).tolist()
        last = len(order) - len(order) % size if len(order) >= size else len(order)
        for start in range(0, last, size):
            yield order[start : start + size]

    def epoch_seed(self, number: int) -> int:
        """The seed of epoch `number`, from 0."""
        from harness.seeding import derive

        return derive(self.trial.seed, "epoch", number)

    def micro_batches(self, indices: list[int], parts: int) -> list[list[int]]:
        """A batch in at most `parts` runs of nearly equal length, none empty."""
        return cut(indices, parts)

    def steps_per_epoch(self, size: int) -> int:
        """How many batches `epoch` yields."""
        return max(1, self.size("train") // size)

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """The batches of a split for evaluation, every sample once."""
        total = self.size(split)
        for start in range(0, total, size):
            yield list(range(start, min(start + size, total)))


alias_renamed_methods(Task, RENAMED_METHODS)
