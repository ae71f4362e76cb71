"""Plug-in files: data sets, models and tasks of one's own, and files that are broken."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.analysis import ANALYSES
from dropbench.harness.cli.main import run
from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.optimization.catalog import OPTIMIZERS
from dropbench.harness.registry import PLUGIN_MODULES, Registry
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.schedules import SCHEDULES
from dropbench.harness.settings import Settings
from dropbench.harness.trials import plugins
from dropbench.harness.trials.plugins import load_plugins, make_trials
from dropbench.harness.trials.task import TASKS, spec_of
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.tasks.data import DATASETS, locate
from dropbench.tasks.data.synthetic_cache import cache_folder
from dropbench.tasks.images.spec import AUGMENTATIONS

REGISTRIES: tuple[Registry[Any], ...] = (
    *(REGULARIZERS, ANALYSES, MODELS, TASKS, SCHEDULES, DATASETS, OPTIMIZERS, AUGMENTATIONS),
)
SET = """
import numpy as np
from dropbench.tasks.data import DATASETS, Dataset, Layout
from dropbench.tasks.data.classification import TextClassificationData, TextSplit

def read(source):
    texts = source.files[0].read_text().splitlines()
    rows = TextSplit(tuple(texts), np.arange(len(texts)) % 2)
    return TextClassificationData(source.name, ("no", "yes"), rows, rows, rows, ("read by a plug-in",))

layout = Layout(files=("rows.txt",), reader=f"{__name__}:read")
about = {"origin": "me", "home": "at home", "licence": "none", "splits": "all the same"}
DATASETS.add("mine", Dataset(
    name="mine", help="my rows", kind="text-classification", folder="mine", layouts=(layout,), classes=2, **about
))
"""
TASK = """
from dropbench.harness.trials.task import TASKS
from dropbench.tasks.images.image_classification import ImageClassification

@TASKS.register("negative")
class Negative(ImageClassification):
    '''Classify negatives.'''
    name = "negative"
"""
BROKEN = """
from dropbench import REGULARIZERS, Regularizer
from dropbench.harness.analysis import ANALYSES
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.trials.task import TASKS
from dropbench.tasks.data import DATASETS

@REGULARIZERS.register("partly")
class Partly(Regularizer):
    ratio: float = 0.1

@MODELS.register("raises", sample={"classes": 3})
def raises(name, options, **sizes):
    raise SystemExit("no such file")

@MODELS.register("takes-nothing")
def takes_nothing():
    '''Nothing.'''

MODELS.register("returns-5")(lambda name, options, **sizes: 5)
for registry in (REGULARIZERS, ANALYSES, MODELS, TASKS, DATASETS):
    registry.add("five", 5)
    registry.add("gone", "nowhere:it")
