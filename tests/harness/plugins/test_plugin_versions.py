"""Versions of the entries of plug-ins, and what these consist of."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.plugins.source import read_source
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.settings import Settings
from dropbench.harness.trials.plugins import load_plugins, make_trials
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import TrialRequest
from tests.harness.plugins.plugin_files import HEAD, Write, digest, entry, value
from tests.input_errors import one_line


@pytest.mark.parametrize(
    ("text", "edit", "changed"),
    [
        (entry("a", 1) + entry("b", 1), ("B(PlainAttention)", "B(Regularizer)"), ["b"]),
        (entry("a", 1) + entry("b", 1), (entry("b", 1), "# A comment.\n" + entry("b", 1)), []),
        (entry("a", 1) + entry("b", 1), (entry("b", 1), entry("c", 1) + entry("b", 1)), []),
        ("X = 1\n" + entry("a", 1) + entry("b", 1), ("X = 1", "X = 2"), ["a", "b"]),
        ("X = '\x0c\u2028'\n" + entry("a", 1) + entry("b", 1), ("B(PlainAttention)", "B(Regularizer)"), ["b"]),
        ("X = 'ä'\n" + entry("a", 1) + entry("b", 1), ("ä", "ö"), ["a", "b"]),
        (entry("a", 1) + entry("b", "A.value"), ("= 1", "= 2"), ["a", "b"]),
        (entry("a", 1) + entry("b", "REGULARIZERS.get('a').value"), ("= 1", "= 2"), ["a", "b"]),
        ("for x in 'ab':\n    REGULARIZERS.add(x, Regularizer)\n", ("'ab'", "'ba'"), ["a", "b"]),
        ("REGULARIZERS.add('a', len)\nREGULARIZERS.add('b', len)\n", ("'a', len", "'a', max"), ["a"]),
        ("X = []\n" + entry("a", 1) + "X.append(A)\n" + entry("b", 1), ("= 1", "= 2"), ["a", "b"]),
    ],
)
def test_an_entry_changes_with_what_it_may_depend_on(
    write: Write, text: str, edit: tuple[str, str], changed: list[str]
) -> None:
    write(HEAD + text)
    digests = {name: digest(name) for name in "ab"}
    assert edit[0] in text
    write(HEAD + text.replace(*edit, 1))
    assert [name for name in "ab" if digest(name) != digests[name]] == changed


def test_line_ends_and_the_file_name_make_no_difference(write: Write, tmp_path: Path) -> None:
    file = write(HEAD + entry("a", 1))
    first = digest("a")
    write(HEAD + entry("a", 1), newline="\r\n")
    assert digest("a") == first
    file.rename(tmp_path / "my plug-in.v2.py")
    load_plugins([tmp_path / "my plug-in.v2.py"])  # replaces the entries of the file that is not loaded any more
    assert digest("a") == first
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "a.py").symlink_to(tmp_path / "my plug-in.v2.py")
    load_plugins([tmp_path / "link" / "a.py", tmp_path / "my plug-in.v2.py"])
    assert digest("a") == first


@pytest.mark.parametrize(
    ("helper", "line"),
    [
        ("helper.py", "from helper import VALUE"),
        ("helper.py", "import helper; VALUE = helper.VALUE"),
        ("sub/helper.py", "from sub.helper import VALUE"),
        ("sub/helper.py", "import sub.helper; VALUE = sub.helper.VALUE"),
        ("sub/helper.py", "from sub import helper as other; VALUE = other.VALUE"),
        ("sub/deep/__init__.py", "from sub.deep import *"),
        ("helper.py", "from .helper import VALUE"),
        ("dürfen.py", "from dürfen import VALUE"),
    ],
)
def test_modules_beside_it_belong_to_it(write: Write, tmp_path: Path, helper: str, line: str) -> None:
    """Also after one of them alone was edited."""
    file = tmp_path / helper
    file.parent.mkdir(parents=True, exist_ok=True)
    digests = []
    for number in (1, 2):
        file.write_text(f"VALUE = {number}\n", encoding="utf-8")
        write(f"{HEAD}{line}\n{entry('a', 'VALUE')}")
        digests.append(digest("a"))
        assert value("a") == number
    assert digests[0] != digests[1]
    assert "helper" not in sys.modules


def test_a_module_that_is_imported_late_is_that_of_its_version(write: Write, tmp_path: Path) -> None:
    text = HEAD + entry("a", 0) + "    def late(self):\n        from helper import VALUE\n        return VALUE\n"
    classes = []
    for number in (1, 2):
        (tmp_path / "helper.py").write_text(f"VALUE = {number}\n")
        write(text)
        classes.append(REGULARIZERS.get("a"))
    assert [kind().late() for kind in classes] == [1, 2]  # type: ignore[attr-defined]


def test_names_of_python_and_of_dropbench_are_not_the_plug_ins(write: Write, tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("raise ImportError")
    (tmp_path / "dropbench").mkdir()
    (tmp_path / "dropbench" / "__init__.py").write_text("raise ImportError")
    write(f"import random\n{HEAD}{entry('a', 'random.__name__')}")
    assert value("a") == "random"


def test_two_plug_ins_have_modules_of_the_same_name(write: Write, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper.py").write_text(f"VALUE = '{name}'\n")
        write(f"{HEAD}from helper import VALUE\n{entry(name, 'VALUE')}", f"{name}/my.py")
    assert [value(name) for name in "ab"] == ["a", "b"]


@pytest.mark.parametrize("init", ["", "from . import first, sub\n"])
def test_a_folder(tmp_path: Path, init: str) -> None:
    """Its ``__init__.py`` is loaded, or else each of its files."""
    folder = tmp_path / "mine"
    (folder / "sub").mkdir(parents=True)
    (folder / "first.py").write_text(HEAD + "from sub.helper import VALUE\n" + entry("a", "VALUE"))
    (folder / ("sub/__init__.py" if init else "second.py")).write_text(HEAD + entry("b", 2))
    (folder / "sub" / "helper.py").write_text("VALUE = 1\n")
    if init:
        (folder / "__init__.py").write_text(init)
    load_plugins([folder])
    assert (value("a"), value("b")) == (1, 2)
    first = digest("a"), digest("b")
    load_plugins([folder / "first.py"])
    assert digest("a") == first[0]
    (folder / "sub" / "helper.py").write_text("VALUE = 3\n")
    load_plugins([folder])
    assert (value("a"), value("b")) == (3, 2)
    assert digest("a") != first[0]
    assert digest("b") == first[1]


def test_what_it_does_not_import_is_not_read(write: Write, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "huge.bin").write_bytes(bytes(10_000))
    (tmp_path / "broken.py").write_text("(")
    (tmp_path / "data" / "__init__.py").write_text("raise ImportError")
    assert set(read_source(write(HEAD + entry("a", 1))).files) == {"my.py"}
    (tmp_path / "large.py").write_text("#" * 2**24)
    with pytest.raises(InputError, match="its Python files have more than 16 MiB"):
        write(f"import large\n{HEAD}{entry('a', 1)}")


def test_an_edited_file_replaces_its_entries(write: Write) -> None:
    """Twenty runs over three edits, as in a notebook: the size and the second of the file do not change."""
    seen = []
    for run in range(20):
        number = run % 3
        file = write(HEAD + entry("a", number))
        os.utime(file, (0, 0))
        seen.append(value("a") == number)
    assert seen == [True] * 20
    write(HEAD + entry("b", 1))
    assert "a" not in REGULARIZERS
    with pytest.raises(InputError, match=r"my\.py:3: NameError"):
        write(f"{HEAD}{entry('a', 1)}\nno_such_name".replace("\n\n", "\n", 1).replace("@REG", "oops\n@REG"))
    assert value("b") == 1  # what was in use


def test_two_plug_ins_of_one_command_cannot_share_a_name(write: Write, tmp_path: Path) -> None:
    first = write(HEAD + entry("a", 1))
    second = tmp_path / "other.py"
    second.write_text(HEAD + entry("a", 2))
    with pytest.raises(InputError, match=rf"regularizer 'a' is registered already \(by {first}\)"):
        load_plugins([first, second])
    assert value("a") == 1
    load_plugins([second])
    assert value("a") == 2
    load_plugins([first])
    assert value("a") == 1
    second.write_text(HEAD + entry("dropkey", 2))
    with pytest.raises(InputError, match=r"'dropkey' is registered already \(by DropBench\)"):
        load_plugins([second])


@pytest.mark.parametrize("key", ["optimizer", "augmentation"])
def test_a_changed_optimizer_or_augmentation_is_another_trial(key: str, write: Write) -> None:
    text = f"from dropbench import {key.upper()}S as ALL\nimport torch\n@ALL.register('mine')\n"
    function = {
        "optimizer": "def mine(groups, recipe): return torch.optim.SGD(groups, lr={})",
        "augmentation": "def mine(image): return image.flip(-{})",
    }[key]
    request = TrialRequest(
        task="image-classification", data="digits", model="vit-digits", overrides={key: "mine", "steps": 2}
    )
    trials = []
    for number in (1, 2):
        write(text + function.format(number))
        trials += make_trials(request, [0], Settings())
        draft = TASKS.get(request.task).draft_for(request)
        assert draft is not None
        assert draft.plugins == trials[-1].plugins
    assert [[*trial.plugins] for trial in trials] == [[f"{key} mine"]] * 2
    assert trials[0].id != trials[1].id
    with one_line(f"unknown {key} 'min': did you mean mine"):
        make_trials(request.model_copy(update={"overrides": {key: "min"}}), [0], Settings())
