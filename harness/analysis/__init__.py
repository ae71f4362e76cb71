"""What the sources measure of trained models; importing this loads no torch.

An analysis is a function (`harness.analysis.trained.Trained`, `Options`) → `Findings`. Register one's own in `ANALYSES`
and `dropbench analyze ID NAME` runs it, keeps what it found and draws it. A suite whose cells have a metric
``NAME/SCALAR`` runs it on each of its trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.registry import Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from harness.analysis.trained import Trained
    from harness.task import Split


@dataclass(frozen=True)
class Options:
    """What of a trial's data is looked at.

    Attributes:
        split: the samples of this split.
        samples: so many of them, drawn at random but the same ones for every trial; None: as the analysis thinks best,
            mostly all.
    """

    split: Split = "test"
    samples: int | None = None


@dataclass(frozen=True)
class Findings:
    """What an analysis found.

    Attributes:
        scalars: numbers by name; the database has them as metrics ``<kind>/<name>``.
        arrays: everything that the figure shows, by name.
        draw: makes the figure.
    """

    scalars: Mapping[str, float]
    arrays: Mapping[str, NDArray[Any]]
    draw: Callable[[], Figure]


Analysis = Callable[["Trained", Options], Findings]
ANALYSES: Registry[Analysis] = Registry("analysis")

for _name, _target, _help in (
    ("entropy", "statistics:entropy", "how evenly attention is spread (DropKey, Fig. 4; DropAttention, Fig. 2a)"),
    ("diversity", "statistics:diversity", "Div, the overlap of heads (DropAttention, Eq. 11, Fig. 2c)"),
    ("disagreement", "statistics:disagreement", "cosine between heads (DropAttention, Eq. 12, Fig. 2b)"),
    ("sparsity", "sparsity:sparsity", "largest weight × sentence length (DropAttention, Fig. 3)"),
    ("occlusion", "occlusion:occlusion", "accuracy with patches or words hidden (DropKey, Table 3)"),
    ("attention-map", "attention_map:attention_map", "what the class token attends to (DropKey, Fig. 5)"),
    ("interactions", "interactions:interactions", "what a body's joints attend to (DropKey, Fig. 6)"),
    ("predictions", "predictions:predictions", "boxes, pairs and meshes found, beside the true ones"),
    ("keep-rate", "keep_rate:keep_rate", "share that training keeps, and statistics of learned masks"),
):
    ANALYSES.add(_name, f"harness.analysis.{_target}", help=_help)


def analysis_of(metric: str) -> str | None:
    """The analysis that gives a metric: of ``occlusion/accuracy@0.3`` occlusion; None for a task's own.

    Raises:
        InputError: there is no such analysis.
    """
    kind, separator, _ = metric.partition("/")
    return ANALYSES.entry(kind).name if separator else None
