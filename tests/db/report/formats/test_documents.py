"""The table of a suite as Markdown, LaTeX, CSV, JSON and Parquet: numbers, form and escaping."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from scipy import stats

from dropbench.db.report.formats.documents import as_csv, as_json, as_latex, as_markdown
from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store
from tests.db.report import tables
from tests.db.report.tables import Values
from tests.paths import DOCS

EVIL = '\x1b[31mred\x1b[0m [bold]x[/bold] | 50% & <b>_$#{}^~\\ `c` *s*\nnew, "q"'


def test_before_any_run(store: Store) -> None:
    view = tables.filled(store, {})
    assert tables.printed(view).count("not run") == 6
    for render in (as_markdown, as_latex, as_csv, as_json):
        assert render(view).count("not run") >= 6
    record = json.loads(as_json(view))["cells"][0]
    assert (record["mean"], record["std"], record["n"], record["incomplete"]) == (None, None, 0, "not run")


def test_csv_has_the_numbers_in_full(filled: View) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(filled))))
    assert len(rows) == 6
    first = rows[2]
    assert (first["row"], first["column"], first["data"]) == ("dropkey 0.3", "TREC", "trec")
    assert float(first["mean"]) == pytest.approx(85.0)
    assert float(first["std"]) == pytest.approx(19**0.5)
    assert (first["n"], first["seeds"], first["best"], first["published_std"]) == ("3", "3", "true", "0.5")
    assert json.loads(first["params"]) == {"ratio": 0.3}
    assert rows[5]["mean"] == ""
    assert rows[5]["incomplete"] == "queued"


def test_equal_differences_have_no_interval_and_the_reason_in_every_format(store: Store) -> None:
    """93.4 − 93.2 and 82.6 − 82.4 are one difference to a reader, and two floating-point numbers."""
    rows = {"none": (93.2, 82.4, 87.0), "dropkey 0.3": (93.4, 82.6, 87.2), "dropkey 0.5": (80.0, 81.0)}
    view = tables.filled(store, {(row, "TREC"): seeds for row, seeds in rows.items()}, tables.suite(["TREC"]))
    for text in (tables.printed(view), as_markdown(view), as_latex(view)):
        lines = [" ".join(line.split()) for line in text.replace("\\", "").replace("{[}", "[").splitlines()]
        assert sum("+0.20 [equal differences" in line for line in lines) == 1, text
        assert sum("equal differences: no confidence interval or p-value" in line for line in lines) == 1
    records = json.loads(as_json(view))["cells"]
    assert [record["no_interval"] for record in records] == [None, "equal differences", "fewer than 3 pairs"]
    assert [(record["delta_low"], record["delta_high"], record["p_value"]) for record in records] == [(None,) * 3] * 3
    assert [row["no_interval"] for row in csv.DictReader(io.StringIO(as_csv(view)))][1] == "equal differences"


def test_json_has_everything(filled: View) -> None:
    content = json.loads(as_json(filled))
    assert (content["suite"], content["preset"], content["columns"]) == ("mine", "mini", ["TREC", "MR"])
    assert content["rows"] == ["none", "dropkey 0.3", "dropkey 0.5"]
    record = content["cells"][4]
    assert (record["row"], record["column"], record["n"], record["seeds"]) == ("dropkey 0.5", "TREC", 2, 3)
    assert record["states"] == {"succeeded": 2, "failed": 1}
    assert record["incomplete"] == "seed 1: failed: OutOfMemoryError: no memory"
    assert [trial["value"] for trial in record["trials"]] == [79.0, None, 84.0]
    assert (record["higher_is_better"], record["unit"], record["delta"]) == (True, "%", pytest.approx(-2.0))
    assert (record["paired"], record["delta_low"], record["p_value"]) == (2, None, None)
    theirs = stats.ttest_rel([82.0, 83.0, 90.0], [80.0, 82.0, 87.0])
    low, high = theirs.confidence_interval(0.95)
    paired = content["cells"][2]
    assert (paired["delta"], paired["paired"]) == (pytest.approx(2.0), 3)
    assert [paired["delta_low"], paired["delta_high"], paired["p_value"]] == pytest.approx([low, high, theirs.pvalue])


def test_every_field_of_a_record_is_documented(filled: View) -> None:
    _, _, text = (DOCS / "reading-tables.md").read_text(encoding="utf-8").partition("| field of a record |")
    documented = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|(.*?) \|", text, re.MULTILINE)))
    assert sorted(documented) == sorted(json.loads(as_json(filled))["cells"][0])


def test_markdown_is_a_table(filled: View) -> None:
    lines = [line for line in as_markdown(filled).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {4}
    assert lines[0] == "|  | TREC ↑ | MR ↑ |"
    assert lines[2] == r"| none | 83.00 ± 3.61 (3) | 70.00 (1/3 \[1\]) |"
    assert lines[4] == r"| dropkey 0.3 | **85.00 ± 4.36 (3)** | **75.00 (1/3 \[2\])** |"
    assert "3. seed 1: failed: OutOfMemoryError: no memory" in as_markdown(filled)


def test_latex_is_balanced(filled: View) -> None:
    text = as_latex(filled)
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    assert r"dropkey 0.3 & \textbf{85.00 $\pm$ 4.36 (3)} & \textbf{75.00 (1/3 {[}2{]})} \\" in text
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in body.splitlines() if line.endswith(r"\\")} == {2}
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0


def test_untrusted_text_is_escaped(store: Store) -> None:
    values: Values = {(EVIL, "TREC"): (EVIL, 80.0, 81.0), ("none", "TREC"): (70.0, 71.0, 72.0)}
    view = tables.filled(store, values, tables.suite(["TREC"], title=EVIL, label=EVIL))
    harmless = 'red [bold]x[/bold] | 50% & <b>_$#{}^~\\ `c` *s* new, "q"'
    text = tables.drawn(view, 200)
    assert harmless in re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "\x1b[31m" not in text
    markdown = as_markdown(view)
    assert r"red \[bold\]x\[/bold\] \| 50% \& \<b\>\_\$#{}^\~\\ \`c\` \*s\* new" in markdown
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in markdown.splitlines() if line.startswith("|")} == {7}
    latex = as_latex(view)
    assert r"{[}bold{]}x{[}/bold{]} \textbar{} 50\% \& \textless{}b\textgreater{}\_\$\#\{\}" in latex
    rows = list(csv.DictReader(io.StringIO(as_csv(view))))
    assert rows[1]["row"] == harmless
    assert rows[1]["incomplete"] == f"seed 0: failed: {harmless}"
    assert json.loads(as_json(view))["rows"][1] == EVIL
    for output in (text.replace("\x1b[", ""), markdown, latex, as_csv(view)):
        assert "\x1b" not in output
