"""The ranking of a table's rows over its columns."""

from __future__ import annotations

from db.queries.blocks import BASELINE, Block, condition_versions
from db.queries.rank import Ranking, Runs, rank_blocks
from db.report.view.view import View, baselines
from harness.files import canonical_json
from harness.regularizers.spec import spec_label


def ranking_of(view: View) -> Ranking:
    """Rank the rows over the columns, each a block, as `dropbench rank` ranks regularizers over blocks.

    If a column has several baselines, such as one per model, each starts a block, and rows are regularizers.
    """
    baseline_of = baselines(view)
    bases = list(dict.fromkeys(cell.row for cell in view.cells.values() if cell.cell.baseline))
    blocks: dict[Block, Runs] = {}
    for position, cell in view.cells.items():
        seeds = [seed.value for seed in cell.averaged if seed.value is not None]
        base = cell if cell.cell.baseline else baseline_of.get(position)
        if not seeds or base is None:
            continue
        request = cell.cell.request
        place = canonical_json({"column": cell.column, "baseline": base.row})
        versions = condition_versions(cell.result_versions)
        names = request.task, request.data, request.model, view.preset, place, cell.fingerprint or "", cell.metric.name
        block = Block(*names, result_versions=versions)
        label = cell.row if len(bases) == 1 else spec_label(request.regularizer, dict(cell.regularizer))
        name = (BASELINE if cell.cell.baseline else label,)
        blocks.setdefault(block, {}).setdefault(name, []).append(seeds)
    return rank_blocks(blocks, [])
