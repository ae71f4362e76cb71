"""The ranking of a table's rows over its columns."""

from __future__ import annotations

from dropbench.db.queries.blocks import BASELINE, Block, condition_versions
from dropbench.db.queries.marks import OLDER
from dropbench.db.queries.rank import Ranking, Runs, rank_blocks
from dropbench.db.report.view.view import View, baselines
from dropbench.harness.files import canonical_json
from dropbench.harness.regularizers.spec import spec_label


def ranking_of(view: View) -> Ranking:
    """Rank the rows over the columns, each a block, as `dropbench compare --rank` ranks regularizers over blocks."""
    ranking = rank_blocks(blocks_of(view), [])
    older = {cell.row for cell in view.cells.values() if cell.older_rule}
    for row in ranking.rows:
        row["mark"] = OLDER if row["regularizer"] in older else None
    return ranking


def blocks_of(view: View) -> dict[Block, Runs]:
    """Return the columns as blocks with the runs of their rows. Seeds share a split: they are no blocks of their own.

    If a column has several baselines, such as one per model, each starts a block, and rows are regularizers.
    """
    baseline_of = baselines(view)
    bases = list(dict.fromkeys(cell.row for cell in view.cells.values() if cell.cell.baseline))
    blocks: dict[Block, Runs] = {}
    for position, cell in view.cells.items():
        values = [seed.value for seed in cell.averaged if seed.value is not None]
        base = cell if cell.cell.baseline else baseline_of.get(position)
        if not values or base is None:
            continue
        request = cell.cell.request
        versions = condition_versions(cell.result_versions)
        label = cell.row if len(bases) == 1 else spec_label(request.regularizer, dict(cell.regularizer))
        name = (BASELINE if cell.cell.baseline else label,)
        place = canonical_json({"column": cell.column, "baseline": base.row})
        names = request.task, request.data, request.model, view.preset, place, cell.fingerprint or ""
        block = Block(*names, cell.metric.name, result_versions=versions)
        blocks.setdefault(block, {}).setdefault(name, []).append(values)
    return blocks
