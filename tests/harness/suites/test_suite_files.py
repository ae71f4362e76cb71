"""Suite files: whatever is wrong is reported when the file is read, in one line with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite

VALID = """\
title: A table
source: these tests
metric: accuracy
figure: {kind: curves, over: ratio}
trial: {task: text-classification, model: text-transformer}
columns:
  - {label: A, trial: {data: trec}}
  - label: B
    trial:
      data: mr
rows:
  - {label: base, baseline: true, trial: {regularizer: none}, published: [1.0, [2, 0.5]]}
  - label: drop
    trial: {regularizer: dropkey, params: {window: 2}, overrides: {lr: 0.1}, weights: null}
    params: [{ratio: 0.1}, null]
    presets: {mini: {epochs: 2}}
presets:
  mini: {seeds: 2, data: [trec]}
"""
DEEP = "[" * 50_000


def load(folder: Path, content: str | bytes) -> None:
    """Read a suite with this content, and make its cells."""
    file = folder / "mine.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert list(load_suite(str(file)).cells(SuiteOptions()))


def test_the_valid_file_is_read(tmp_path: Path) -> None:
    load(tmp_path, VALID)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: A table", "name: mine\ntitle: A table", "yaml:1: name: a suite is named after its file: remove"),
        ("title: A table", "title: 1", "yaml:1: title=1: input should be a valid string"),
        ("title: A table\n", "", "title: field required"),
        ("title: A table\nsource: these tests\n", "", "yaml:1: title, source: fields required$"),
        ("source:", "sauce:", "unknown key in .*yaml:2 'sauce': did you mean source"),
        ("trial: {regularizer: dropkey", "trial: {\tregulariser: dropkey", "yaml:14 at rows.1.trial 'regulariser'"),
        ("source:", "1:", "yaml:2: 1=1: keys should be strings"),
        ("source:", "[1, 2]:", "yaml:2: not valid YAML: found unhashable key"),
        ("these tests", "!!int x", "yaml: not valid YAML: invalid literal"),
        ("these tests", "!!bool x", "yaml: not valid YAML"),
        ("these tests", "!!timestamp x", "yaml: not valid YAML"),
        ("these tests", "2020-02-31", "yaml: not valid YAML: day is out of range"),
        ("these tests", "[", "yaml:4: not valid YAML: did not find expected"),
        ("these tests", DEEP, "yaml.*: not valid YAML"),
        ("trial: {task: text-classification, model: text-transformer}", "trial: null", "yaml:5: trial: input"),
        ("model: text-transformer", "model: 3", "yaml:5: trial.model=3: input should be a valid string"),
        ("model: text-transformer", "modle: x", "unknown key in .*yaml:5 at trial 'modle': did you mean model"),
        (", model: text-transformer", "", "yaml:12: row 'base', column 'A': no model in trial"),
        (
            "task: text-classification, model: text-transformer",
            "",
            "yaml:12: row 'base', column 'A': no task, model in",
        ),
        ("data: mr", "data: [mr]", "yaml:10: columns.1.trial.data: input should be a valid string"),
        ("    trial:\n      data: mr\n", "", "yaml:11: .*column 'B': no data|yaml:10: .*column 'B': no data"),
        ("{window: 2}", "window", "yaml:14: rows.1.trial.params=window: input should be a valid dictionary"),
        ("{window: 2}", "[2]", "yaml:14: rows.1.trial.params: input should be a valid dictionary"),
        ("{window: 2}", "null", "yaml:14: rows.1.trial.params: input should be a valid dictionary"),
        ("{window: 2}", "{window: null}", "yaml:14: rows.1.trial.params.window.*: expected text, true, false"),
        ("{window: 2}", "{window: .nan}", "yaml:14: rows.1.trial.params.window.*: expected text, true, false"),
        ("{window: 2}", "{window: 0x" + "f" * 5000 + "}", "yaml:14: rows.1.trial.params.window: expected"),
        ("{window: 2}", "{1: 2}", "yaml:14: rows.1.trial.params.1.*: input should be a valid string"),
        ("{lr: 0.1}", "lr=0.1", "yaml:14: rows.1.trial.overrides=lr=0.1: input should be a valid dictionary"),
        ("{lr: 0.1}", "{lr: [0.1]}", "yaml:14: rows.1.trial.overrides.lr: expected text, true, false"),
        ("[1.0, ", "[.nan, ", "yaml:12: rows.0.published.0.*: input should be a finite number"),
        ("[1.0, ", "['1', ", "yaml:12: rows.0.published.0.*=1: input should be a valid number"),
        ("[2, 0.5]", "[2]", "yaml:12: rows.0.published.1"),
        ("[{ratio: 0.1}, null]", "[3, null]", "yaml:15: rows.1.params.0=3: input should be a valid dictionary"),
        ("[{ratio: 0.1}, null]", "[null]", "yaml:15: row 'drop': params has 1 entries, expected 2"),
        ("figure:", "sweep: {ratio: []}\nfigure:", "yaml:4: sweep.ratio.list: expected a list of values, or a range"),
        ("figure:", "sweep: {ratio: 0.1}\nfigure:", "yaml:4: sweep.ratio.list=0.1: expected a list of values, or a"),
        ("figure:", "sweep: {ratio: {low: 0.1}}\nfigure:", "yaml:4: sweep.ratio.range.high: field required"),
        ("over: ratio", "over: ratoi", "yaml:4: figure.over: dropkey has no parameter ratoi"),
        ("over: ratio", "over: 3", "yaml:4: figure.over=3: input should be a valid string"),
        ("label: B", "label: A", "yaml:8: columns: a second label 'A'"),
        ("seeds: 2", "seeds: '2'", "yaml:18: presets.mini.seeds=2: input should be a valid integer"),
        ("seeds: 2", "seeds: true", "yaml:18: presets.mini.seeds=True: input should be a valid integer"),
        (VALID[VALID.index("rows:") : VALID.index("presets:\n")], "rows: []\n", "yaml:11: rows: list should have at"),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert VALID.count(old) == 1
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path, VALID.replace(old, new))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a mapping"),
        (b"- a", "expected a mapping"),
        (b"title: \xff", "not valid YAML: 'utf-8' codec can't decode"),
        (b"title: \0", "not valid YAML"),
        (b"a: &a [*a]", "not valid YAML|unknown key|required"),
    ],
)
def test_a_file_that_is_no_suite_is_reported(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(tmp_path, content)
