"""Copies of plug-ins beside the runs, and plug-ins that share a process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.plugins import store
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.cards import find_card
from dropbench.harness.trials.plugins import keep_plugins, load_plugins, plugins_of
from tests.harness.plugins.plugin_files import HEAD, Write, digest, entry, trial_of, value


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
