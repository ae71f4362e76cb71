"""A table of three rows and two columns: its numbers worked out here by hand, its text in every format."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from rich.console import Console

from db.report.formats import as_csv, as_json, as_latex, as_markdown
from db.report.layout import long_grid, number, wide_grid
from db.report.terminal import print_table
from db.report.view import Asked, Outcome, View, build, metric_of
from db.snapshot import Snapshot
from db.store import Store
from harness.errors import InputError
from harness.regularizers.spec import RegularizerSpec
from harness.suite import Cell, Choice, Suite, parse_suite
from harness.task import Metric
from harness.trial import Trial

Make = Callable[..., Trial]
EVIL = '\x1b[31mred\x1b[0m [bold]x[/bold] | 50% & <b>_$#{}^~\\ `c` *s*\nnew, "q"'
ACCURACY, LOSS = Metric("accuracy"), Metric("perplexity", higher_is_better=False, unit="")


def make_suite(columns: Sequence[str] = ("TREC", "MR"), title: str = "A table", label: str = "dropkey 0.3") -> Suite:
    data = {"TREC": "trec", "MR": "mr"}
    published = {"TREC": (88.4, [90.0, 0.5], None), "MR": (76.0, None, 77.0)}
    return parse_suite(
        {
            "title": title,
            "source": "these tests",
            "metric": "accuracy",
            "trial": {"task": "text-classification", "model": "text-transformer"},
            "columns": [{"label": column, "trial": {"data": data[column]}} for column in columns],
            "rows": [
                {"label": "none", "baseline": True, "trial": {"regularizer": "none"},
                 "published": [published[column][0] for column in columns]},
                {"label": label, "trial": {"regularizer": "dropkey", "params": {"ratio": 0.3}},
                 "published": [published[column][1] for column in columns]},
                {"label": "dropkey 0.5", "trial": {"regularizer": "dropkey", "params": {"ratio": 0.5}},
                 "published": [published[column][2] for column in columns]},
            ],
            "presets": {"mini": {"seeds": 3}, "paper": {"seeds": 5}},
        },
        "mine", "mine.yaml",
    )  # fmt: skip


def ask(suite: Suite, make_trial: Make, choice: Choice | None = None) -> list[Asked]:
    """The trials as a task would make them."""
    asked = []
    for cell in suite.cells(choice or Choice()):
        request = cell.request
        spec = RegularizerSpec(name=request.regularizer, params=request.params)
        rest = {"regularizer": spec, "preset": request.preset, "overrides": request.overrides}
        asked.append(Asked(cell, [make_trial(seed, data=request.data, **rest) for seed in cell.seeds]))
    return asked


def fill(store: Store, asked: Sequence[Asked], values: dict[tuple[str, str], Sequence[Any]]) -> None:
    """A number: succeeded with it; None: succeeded without one; a text: failed of it; "": left out of the database."""
    for one in asked:
        for trial, value in zip(one.trials, values.get((one.cell.row, one.cell.column), ("",) * 9), strict=False):
            if isinstance(value, str):
                if value in ("queued", "running", "submitted", "cancelled"):
                    store.record([Snapshot(trial, value)])  # type: ignore[arg-type]
                elif value:
                    store.record([Snapshot(trial, "failed", value)])
            else:
                store.record([Snapshot(trial, "succeeded", None, [], [], [("test/accuracy", -1, value)])])


def view_of(
    store: Store, asked: Sequence[Asked], suite: Suite | None = None, metric: Metric = ACCURACY
) -> View:  # fmt: skip
    def known(cell: Cell) -> Metric:
        return metric

    return build(suite or make_suite(), asked, store, known)


VALUES: dict[tuple[str, str], Sequence[Any]] = {
    ("none", "TREC"): (80.0, 82.0, 87.0),  # mean 83, std sqrt(13)
    ("dropkey 0.3", "TREC"): (82.0, 83.0, 90.0),  # mean 85; paired +2, +1, +3: +2
    ("dropkey 0.5", "TREC"): (79.0, "OutOfMemoryError: no memory", 84.0),  # mean 81.5; paired −1, −3: −2
    ("none", "MR"): (70.0, "queued", "queued"),
    ("dropkey 0.3", "MR"): ("running", 75.0, "submitted"),  # no seed in common: 75 − 70
    ("dropkey 0.5", "MR"): ("queued", "queued", "queued"),
}


@pytest.fixture
def filled(store: Store, make_trial: Make) -> View:
    asked = ask(make_suite(), make_trial)
    fill(store, asked, VALUES)
    return view_of(store, asked)


def cell(view: View, row: str, column: str) -> Outcome:
    return view.cells[row, column]


def drawn(view: View, width: int = 80, **options: Any) -> str:
    file = io.StringIO()
    print_table(view, Console(file=file, width=width, highlight=False, **options))
    return file.getvalue()


def test_numbers(filled: View) -> None:
    base, best, worse = (cell(filled, row, "TREC") for row in ("none", "dropkey 0.3", "dropkey 0.5"))
    assert [base.mean, base.std, base.n] == pytest.approx([83.0, 13**0.5, 3])
    assert (base.delta, base.paired) == (None, 0)
    assert base.delta_published == pytest.approx(83.0 - 88.4)
    assert [best.mean, best.delta, best.paired] == pytest.approx([85.0, 2.0, 3])
    assert [best.published, best.published_std, best.delta_published] == pytest.approx([90.0, 0.5, -5.0])
    assert [worse.n, worse.delta, worse.paired] == pytest.approx([2, -2.0, 2])
    assert (worse.published, worse.delta_published) == (None, None)
    assert [one.best for one in (base, best, worse)] == [False, True, False]
    unpaired = cell(filled, "dropkey 0.3", "MR")
    assert (unpaired.delta, unpaired.paired, unpaired.std, unpaired.best) == (5.0, 0, None, True)
    assert cell(filled, "dropkey 0.5", "MR").mean is None


def test_lower_can_be_better(store: Store, make_trial: Make) -> None:
    asked = ask(make_suite(["TREC"]), make_trial)
    values: dict[tuple[str, str], Sequence[Any]] = {("none", "TREC"): (3.5,), ("dropkey 0.3", "TREC"): (2.25,)}
    fill(store, asked, values)
    view = view_of(store, asked, make_suite(["TREC"]), LOSS)
    # The metric's name only matters for what is shown: the values were stored as the suite calls them.
    assert [one.best for one in view.column("TREC")] == [False, True, False]
    assert "perplexity ↓" in drawn(view)
    assert "2.250 *" in drawn(view)


def test_a_single_result_is_not_the_best_of_anything(store: Store, make_trial: Make) -> None:
    asked = ask(make_suite(), make_trial)
    fill(store, asked, {("none", "TREC"): (80.0, 81.0, 82.0)})
    assert not any(one.best for one in view_of(store, asked).cells.values())


def test_ties_are_all_best(store: Store, make_trial: Make) -> None:
    asked = ask(make_suite(["TREC"]), make_trial)
    fill(store, asked, {("none", "TREC"): (80.0,), ("dropkey 0.3", "TREC"): (80.0,), ("dropkey 0.5", "TREC"): (70.0,)})
    view = view_of(store, asked, make_suite(["TREC"]))
    assert [one.best for one in view.column("TREC")] == [True, True, False]
    assert cell(view, "dropkey 0.3", "TREC").delta == 0.0


def test_long_layout(filled: View) -> None:
    text = drawn(filled, 60)
    assert max(map(len, text.splitlines())) <= 60
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "mine: A table"
    assert lines[1] == "accuracy ↑ n Δ base published Δ"
    assert lines[3:7] == [
        "TREC",
        "none 83.00 ± 3.61 3 88.40 −5.40",
        "dropkey 0.3 85.00 ± 4.36 * 3 +2.00 90.00 ± 0.50 −5.00",
        "dropkey 0.5 81.50 ± 3.54 2/3 [1] −2.00",
    ]
    assert lines[8:12] == [
        "MR",
        "none 70.00 1/3 [2] 76.00 −6.00",
        "dropkey 0.3 75.00 * 1/3 [3] +5.00",
        "dropkey 0.5 queued 77.00",
    ]
    assert "[1] seed 1: failed: OutOfMemoryError: no memory" in lines
    assert "[2] seeds 1, 2: queued" in lines
    assert "[3] seed 0: running; seed 2: submitted" in lines
    assert "source: these tests" in lines
    assert "Δ base: difference to 'none', seed by seed" in lines
    assert "preset mini: a smaller recipe than the published one" in lines
    assert "*: best of its column" in " ".join(lines)


def test_wide_layout_where_it_fits(filled: View) -> None:
    text = drawn(filled, 120)
    assert max(map(len, text.splitlines())) <= 120
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[1] == "TREC ↑ MR ↑"
    assert lines[3:11] == [
        "none 83.00 ± 3.61 (3) 70.00 (1/3 [1])",
        "published (Δ) 88.40 (−5.40) 76.00 (−6.00)",
        "dropkey 0.3 85.00 ± 4.36 (3) * 75.00 (1/3 [2]) *",
        "Δ base +2.00 +5.00",
        "published (Δ) 90.00 ± 0.50 (−5.00)",
        "dropkey 0.5 81.50 ± 3.54 (2/3 [3]) queued",
        "Δ base −2.00",
        "published (Δ) 77.00",
    ]


def test_numbers_stand_below_each_other(store: Store, make_trial: Make) -> None:
    suite = make_suite(["TREC"])
    asked = ask(suite, make_trial)
    fill(
        store,
        asked,
        {("none", "TREC"): (80.0, 82.0, 87.0), ("dropkey 0.3", "TREC"): (81.0,), ("dropkey 0.5", "TREC"): (9.5,)},
    )
    lines = drawn(view_of(store, asked, suite)).splitlines()
    numbers = [re.search(r"\d\.\d\d", line) for line in lines[3:6]]
    assert len({found.start() for found in numbers if found}) == 1
    assert all(numbers)


def test_one_column_has_no_sections(store: Store, make_trial: Make) -> None:
    suite = make_suite(["TREC"])
    asked = ask(suite, make_trial)
    fill(store, asked, VALUES)
    for width in (80, 120):
        lines = drawn(view_of(store, asked, suite), width).splitlines()
        assert lines[3].split() == ["none", "83.00", "±", "3.61", "3", "88.40", "−5.40"]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_numbers_never_break(filled: View, width: int) -> None:
    text = drawn(filled, width)
    told = ["83.00 ± 3.61", "85.00 ± 4.36", "81.50 ± 3.54", "88.40", "−5.40", "+5.00", "90.00 ± 0.50", "[3]"]
    assert [number for number in told if number not in text] == []
    assert "…" not in text


def test_bold_on_a_terminal_star_elsewhere(filled: View) -> None:
    text = drawn(filled, force_terminal=True, color_system="standard")
    assert re.search(r"\x1b\[1m *85\.00 ± 4\.36", text)
    assert not re.search(r"\x1b\[1m *83\.00", text)
    assert "*" not in text
    assert "bold: best of its column" in text
    assert "*: best of its column" in drawn(filled, 120)


def test_nothing_run_yet(store: Store, make_trial: Make) -> None:
    asked = ask(make_suite(), make_trial)
    view = view_of(store, asked)
    assert drawn(view).count("not run") == 6
    for render in (as_markdown, as_latex, as_csv, as_json):
        assert render(view).count("not run") >= 6
    record = json.loads(as_json(view))["cells"][0]
    assert (record["mean"], record["std"], record["n"], record["incomplete"]) == (None, None, 0, "not run")


def test_a_cell_says_why_it_is_empty(store: Store, make_trial: Make) -> None:
    suite = make_suite(["TREC"])
    asked = ask(suite, make_trial)
    fill(store, asked, {("none", "TREC"): ("ValueError: boom",) * 3, ("dropkey 0.3", "TREC"): (None, None, None)})
    store.skip(asked[2].trials[0], "mine", "no token grid")
    lines = [" ".join(line.split()) for line in drawn(view_of(store, asked, suite)).splitlines()]
    assert lines[3] == "none failed [1] 88.40"
    assert lines[4] == "dropkey 0.3 no number [2] 90.00 ± 0.50" or lines[4].startswith("dropkey 0.3 succeeded")
    assert lines[5] == "dropkey 0.5 skipped [3]"
    assert "[1] seeds 0, 1, 2: failed: ValueError: boom" in lines
    assert "[2] seeds 0, 1, 2: succeeded: the run gave no finite accuracy" in lines
    assert "[3] seed 0: skipped: no token grid; seeds 1, 2: not run" in lines


def test_a_cell_without_trials_tells_the_reason(store: Store, make_trial: Make) -> None:
    asked = ask(make_suite(), make_trial)
    asked[1] = Asked(asked[1].cell, (), "data 'mr' is not there")
    lines = [" ".join(line.split()) for line in drawn(view_of(store, asked), 120).splitlines()]
    assert "none not run skipped [1]" in lines
    assert "[1] data 'mr' is not there" in lines


def test_synthetic_data_and_overrides_are_marked(store: Store, make_trial: Make) -> None:
    choice = Choice(data=("trec-synthetic", "mr"), overrides={"lr": 0.5}, preset="paper")
    asked = ask(make_suite(), make_trial, choice)
    fill(store, asked, {("none", "TREC"): (80.0,) * 5})
    view = view_of(store, asked)
    assert cell(view, "none", "TREC").delta_published is None
    text = drawn(view, 120)
    assert "TREC (synthetic)" in text
    assert "MR (synthetic)" not in text
    assert "not comparable with published numbers" in text
    assert "recipe overridden: lr=0.5" in text
    assert "preset" not in text
    assert "synthetic" in as_markdown(view)
    assert "synthetic" in as_latex(view)
    assert [one["synthetic"] for one in json.loads(as_json(view))["cells"]][:2] == [True, False]


def test_rows_of_the_same_label(store: Store, make_trial: Make) -> None:
    suite = make_suite(["TREC"])
    asked = ask(suite, make_trial, Choice(regularizers=("dropkey:ratio=0.3", "none", "dropout:ratio=0.1")))
    asked[3] = Asked(asked[3].cell.model_copy(update={"row": "dropkey 0.3"}), asked[3].trials)  # the very same trials
    asked[5] = Asked(asked[5].cell.model_copy(update={"row": "dropkey 0.3"}), asked[5].trials)  # other ones
    view = view_of(store, asked, suite)
    assert view.rows == ("none", "dropkey 0.3", "dropkey 0.5", "dropkey 0.3 (2)")


def test_the_baseline_is_the_nearest_above(store: Store, make_trial: Make) -> None:
    suite = make_suite(["TREC"])
    asked = ask(suite, make_trial)
    second = asked[1].cell.model_copy(update={"baseline": True})
    asked[1] = Asked(second, asked[1].trials)
    fill(store, asked, VALUES)
    view = view_of(store, asked, suite)
    assert cell(view, "dropkey 0.3", "TREC").delta is None
    assert cell(view, "dropkey 0.5", "TREC").delta == pytest.approx(((79 - 82) + (84 - 90)) / 2)


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


def test_text_from_outside_stays_text(store: Store, make_trial: Make) -> None:
    suite = make_suite(["TREC"], title=EVIL, label=EVIL)
    asked = ask(suite, make_trial)
    fill(store, asked, {(EVIL, "TREC"): (EVIL, 80.0, 81.0), ("none", "TREC"): (70.0, 71.0, 72.0)})
    view = view_of(store, asked, suite)
    harmless = 'red [bold]x[/bold] | 50% & <b>_$#{}^~\\ `c` *s* new, "q"'
    text = drawn(view, 200, force_terminal=True, color_system="standard")
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


def test_wide_and_long_tell_the_same_notes(filled: View) -> None:
    assert sorted(wide_grid(filled).notes) == sorted(long_grid(filled).notes)


@pytest.mark.parametrize(
    ("value", "signed", "text"),
    [
        (88.399, False, "88.40"),
        (-0.001, True, "0.00"),
        (-1.5, True, "−1.50"),
        (0.004, True, "0.00"),
        (2, True, "+2.00"),
    ],
)
def test_number(value: float, signed: bool, text: str) -> None:
    assert number(value, ACCURACY, signed=signed) == text
    assert number(None, ACCURACY) == ""
    assert number(0.12345, LOSS) == "0.123"


def test_metric_of_a_real_task() -> None:
    (first, *_) = make_suite().cells(Choice())
    assert metric_of(first) == Metric("accuracy", higher_is_better=True, unit="%")
    with pytest.raises(InputError, match="unknown metric of text-classification 'acuracy': did you mean accuracy"):
        metric_of(first.model_copy(update={"metric": "acuracy"}))
