"""Texts on swept cells: the selected candidate, the selection criterion, and the candidates that were lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.suites.search_space import Params, Search, short_key

if TYPE_CHECKING:
    from db.report.view.view import CellResult
    from db.tuning.candidates import Candidate, Selection

LETTERS = {"ratio": "p", "window": "w"}
"""Abbreviations used by the tables of DropAttention."""
MAX_NAMED = 3
"""Lost candidates that a note names per state; the others are counted."""


def params_text(params: Params) -> str:
    """Return parameters as ``p=0.3, w=2``."""
    return ", ".join(f"{LETTERS.get(key, short_key(key))}={value}" for key, value in params.items())


def chosen_text(result: CellResult) -> str:
    """Return the parameters of the selected candidate; "" if there is none."""
    return params_text(result.chosen) if result.chosen is not None else ""


def progress_text(selection: Selection) -> str:
    """Return the text shown in place of a number while no candidate is selected."""
    if selection.settled:
        return "no candidate left"
    done = sum(candidate.state == "succeeded" for candidate in selection.candidates)
    return f"{done}/{len(selection.candidates) + selection.remaining} candidates done"


def lost_candidates(selection: Selection) -> str | None:
    """Return a note on pruned and failed candidates with their reasons; None if there are none."""
    parts = []
    for state in ("pruned", "failed"):
        lost = [candidate for candidate in selection.candidates if candidate.state == state]
        if lost:
            names = [
                params_text(candidate.params) + (f": {candidate.reason}" if candidate.reason else "")
                for candidate in lost[:MAX_NAMED]
            ]
            more = [f"and {len(lost) - MAX_NAMED} more"] if len(lost) > MAX_NAMED else []
            parts.append(f"{len(lost)} {state} ({'; '.join([*names, *more])})")
    return f"of {len(selection.candidates)} candidates, {', '.join(parts)}" if parts else None


def selection_lines(results: Sequence[CellResult]) -> list[str]:
    """Return one line per selection criterion, and a legend of the letters."""
    lines: dict[str, None] = {}
    keys: set[str] = set()
    for result in results:
        selection = result.selection
        if selection is not None:
            score = f"dev {selection.metric.name}" if selection.metric is not None else "dev score"
            sweep = selection.sweep
            lines[f"chosen: best mean {score} over the seeds, from {_search_text(sweep.search)} {sweep}"] = None
            keys |= sweep.space.keys()
    letters = [f"{letter}: {key}" for key, letter in LETTERS.items() if key in keys]
    return [*lines, *([", ".join(letters)] if letters else [])]


def _search_text(search: Search) -> str:
    pruner = f" with the {search.pruner} pruner" if search.pruner != "none" else ""
    if search.sampler == "grid":
        return f"the grid{pruner}"
    seed = f", seed {search.seed}" if search.seed else ""
    return f"{search.candidates} candidates by {search.sampler}{seed}{pruner} in"


def candidate_record(candidate: Candidate) -> dict[str, Any]:
    """Return a candidate as plain values."""
    return {
        "params": dict(candidate.params),
        "state": candidate.state,
        "reason": candidate.reason,
        "dev": candidate.dev,
        "n": candidate.n,
        "trials": [trial.id for trial in candidate.trials],
    }
