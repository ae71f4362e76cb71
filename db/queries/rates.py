"""Recorded speeds: GPU-hours per step of trials that take equally long, from their attempts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Attempts, Configs, Trials
from dropbench.db.store.rows import in_list
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.files import canonical_json
from dropbench.harness.regularizers.spec import class_of, part_names

SAME_COST = frozenset({
    "optimizer", "lr", "min_lr", "beta1", "beta2", "momentum", "weight_decay", "backbone_lr", "head_lr", "layer_decay",
    "decay_all", "lr_schedule", "lr_options", "lr_drop", "lr_decay_steps", "warmup", "warmup_lr", "clip_norm",
    "label_smoothing", "class_weights", "kinds", "finetune_lr", "seed_init", "seed_order", "seed_masks", "seed_splits",
})  # fmt: skip
"""Keys of a recipe whose values do not change how long a step takes, nor how many there are."""


class Shape(NamedTuple):
    """The trials that take about equally long: those of a model on a data set with a recipe of the same shape.

    Attributes:
        key: everything that decides the time: task, data, model, alignment, how often a batch passes through the model
            in a step, and the recipe without `SAME_COST`.
        label: the model, the data and the alignment.
    """

    key: str
    label: str


class Rate(NamedTuple):
    """The recorded speed of a shape.

    Attributes:
        device: the GPU's name.
        gpus: their number.
        steps: steps of a whole trial.
        seconds_per_step: the mean over the attempts.
    """

    device: str
    gpus: int
    steps: int
    seconds_per_step: float


def recorded_rates(store: Store) -> dict[Shape, list[Rate]]:
    """Return the recorded speeds on GPUs, by shape."""
    seconds = func.avg(1 / Attempts.c.steps_per_second)
    keys = Trials.c.config_id, Attempts.c.device, Attempts.c.gpus
    query = select(*keys, func.max(Attempts.c.steps), seconds).join(Trials, Trials.c.id == Attempts.c.trial_id)
    used = Attempts.c.steps_per_second.is_not(None), Attempts.c.steps.is_not(None), Attempts.c.device.is_not(None)
    with reading(store.engine) as connection:
        rows = connection.execute(query.where(Attempts.c.gpus > 0, *used).group_by(*keys)).all()
        shapes = _shapes(connection, {row.config_id for row in rows})
    rates: dict[Shape, list[Rate]] = {}
    for config, *rate in rows:
        rates.setdefault(shapes[config], []).append(Rate(*rate))
    return rates


def shapes_of(store: Store, ids: Sequence[str]) -> dict[str, tuple[Shape, int]]:
    """Return the shapes of trials and the steps that they have done, by id."""
    done = func.max(Attempts.c.steps_done)
    query = select(Trials.c.id, Trials.c.config_id, func.coalesce(done, 0))
    query = query.outerjoin(Attempts, Attempts.c.trial_id == Trials.c.id).group_by(Trials.c.id, Trials.c.config_id)
    with reading(store.engine) as connection:
        rows = connection.execute(query.where(in_list(connection, Trials.c.id, ids))).all()
        shapes = _shapes(connection, {config for _, config, _ in rows})
    return {id: (shapes[config], steps) for id, config, steps in rows}


def _shapes(connection: Any, configs: set[str]) -> dict[str, Shape]:
    query = select(Configs.c.id, Configs.c.config).where(in_list(connection, Configs.c.id, configs))
    return {id: shape_of(config) for id, config in connection.execute(query)}


def shape_of(config: dict[str, Any]) -> Shape:
    """Return the shape of a configuration (`Trial.config`)."""
    recipe = {key: value for key, value in config["recipe"].items() if key not in SAME_COST}
    parts = {key: config[key] for key in ("task", "data", "model", "align")}
    key = {**parts, "recipe": recipe, "passes": _passes(config["regularizer"]["name"])}
    align = "" if config["align"] == "none" else f" with {config['align']}"
    return Shape(canonical_json(key), f"{config['model']} on {config['data']['name']}{align}")


def _passes(regularizer: str) -> int:
    """Return how often a batch passes through the model in a step; 1 if a plug-in's regularizer is not loaded."""
    with contextlib.suppress(InputError):
        return max((class_of(name).num_passes for name in part_names(regularizer) if name != "none"), default=1)
    return 1
