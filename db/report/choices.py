"""What a table tells of swept cells: what was chosen of which candidates, by what, and what became of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.sweep import Params, Search, short

if TYPE_CHECKING:
    from db.report.view import Outcome
    from db.selection import Candidate, Selection

LETTERS = {"ratio": "p", "window": "w"}
"""As the tables of DropAttention have them."""
TOLD = 3
"""Candidates that a note names, of those that one thing happened to."""


def params_text(params: Params) -> str:
    """``p=0.3, w=2``."""
    return ", ".join(f"{LETTERS.get(key, short(key))}={value}" for key, value in params.items())


def chosen_text(outcome: Outcome) -> str:
    """What was chosen; "" where nothing is swept, or nothing chosen yet."""
    return params_text(outcome.chosen) if outcome.chosen is not None else ""


def standing(selection: Selection) -> str:
    """What stands in the place of a number that is not chosen yet, or never will be."""
    if selection.settled:
        return "no candidate left"
    done = sum(one.state == "succeeded" for one in selection.candidates)
    return f"{done}/{len(selection.candidates) + selection.unasked} candidates done"


def losses(selection: Selection) -> str | None:
    """Which candidates were lost, and why; None where none was."""
    told = []
    for state in ("pruned", "failed"):
        lost = [one for one in selection.candidates if one.state == state]
        if lost:
            named = [params_text(one.params) + (f": {one.reason}" if one.reason else "") for one in lost[:TOLD]]
            more = [f"and {len(lost) - TOLD} more"] if len(lost) > TOLD else []
            told.append(f"{len(lost)} {state} ({'; '.join([*named, *more])})")
    return f"of {len(selection.candidates)} candidates, {', '.join(told)}" if told else None


def choice_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each way to choose, and what the letters mean."""
    lines: dict[str, None] = {}
    keys: set[str] = set()
    for outcome in outcomes:
        selection = outcome.selection
        if selection is not None:
            score = f"dev {selection.metric.name}" if selection.metric is not None else "dev score"
            sweep = selection.sweep
            lines[f"chosen by the best mean {score} over the seeds, {_searched(sweep.search)} {sweep}"] = None
            keys |= sweep.space.keys()
    letters = [f"{letter}: {key}" for key, letter in LETTERS.items() if key in keys]
    return [*lines, *([", ".join(letters)] if letters else [])]


def _searched(search: Search) -> str:
    pruner = f" with the {search.pruner} pruner" if search.pruner != "none" else ""
    if search.sampler == "grid":
        return f"of the grid{pruner}"
    seed = f", seed {search.seed}" if search.seed else ""
    return f"of {search.candidates} candidates by {search.sampler}{seed}{pruner} from"


def candidate_record(candidate: Candidate) -> dict[str, Any]:
    """A candidate as plain values."""
    return {
        "params": dict(candidate.params),
        "state": candidate.state,
        "reason": candidate.reason,
        "dev": candidate.dev,
        "n": candidate.n,
        "trials": [trial.id for trial in candidate.trials],
    }
