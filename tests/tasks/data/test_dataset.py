"""The catalog: every card is valid and complete, and cards are parsed on demand."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.registry import PLUGIN_MODULES, Loading, load, loading
from dropbench.tasks.data import DATASETS, locate, read_any
from dropbench.tasks.data.dataset import Catalog, read_card
from dropbench.tasks.data.synthetic_cache import write_synthetic
from tests.input_errors import one_line
from tests.paths import ROOT

ALL = list(DATASETS)
CARDS = ROOT / "tasks" / "data" / "cards"
TREC = (CARDS / "trec.yaml").read_text(encoding="utf-8")
TABLES = {
    "DropAttention, Table 2": {
        name: {"all": rows}
        for name, rows in (
            ("cr", 3993), ("trec", 5052), ("subj", 10000), ("mr", 10661), ("ag-news", 127600), ("yelp13", 335018),
        )
    },
    "DropAttention, Table 4": {
        "conll2000": {"train": 211727, "test": 47377},
        "conll2003": {"train": 204567, "dev": 51578, "test": 46666},
        "ptb": {"train": 912344, "dev": 131768, "test": 129654},
    },
}  # fmt: skip
OF_ANY_SIZE = ("enwiki", "humbi", "text")


@pytest.mark.parametrize("name", ALL)
def test_entry_is_complete(name: str) -> None:
    dataset = DATASETS.get(name)
    assert dataset.name == name
    assert dataset.help
    assert dataset.home.startswith("docs/data.md#" if dataset.card else "http")
    assert dataset.origin
    assert dataset.licence
    assert dataset.splits
    assert dataset.published or dataset.card or name in OF_ANY_SIZE
    assert {entry.split for entry in dataset.published} <= {"train", "dev", "test", "all"}
    assert len(dataset.class_names) in (0, dataset.classes)
    for target in (*(layout.reader for layout in dataset.layouts), dataset.synthetic):
        assert not target or callable(load(target))
    for part in (dataset.folder, *(file for layout in dataset.layouts for file in layout.files)):
        assert not part.startswith("/")
        assert ".." not in part.split("/")


def test_published_numbers_are_those_of_dropattention() -> None:
    for table, sets in TABLES.items():
        published = {name: [one for one in DATASETS.get(name).published if one.where == table] for name in sets}
        assert {name: {one.split: one.count for one in entries} for name, entries in published.items()} == sets
    places = {(DATASETS.get(name).folder, DATASETS.get(name).layouts[0].files) for name in ALL}
    assert len(places) == len(ALL)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        InputError, match=r"unknown data 'trek': did you mean trec.*\? \(your own: csv:NAME, .*FILE`\)$"
    ):
        DATASETS.get("trek")
    assert {name for name in DATASETS if DATASETS.get(name).card} == set(re.findall("([a-z-]+):NAME", DATASETS.own))


def test_knowing_the_sets_imports_no_large_library() -> None:
    code = (
        "import sys, dropbench.tasks.commands, dropbench.tasks.data, dropbench.tasks.data.check;"
        "print([name for name in ('torch', 'sklearn', 'pandas', 'numpy', 'PIL', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_card_is_a_set_of_the_same_name() -> None:
    assert sorted(ALL) == sorted(file.stem for file in CARDS.iterdir())
    for name in ALL:
        assert read_card(CARDS / f"{name}.yaml") == DATASETS.get(name)
        assert len((CARDS / f"{name}.yaml").read_text(encoding="utf-8").splitlines()) <= 60


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    for name in ("trec", "broken", "digits"):
        text = "layouts: [" if name == "broken" else (CARDS / f"{name}.yaml").read_text(encoding="utf-8")
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    return Catalog(tmp_path)


def test_a_card_is_parsed_when_its_set_is_asked_for(catalog: Catalog) -> None:
    assert list(catalog) == ["broken", "digits", "trec"]
    assert len(catalog) == 3
    assert catalog.get("trec") is catalog.get("trec-synthetic")
    assert catalog.entry("trec-synthetic").name == "trec"
    assert catalog.entry("trec").facts == {"kind": "text-classification", "classes": 6}
    assert list(catalog) == ["broken", "digits", "trec"]
    with pytest.raises(InputError, match=r"broken\.yaml:2: not valid YAML"):
        catalog.get("broken")


def test_a_plugin_adds_a_set_and_owns_no_card(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dropbench.harness.registry.PLUGIN_MODULES", {*PLUGIN_MODULES, "my_plugin"})

    def run(line: str) -> None:
        exec(line, {"__name__": "my_plugin", "catalog": catalog})  # noqa: S102 - as the module of a plug-in

    token = loading.set(Loading("my.py", frozenset(), [], {}))
    try:
        run("catalog.add('mine', catalog.get('trec'), 'mine-synthetic', help='my own', kind='text-classification')")
        with pytest.raises(ValueError, match="data 'digits' is registered already"):
            run("catalog.add('digits', catalog.get('trec'))")
        with pytest.raises(ValueError, match="data 'trec-synthetic' is registered already"):
            run("catalog.add('other', catalog.get('trec'), 'trec-synthetic')")
    finally:
        loading.reset(token)
    assert list(catalog) == ["broken", "digits", "trec", "mine"]
    assert catalog.entry("mine-synthetic").plugin == "my.py"
    assert catalog.entry("trec").plugin is None


@pytest.mark.parametrize(
    ("line", "wrong", "message"),
    [
        ("folder: trec", "foldr: trec", "unknown key in FILE 'foldr': did you mean folder?"),
        ("split: train", "splitt: train", "unknown key in FILE at published.0 'splitt': did you mean split?"),
        ("folder: trec\n", "", "FILE: folder: field required"),
        ("_text:read_train_test", "_text", "FILE: layouts.0.reader=dropbench.tasks.data.text.labeled_text: expected"),
        ("split: test", "split: tset", "FILE: published.1.split=tset: input should be 'train', 'dev', 'test' or 'all'"),
        ("help:", "name: qc\nhelp:", "FILE: expected a mapping without the key name; the set is named after the file"),
        (TREC, "- trec", "FILE: expected a mapping"),
        (TREC, "help: [trec", "FILE: not valid YAML"),
    ],
)
def test_a_wrong_card_is_an_error_of_one_line(line: str, wrong: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "trec.yaml"
    assert line in TREC
    file.write_text(TREC.replace(line, wrong, 1), encoding="utf-8")
    with one_line() as caught:
        read_card(file)
    assert re.sub(rf"{re.escape(str(file))}(:\d+)?", "FILE", str(caught.value)).startswith(message)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("dropbench.tasks.data.nothing:read", "No module named 'dropbench.tasks.data.nothing'"),
        ("dropbench.tasks.data.read:nothing", "module 'dropbench.tasks.data.read' has no attribute 'nothing'"),
    ],
)
def test_an_unknown_reader_is_an_error_of_one_line(target: str, message: str) -> None:
    source = locate("digits")
    layout = source.layout.model_copy(update={"reader": target})
    with pytest.raises(InputError, match=f"^data 'digits': cannot load {target}: {message}$"):
        read_any(replace(source, layout=layout))
    with pytest.raises(InputError, match=f"data 'trec': cannot load {target}"):
        write_synthetic(DATASETS.get("trec").model_copy(update={"synthetic": target}), Path("unused"), 1)
