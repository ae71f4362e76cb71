"""Command-line options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Preset = Annotated[str, typer.Option(help="mini: at most hours on two cores; paper: as published.")]
Seeds = Annotated[int | None, typer.Option(min=1, metavar="N", help="Seeds 0 to N-1; default: the preset's.")]
Data = Annotated[
    list[str] | None, typer.Option(metavar="NAME[=PATH]", help="Only these data sets; PATH: folder of this data set.")
]
DataFolder = Annotated[list[str] | None, typer.Option("--data", metavar="NAME=PATH", help="Folder of a data set.")]
Model = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these models.")]
Spec = Annotated[list[str] | None, typer.Option(metavar="SPEC", help="Additional row, such as dropkey:ratio=0.3.")]
Override = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Changed hyperparameter.")]
Sweep = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUES", help="Select by dev score: ratio=0.1,0.2, window=1..3, set.lr=1e-4,1e-3."),
]
Search = Annotated[
    str | None,
    typer.Option(metavar="KEY=VALUE,…", help="Search instead of a grid: sampler, candidates, pruner, seed, batch."),
]
Weights = Annotated[str | None, typer.Option(metavar="PATH", help="Initial weights: a file, or a transformers folder.")]
Parallel = Annotated[int | None, typer.Option(min=1, metavar="N", help="Maximum workers; default: GPUs, else cores.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Backend = Annotated[
    str | None, typer.Option(metavar="NAME", help="Backend of attention with dropout: auto, eager, cpu or triton.")
]
Compile = Annotated[bool, typer.Option("--compile", help="Compile models with torch.compile.")]
CheckpointSeconds = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Time between two checkpoints.")]
Track = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Also log to tensorboard, wandb or mlflow.")]
Filter = Annotated[
    list[str],
    typer.Argument(
        metavar="FILTER…",
        help="Conditions that must all hold: a suite, a state, an id's beginning, KEY=VALUE, 'KEY<VALUE', not WORD.",
    ),
]