"""


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Forget the plug-ins of a test."""
    monkeypatch.setenv("DROPBENCH_PLUGINS", "")
    monkeypatch.setenv("DROPBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.chdir(tmp_path)
    present, modules = [dict(registry._entries) for registry in REGISTRIES], set(PLUGIN_MODULES)
    yield
    PLUGIN_MODULES.intersection_update(modules)
    for registry, entries in zip(REGISTRIES, present, strict=True):
        registry._entries = entries


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a plug-in and loads it instead of the version before."""
    path = tmp_path / "my.py"

    def write(content: str) -> Path:
        path.write_text(content)
        for registry in REGISTRIES:
            registry._entries = {name: entry for name, entry in registry._entries.items() if entry.plugin is None}
        load_plugins([path])
        return path

    return write


def make(**fields: str) -> Trial:
    request = TrialRequest(**{"task": "image-classification", "data": "digits", "model": "vit-digits", **fields})
    return spec_of(request.task).trial_for(request, Settings.from_environment())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("import sys\nsys.exit(0)", r"my\.py:2: SystemExit: 0$"),
        ("class Odd(BaseException): pass\n\nraise Odd('so')", r"my\.py:3: Odd: so$"),
        ("x = 1\0", r"my\.py: (ValueError|SyntaxError): source code string cannot contain null bytes"),
    ],
)
def test_a_file_that_fails_is_an_error_of_one_line(plugin: Callable[[str], Path], content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plugin(content)


@pytest.mark.parametrize("path", [Path("/dev/zero"), Path("/dev"), Path("a\0b.py"), Path("a" * 300 + ".py")])
def test_only_regular_files_are_opened(path: Path) -> None:
    with pytest.raises(InputError, match="expected a Python file"):
        load_plugins([path])


@pytest.mark.slow
def test_built_in_entries_belong_to_no_plug_in(tmp_path: Path) -> None:
    """In a process of its own: the plug-in must be the first to import the registries."""
    (tmp_path / "my.py").write_text(
        "import dropbench.harness.trials.task, dropbench.harness.regularizers.schedules\n"
        "import dropbench.harness.models.catalog, dropbench.harness.models.adapter"
    )
    program = (
        "from pathlib import Path; from dropbench.harness.registry import REGISTRIES;"
        "from dropbench.harness.trials.plugins import load_plugins; load_plugins([Path('my.py')]);"
        "print({r.entry(name).plugin for r in REGISTRIES.values() for name in r})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "{None}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "raises"], "my.py:14: SystemExit: no such file"),
        (["--model", "takes-nothing"], "TypeError: takes_nothing() got an unexpected keyword argument"),
        (["--model", "returns-5"], "model 'returns-5' (FILE): its function returned 5: expected a torch.nn.Module"),
        (["--model", "five"], "model 'five' (FILE): expected a function, got 5"),
        (["--model", "gone"], "model 'gone' (FILE): cannot load nowhere:it: No module named 'nowhere'"),
        (["--regularizer", "five"], "regularizer 'five': expected a Regularizer, got 5"),
        (["--regularizer", "gone"], "regularizer 'gone': cannot load nowhere:it"),
        (["--regularizer", "partly"], "regularizer 'partly': class Partly in FILE has no method attend: implement it"),
        (["--task", "five"], "task 'five': expected a Task with `metrics = (Metric(…), …)`, got 5"),
        (["--task", "gone"], "task 'gone': cannot load nowhere:it"),
        (["--data", "five"], "data 'five': expected a dropbench.tasks.data.Dataset, got 5"),
        (["--data", "gone"], "data 'gone': cannot load nowhere:it"),
    ],
)
def test_a_broken_item_ends_a_command_in_one_line(
    arguments: list[str], message: str, plugin: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"--task": "image-classification", "--data": "digits", "--model": "vit-digits"}
    options[arguments[0]] = arguments[1]
    command = ["run", *(part for option in options.items() for part in option), "--plugin", str(plugin(BROKEN))]
    assert run(command) == 2
    error = capsys.readouterr().err
    assert error.startswith("dropbench: ")
    assert message.replace("FILE", command[-1]) in error
    assert error.count("\n") == 1


def test_broken_items_are_listed(plugin: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "models", "--json", "--plugin", str(plugin(BROKEN))]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["raises"]["parameters"] is None
    assert rows["raises"]["tasks"] == list(TASKS)  # registered without tasks
    assert rows["vit-digits"]["tasks"] == ["image-classification"]


def test_commands_for_data_know_the_set_of_a_plug_in(
    plugin: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data" / "mine").mkdir(parents=True)
    (tmp_path / "data" / "mine" / "rows.txt").write_text("one\ntwo\n")
    option = ["--plugin", str(plugin(SET))]
    assert run(["data", "check", "mine", *option]) == 0
    assert "note: read by a plug-in" in capsys.readouterr().out
    assert run(["data", "fetch", "mine", *option]) == 0
    assert "at home" in capsys.readouterr().out
    assert run(["list", "data", "--json", *option]) == 0
    states = {row["name"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states["mine"] == "ready"
    plugin(SET.replace("return TextClassificationData", "return 5; TextClassificationData"))
    assert run(["data", "check", "mine", *option]) == 2
    assert "returned int: expected a dropbench.tasks.data.read.Data" in capsys.readouterr().err


def test_a_changed_reader_is_another_trial_with_other_caches(plugin: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "data" / "mine").mkdir(parents=True)
    (tmp_path / "data" / "mine" / "rows.txt").write_text("one\ntwo\n")
    fields = {"task": "text-classification", "data": "mine", "model": "text-transformer"}
    ids, caches = set(), set()
    for version in (SET, SET.replace("texts), np.arange", "texts[::-1]), np.arange"), SET):
        plugin(version)
        trial = make(**fields)
        assert list(trial.plugins) == ["data mine"]
        ids.add(trial.id)
        caches.add(cache_folder("mine"))
    assert len(ids) == len(caches) == 2
    assert cache_folder("trec").name == "dropbench"
    assert make().plugins == {}


def test_a_changed_schedule_is_another_trial(plugin: Callable[[str], Path]) -> None:
    text = "from dropbench.harness.regularizers.schedules import SCHEDULES\n"
    text += "@SCHEDULES.register('flat')\ndef flat(*a): return "
    trials = []
    for value in ("0.1", "0.2"):
        plugin(text + value)
        trials.append(make(regularizer="dropkey", schedule="flat"))
        assert make(schedule="flat").id == make().id  # nothing is dropped
    assert trials[0].id != trials[1].id


def test_a_task_of_its_own_on_existing_models_and_data(plugin: Callable[[str], Path]) -> None:
    plugin(TASK)
    trial = make(task="negative")
    TASKS.get("negative").check(trial)
    assert (trial.task, list(trial.plugins)) == ("negative", ["task negative"])
    assert trial.recipe == make().recipe
    with pytest.raises(InputError, match="data 'trec-synthetic' belong to task 'text-cl"):
        make(task="negative", data="trec-synthetic")
    plugin(TASK.replace('name = "negative"', ""))
    assert make(task="negative").recipe == make().recipe  # the registry sets the name
    plugin(TASK.replace('name = "negative"', 'name = "other"'))
    with pytest.raises(InputError, match="task 'negative': expected `name = \"negative\"` in <class"):
        make(task="negative")
    plugin(TASK.replace('name = "negative"', 'name = kind = "negative"'))
    with pytest.raises(InputError, match=r"does not support task 'negative': expected one registered with this task"):
        make(task="negative")


def test_the_set_of_a_plug_in_has_the_facts_of_a_card() -> None:
    mine = DATASETS.get("trec").model_copy(update={"help": "my own"})
    DATASETS.add("mine", mine)
    entry = DATASETS.entry("mine-synthetic")
    DATASETS._aliases.pop("mine-synthetic")
    assert (entry.name, entry.help) == ("mine", "my own")
    assert entry.facts == DATASETS.entry("trec").facts
    assert locate("mine", folders={"mine": locate("trec-synthetic").folder}).dataset.name == "mine"


@pytest.mark.parametrize("line", ["", "@REGULARIZERS.register", "@REGULARIZERS.register('registers')"])
def test_a_file_that_registers_nothing_is_reported(
    line: str, plugin: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    plugin(f"from dropbench import REGULARIZERS, AttentionDrop\n{line}\nclass Mine(AttentionDrop): pass")
    assert ("my.py registers nothing: add" in caplog.text) == ("(" not in line)


def test_a_task_that_leaves_out_its_plug_ins(plugin: Callable[[str], Path], tmp_path: Path) -> None:
    """A changed file makes other trials."""
    bare = """
    @classmethod
    def trial_for(cls, request, settings):
        return super().trial_for(request, settings).model_copy(update={"plugins": {}})
"""
    request = TrialRequest(task="negative", data="digits", model="vit-digits")
    settings = Settings(runs=tmp_path / "runs")
    configs = set()
    for version in (TASK + bare, TASK + bare + "    # changed\n    other = 1\n"):
        plugin(version)
        first, second = make_trials(request, (0, 3), settings)
        assert (first.seed, second.seed, list(first.plugins)) == (0, 3, ["task negative"])
        assert first.config_id == second.config_id
        configs.add(first.config_id)
    assert len(configs) == 2
