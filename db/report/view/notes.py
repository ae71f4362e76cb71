"""Notes on a table: how its recipes differ from those of its source, and how swept cells were selected."""

from __future__ import annotations

from collections.abc import Iterator

from dropbench.db.report.view.view import View
from dropbench.db.tuning.select import Selection
from dropbench.harness.suites.budget import Budget, compare_budgets
from dropbench.harness.suites.search_space import Params, Search, short_key
from dropbench.harness.trials.recipe_diff import PAPER, summarize_changes

LETTERS = {"ratio": "p", "window": "w"}
"""Abbreviations used by the tables of DropAttention."""
OURS = "DropBench"
"""Begins the source of a suite that no paper has, and whose recipe therefore differs from none."""
MAX_NAMED = 3
"""Lost candidates that a note names per state; the others are counted."""


def recipe_lines(view: View) -> list[str]:
    """Return one line on all keys that differ, and one for each deviation of the tasks from the source."""
    smaller = f"preset {view.preset}: a smaller recipe"
    if not view.request.has_paper:
        return []
    published = any(result.published is not None for result in view.cells.values())
    if not published and (view.preset != PAPER or view.request.suite.source.startswith(OURS)):
        return [smaller] if view.preset != PAPER else []
    cells = [result.cell for result in view.cells.values() if result.cell.changes is not None]
    deviations = dict.fromkeys(note for cell in cells for note in cell.deviations)
    summary = ", ".join(summarize_changes(change for cell in cells for change in cell.changes or ()))
    if view.preset != PAPER:
        head = [f"{smaller} than the published one" + (f": {summary}" if summary else "")]
    else:
        head = [f"unlike the published recipe: {summary}"] if summary and published else []
    return [*head, *(f"unlike the source: {note}" for note in deviations)]


def params_text(params: Params | None) -> str:
    """Return parameters as ``p=0.3, w=2``; "" for None."""
    return ", ".join(f"{LETTERS.get(key, short_key(key))}={value}" for key, value in (params or {}).items())


def progress_text(selection: Selection) -> str:
    """Return the text shown in place of a number while no candidate is selected."""
    if selection.settled:
        return "no candidate left"
    done = sum(candidate.state == "succeeded" for candidate in selection.candidates)
    return f"{done}/{len(selection.candidates) + selection.remaining} candidates done"


def lost_candidates(selection: Selection) -> str | None:
    """Return a note on pruned and failed candidates with their reasons; None if there are none."""
    parts = []
    for state in ("pruned", "failed", "skipped"):
        lost = [candidate for candidate in selection.candidates if candidate.state == state]
        names = [
            params_text(candidate.params) + (f": {candidate.reason}" if candidate.reason else "")
            for candidate in lost[:MAX_NAMED]
        ]
        if len(lost) > MAX_NAMED:
            names.append(f"and {len(lost) - MAX_NAMED} more")
        if lost:
            parts.append(f"{len(lost)} {state} ({'; '.join(names)})")
    return f"of {len(selection.candidates)} candidates, {', '.join(parts)}" if parts else None


def selection_lines(view: View) -> list[str]:
    """Return one line per selection criterion, a legend of the letters, and the budgets of a tuned preset."""
    metrics: dict[tuple[str, str], dict[str, None]] = {}  # of each source of candidates
    keys: set[str] = set()
    tuned = view.request.tuned  # each row has as many candidates
    for selection in (result.selection for result in view.cells.values() if result.selection is not None):
        sweep = selection.sweep
        source = "each row's candidates" if tuned else f"{_search_text(sweep.search)} {sweep}"
        seeds = f"seeds {', '.join(map(str, sweep.seeds))}" if sweep.seeds else "the seeds"
        names = metrics.setdefault((source, seeds), {})
        if selection.metric is not None:
            names[selection.metric.name] = None
        keys |= sweep.space.keys()
    lines = [
        f"chosen: best mean dev {name} over {seeds}, from {source}"
        for (source, seeds), names in metrics.items()
        for name in names or {"score": None}
    ]
    letters = ", ".join(f"{letter}: {key}" for key, letter in LETTERS.items() if key in keys)
    budgets, equal = compare_budgets(_budgets(view))
    return [*lines, *filter(None, [letters]), *([budgets] if tuned or (lines and not equal) else [])]


def _budgets(view: View) -> Iterator[tuple[str, Budget]]:
    """Yield the row and the budget of each cell."""
    for result in view.cells.values():
        selection = result.selection
        if selection is None and not result.hidden and {seed.state for seed in result.seeds} <= {"skipped"}:
            continue  # the regularizer does not fit the cell
        candidates = len(selection.candidates) + selection.remaining if selection is not None else 1
        tuning_seeds = len(selection.sweep.seeds) if selection is not None else 0
        yield result.row, Budget(candidates, tuning_seeds, len(result.cell.seeds))


def _search_text(search: Search) -> str:
    pruner = f" with the {search.pruner} pruner" if search.pruner != "none" else ""
    if search.sampler == "grid":
        return f"the grid{pruner}"
    if search.sampler == "staged":
        return "one key after the other of"
    seed = f", seed {search.seed}" if search.seed else ""
    return f"{search.candidates} candidates by {search.sampler}{seed}{pruner} in"
