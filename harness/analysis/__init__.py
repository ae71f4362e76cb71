"""Measurements that the sources report on trained models. Importing this package does not load torch.

An analysis is a function (`dropbench.harness.analysis.trained.Trained`, `Options`) → `Findings`. `dropbench analyze ID
NAME` runs any analysis registered in `ANALYSES`, stores its findings and draws its figure. A suite whose cells have a
metric ``NAME/SCALAR`` runs the analysis on each of its trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dropbench.harness.registry import Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from dropbench.harness.analysis.options import Options
    from dropbench.harness.analysis.trained import Trained


@dataclass(frozen=True)
class Findings:
    """Results of an analysis.

    Attributes:
        scalars: numbers by name; the database stores them as metrics ``<kind>/<name>``.
        arrays: all data of the figure, by name.
        draw: function that draws the figure; None: there is none.
        texts: contents of further files by name.
    """

    scalars: Mapping[str, float]
    arrays: Mapping[str, NDArray[Any]]
    draw: Callable[[], Figure] | None = None
    texts: Mapping[str, str] = field(default_factory=dict)


Analysis = Callable[["Trained", "Options"], Findings]
ANALYSES: Registry[Analysis] = Registry("analysis", "a function", callable, "analyses")

for _name, _target, _help in (
    ("entropy", "statistics:entropy", "how evenly attention is spread (DropKey, Fig. 4; DropAttention, Fig. 2a)"),
    ("diversity", "statistics:diversity", "Div, the overlap of heads (DropAttention, Eq. 11, Fig. 2c)"),
    ("disagreement", "statistics:disagreement", "cosine between heads (DropAttention, Eq. 12, Fig. 2b)"),
    ("sparsity", "sparsity:sparsity", "largest weight × sentence length (DropAttention, Fig. 3)"),
    ("occlusion", "occlusion:occlusion", "accuracy with patches or words hidden (DropKey, Table 3)"),
    ("attention-map", "pictures.attention_map:attention_map", "attention of the class token (DropKey, Fig. 5)"),
    ("interactions", "pictures.interactions:interactions", "attention of a body's joints (DropKey, Fig. 6)"),
    ("predictions", "pictures.predictions:predictions", "predicted boxes, pairs and meshes next to the true ones"),
    ("keep-rate", "keep_rate:keep_rate", "share of attention kept in training; statistics of learned masks"),
):
    ANALYSES.add(_name, f"dropbench.harness.analysis.{_target}", help=_help)
ANALYSES.add("submission", "dropbench.tasks.submission.glue:submission", help="predictions of GLUE's test set, its tsv")


def analysis_of(metric: str) -> str | None:
    """Return the analysis of a metric (``occlusion/accuracy@0.3``) or None; raise InputError for an unknown one."""
    kind, separator, _ = metric.partition("/")
    return ANALYSES.entry(kind).name if separator else None
