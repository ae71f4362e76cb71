"""Tuning budgets of rows: how many candidates a row chooses from, and with how many seeds each is trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dropbench.harness.errors import count_of
from dropbench.harness.suites.cell import Cell


class Budget(NamedTuple):
    """The budget of a cell.

    Attributes:
        candidates: number of configurations that it chooses from; 1 without a sweep.
        tuning_seeds: number of seeds of each candidate that the table does not show; 0: it has those of the table.
        seeds: number of seeds of the table.
    """

    candidates: int
    tuning_seeds: int
    seeds: int

    @property
    def trials(self) -> int:
        """Return the number of trials."""
        return self.candidates * (self.tuning_seeds or self.seeds) + (self.seeds if self.tuning_seeds else 0)

    def __str__(self) -> str:
        """Return, for example, ``5 candidates × 2 seeds for tuning, then 3 seeds``."""
        candidates = f"{count_of(self.candidates, 'candidate')} × "
        if not self.tuning_seeds:
            return candidates + count_of(self.seeds, "seed")
        return f"{candidates}{count_of(self.tuning_seeds, 'seed')} for tuning, then {count_of(self.seeds, 'seed')}"


def budget_of(cell: Cell) -> Budget:
    """Return the budget of a cell as it is requested."""
    sweep = cell.sweep
    return Budget(sweep.size if sweep is not None else 1, len(sweep.seeds) if sweep is not None else 0, len(cell.seeds))


def compare_budgets(budgets: Iterable[tuple[str, Budget]]) -> tuple[str, bool]:
    """Return a line on the budgets of cells, each with the label of its row, and whether they are equal."""
    rows: dict[Budget, dict[str, None]] = {}
    for row, budget in budgets:
        rows.setdefault(budget, {})[row] = None
    ordered = sorted(rows.items(), key=lambda item: (-len(item[1]), -item[0].candidates))
    if len(ordered) < 2:
        return f"budget of each cell: {''.join(str(budget) for budget, _ in ordered)}", True
    others = "; ".join(f"{budget} for {', '.join(names)}" for budget, names in ordered[1:])
    return f"unequal budgets: {others}; {ordered[0][0]} for the others", False


def budget_lines(cells: Iterable[Cell]) -> list[str]:
    """Return lines on the budgets of requested cells, with a warning if those of rows differ; none without a sweep."""
    cells = list(cells)
    budgets = [(cell.row, budget_of(cell)) for cell in cells]
    if not any(budget.candidates > 1 for _, budget in budgets):
        return []
    line, equal = compare_budgets(budgets)
    # Columns that show several metrics of the same trials count once.
    total = sum({(cell.row, cell.request.model_dump_json()): budget_of(cell).trials for cell in cells}.values())
    lines = [f"{line}; {count_of(total, 'trial')} in all"]
    return lines if equal else [*lines, "warning: unequal budgets favour the rows with more candidates"]
