"""Rows of a suite that take the parameters of their regularizers from the cards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dropbench.harness.regularizers import BASELINES, REGULARIZERS
from dropbench.harness.regularizers.cards import find_card
from dropbench.harness.regularizers.spec import parse_spec
from dropbench.harness.suites.schema import Row


def with_card_rows(rows: Sequence[Row]) -> list[Row]:
    """Return rows completed by the values of cards, and one more row for each of DropBench's other regularizers.

    A row keeps what it sets itself; the label of an added row is the name of the regularizer. No baseline is added: the
    suites' models have no attention dropout, so that both are equal.

    Raises:
        InputError: a card is not valid.
    """
    completed = [row.model_copy(update={"trial": _complete(row.trial)}) for row in rows]
    present = {REGULARIZERS.entry(row.trial["regularizer"]).name for row in rows if _is_registered(row.trial)}
    present.update(BASELINES)
    own = (name for name in REGULARIZERS if REGULARIZERS.entry(name).plugin is None and name not in present)
    return [*completed, *(Row(label=name, trial=_card_fields(name)) for name in own)]


def _is_registered(trial: dict[str, Any]) -> bool:
    return trial.get("regularizer") in REGULARIZERS


def _complete(trial: dict[str, Any]) -> dict[str, Any]:
    if not _is_registered(trial):
        return trial
    fields = _card_fields(trial["regularizer"])
    return {**fields, **trial, "params": {**fields["params"], **trial.get("params", {})}}


def _card_fields(name: str) -> dict[str, Any]:
    card = find_card(name)
    spec = parse_spec(card.spec(name) if card else name)
    schedule = {"schedule": spec.schedule} if spec.schedule else {}
    return {"regularizer": spec.name, "params": spec.params, **schedule}
