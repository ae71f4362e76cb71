"""Critical-difference diagrams, as `dropbench compare --rank` draws them."""

from __future__ import annotations

import re
from pathlib import Path

from dropbench.db.queries.rank import Ranking
from dropbench.db.report.figures.critical_difference import critical_difference_diagram
from dropbench.db.store.rows import Row
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import open_store
from dropbench.harness.regularizers.spec import RegularizerSpec
from tests.db.conftest import Call
from tests.db.records import make_trial


def test_a_critical_difference_diagram(call: Call, folder: Path) -> None:
    nothing = call("compare", "--rank", "--format", "svg")
    assert (nothing.code, "no critical-difference diagram: " in nothing.err) == (2, True)
    with open_store("sqlite:///dropbench.db") as store:
        for number, name in enumerate(("none", "dropkey", "dropout")):
            for block in range(6):
                trial = make_trial(0, data=f"set-{block}", regularizer=RegularizerSpec(name=name))
                store.record([RunRecord(trial, "succeeded", metrics=[("test/accuracy", -1, 80.0 + number)])])
    drawn = call("compare", "--rank", "--format", "svg").out
    assert all(f">{name}</text>" in drawn for name in ("none", "dropkey", "dropout"))
    assert "critical difference 1.35; 6 blocks" in drawn
    assert "expected a file" in call("compare", "--rank", "--format", "png").err
    assert call("compare", "--rank", "--format", "png", "-o", "cd.png").code == 0
    assert Path("cd.png").read_bytes().startswith(b"\x89PNG")
    lines = [" ".join(line.split()) for line in call("compare", "--rank").out.splitlines()]
    assert any(line.startswith("dropout 1.00 a 6/6 ") for line in lines)


def test_labels_fit_beside_the_diagram() -> None:
    """A registered composition has its own name, and a long one is cut."""
    names = ["none", "hiddenkey", "dropkey + drophead + value-dropout"]
    rows: list[Row] = [{"regularizer": name, "rank": 1.0 + index} for index, name in enumerate(names)]
    ranking = Ranking(rows, 6, friedman={"p": 0.01}, critical_difference=1.35)
    drawn = critical_difference_diagram(ranking, "svg").decode()
    assert {"none", "hiddenkey", "dropkey + drophead + value-dr…"} <= set(re.findall(r">([^<>]+)</text>", drawn))
