"""What a plug-in consists of, and which version of an entry is in use."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.plugins import store
from dropbench.harness.plugins.source import read_source
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.cards import find_card
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.trials.plugins import keep_plugins, load_plugins, plugin_digests, plugins_of
from dropbench.harness.trials.trial import DataRef, Trial
from tests.harness.trials.test_plugins import restored  # noqa: F401 - used by pytest

HEAD = "from typing import ClassVar\nfrom dropbench import REGULARIZERS, PlainAttention, Regularizer\n"
ENTRY = """
@REGULARIZERS.register("{name}")
class {name_}(PlainAttention):
    value: ClassVar[object] = {value}
"""


def entry(name: str, value: object) -> str:
    return ENTRY.format(name=name, name_=name.title(), value=value)


def digest(name: str) -> str:
    (own,) = plugin_digests((REGULARIZERS, name)).values()
    return own


def value(name: str) -> object:
    return REGULARIZERS.get(name).value  # type: ignore[attr-defined]


def trial_of(name: str) -> Trial:
    return Trial(
        task="t", data=DataRef(name="d", fingerprint=""), model="m", regularizer=RegularizerSpec(name=name),
        preset="mini", recipe={}, plugins=plugin_digests((REGULARIZERS, name)), seed=0,
    )  # fmt: skip


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """(text, path) → the path of a file with this text, loaded."""

    def write_and_load(text: str, path: str = "my.py", *, newline: str = "\n") -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline=newline)
        load_plugins([file])
        return file

    return write_and_load


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


def test_a_trial_is_run_with_its_own_version(write: Write, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    trials = []
    for number in (1, 2, 3):
        (tmp_path / "helper.py").write_text(f"VALUE = {number}\n")
        write(f"{HEAD}from helper import VALUE\n{entry('a', 'VALUE')}")
        trials.append(trial_of("a"))
        keep_plugins(trials[-1:], runs)
    (tmp_path / "my.py").unlink()
    (tmp_path / "helper.py").unlink()
    for number in (1, 3, 2, 1):
        with plugins_of(trials[number - 1], runs):
            assert value("a") == number
        assert value("a") == 3
    (entry_of_a,) = (REGULARIZERS.put("a", None),)
    with plugins_of(trials[2], runs):
        assert value("a") == 3
    assert "a" not in REGULARIZERS
    assert entry_of_a is not None
    copy = next(
        folder for folder in (runs / "plugins").iterdir() if (folder / "helper.py").read_text() == "VALUE = 2\n"
    )
    load_plugins([copy])  # a copy is a plug-in
    assert (value("a"), digest("a")) == (2, trials[1].plugins["regularizer a"])


def test_a_copy_that_was_edited_is_refused(write: Write, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write(HEAD + entry("a", 1))
    trial = trial_of("a")
    keep_plugins([trial], runs)
    write(HEAD + entry("a", 2))
    (copy,) = (runs / "plugins").iterdir()
    (copy / "my.py").write_text(HEAD + entry("a", 3))
    message = (
        f"plug-in of regularizer a has changed .* no copy of version {trial.plugins['regularizer a'][:8]}: restore"
    )
    with pytest.raises(InputError, match=message), plugins_of(trial, runs):
        pass
    assert value("a") == 2
    (copy / "plugin.json").write_text("{}")
    with pytest.raises(InputError, match=message):
        keep_plugins([trial], runs)


def test_a_kill_leaves_no_incomplete_copy(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    write(HEAD + entry("a", 1))
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_json", lambda *_: os._exit(9))
        if (pid := os.fork()) == 0:
            keep_plugins([trial_of("a")], runs)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert store.copies(runs, trial_of("a").plugins) == {}
    keep_plugins([trial_of("a")], runs)
    (copy,) = store.copies(runs, trial_of("a").plugins)
    assert sorted(file.name for file in copy.iterdir()) == ["my.py", "plugin.json"]


def test_a_read_only_folder_and_its_card(write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "card.yaml").write_text(
        "formula: x\nsource: me\nurl: https://example.org\nacts_on: nothing\ndefaults: {}\n"
    )
    (folder / "my.py").write_text(HEAD + entry("a", 1).replace('"a"', '"a", card="card.yaml"'))
    (folder / "my.py").chmod(stat.S_IRUSR)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    load_plugins([folder / "my.py"])
    runs = tmp_path / "runs"
    keep_plugins([trial_of("a")], runs)
    assert sorted(file.name for file in folder.iterdir()) == ["card.yaml", "my.py"]
    (copy,) = (runs / "plugins").iterdir()
    load_plugins([copy])
    card = find_card("a")
    assert card is not None
    assert card.source == "me"


def test_a_plug_in_may_build_on_another(write: Write, tmp_path: Path) -> None:
    """Its trials name both, and an edit of the first one is seen by the second."""
    runs = tmp_path / "runs"
    text = f"{HEAD}\n@REGULARIZERS.register('derived')\nclass Derived(REGULARIZERS.get('base')):\n    '''Derived.'''\n"
    (tmp_path / "derived.py").write_text(text)
    trials = []
    for number in (1, 2):
        write(HEAD + entry("base", number), "base.py")
        load_plugins([tmp_path / "base.py", tmp_path / "derived.py"])
        assert value("derived") == number
        trials.append(trial_of("derived"))
        assert list(trials[-1].plugins) == ["regularizer base", "regularizer derived"]
        keep_plugins(trials[-1:], runs)
    assert trials[0].id != trials[1].id
    for number in (1, 2, 1):
        with plugins_of(trials[number - 1], runs):
            assert (value("base"), value("derived")) == (number, number)


def test_what_it_prints_is_no_part_of_the_output(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(f"print('loaded')\n{HEAD}{entry('a', 1)}")
    assert capsys.readouterr() == ("", "loaded\n")
