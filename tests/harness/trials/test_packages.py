"""Installed packages with entry points: their code is part of a trial's identity, and their data sets have twins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness import registry
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.trials.plugins import package_digest
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.jobs.worker.worker import _train
from dropbench.tasks.data import DATASETS, locate, read_any

PACKAGE = """
from dropbench.harness.regularizers.drop import UnitDrop
from dropbench.tasks.data import DATASETS

class Near(UnitDrop):
    "Version 1."

rows = DATASETS.get("trec").model_copy(update={"name": "near-rows", "folder": "near-rows"})
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with a regularizer and a data set; returns its folder."""
    folder = tmp_path / "near_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "helper.py").write_text("VALUE = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "near_package", raising=False)
    points = EntryPoints(
        [
            EntryPoint("near", "near_package:Near", "dropbench.regularizers"),
            EntryPoint("near-rows", "near_package:rows", "dropbench.data"),
        ]
    )
    monkeypatch.setattr(registry, "_entry_points", lambda: points)
    monkeypatch.setattr(registry, "PLUGIN_MODULES", set())
    registries: tuple[registry.Registry[Any], ...] = (REGULARIZERS, DATASETS)
    for items, group in zip(registries, ("regularizers", "data"), strict=True):
        monkeypatch.setattr(items, "_group", group)
        monkeypatch.setattr(items, "_entries", dict(items._entries))
        monkeypatch.setattr(items, "_aliases", dict(items._aliases))
    yield folder
    package_digest.cache_clear()


@pytest.fixture
def make(package: Path) -> Callable[..., Trial]:
    """(**fields) → a trial with the package of now."""

    def trial(**fields: Any) -> Trial:
        package_digest.cache_clear()
        values = {"data": "trec-synthetic", "model": "text-transformer", "regularizer": "near", **fields}
        request = TrialRequest(task="text-classification", **values)
        return TASKS.get(request.task).trial_for(request, Settings())

    return trial


@pytest.mark.parametrize("name", ["__init__.py", "helper.py", "sub/kernel.so"])
def test_a_changed_package_is_another_trial(
    package: Path, make: Callable[..., Trial], name: str, tmp_path: Path
) -> None:
    first = make()
    assert list(first.plugins) == ["regularizer near"]
    assert make() == first
    assert make(regularizer="dropkey").plugins == {}
    (package / "sub").mkdir()
    with (package / name).open("a") as file:
        file.write("# a comment")
    assert make().id != first.id
    directory = RunDirectory.create(tmp_path, first)
    with pytest.raises(InputError, match=r"regularizer near has changed since the trial .* restore it, or enqueue it"):
        _train(directory, Settings(), lambda: False)


def test_the_data_set_of_a_package_has_a_synthetic_twin(package: Path) -> None:
    assert "near-rows-synthetic" in DATASETS
    source = locate("near-rows-synthetic")
    assert source.synthetic
    assert read_any(source).rows()["train"] > 0
    assert "digits-synthetic" not in DATASETS
    assert "nothing-synthetic" not in DATASETS
