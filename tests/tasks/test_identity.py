"""Two trials that differ in one thing are never mixed by a command, and no cache answers for the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dropbench.db.queries.compare import compare
from dropbench.db.queries.results import results
from dropbench.db.queries.sides import read_sides
from dropbench.db.report.formats.listing import results_table
from dropbench.db.schema.connection import reading
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, open_store
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.settings import Settings
from dropbench.harness.trials.plugins import _loaded, load_plugins
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.tasks.data.resolve import resolve_data
from dropbench.tasks.weights import weights_ref

PLUGIN = """
from dropbench import REGULARIZERS
from dropbench.harness.regularizers.drop import UnitDrop

@REGULARIZERS.register("one-line")
class OneLine(UnitDrop):
    "Version 1."
"""
Change = Callable[["Place"], None]


class Place:
    """A data set of more than 128 KiB, a plug-in, weights, and the request of a trial on them."""

    def __init__(self, folder: Path) -> None:
        self.data, self.plugin, self.weights = folder / "mr", folder / "mine.py", folder / "model.pt"
        self.data.mkdir()
        (self.data / "rt-polarity.all").write_bytes(b"0 some words\n1 other words\n" * 8000)
        self.plugin.write_text(PLUGIN)
        self.weights.write_bytes(bytes(1000))
        self.request = TrialRequest(
            task="text-classification", data="mr", model="text-transformer", regularizer="one-line"
        )
        self.settings = Settings(folders={"mr": self.data})

    def trial(self) -> Trial:
        REGULARIZERS._entries.pop("one-line", None)
        _loaded.pop(str(self.plugin), None)
        load_plugins([self.plugin])
        trial = TASKS.get(self.request.task).trial_for(self.request, self.settings)
        return trial.model_copy(update={"weights": weights_ref(str(self.weights))})


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1
    path.write_bytes(content)


def edit(place: Place, name: str) -> None:
    place.plugin.write_text(PLUGIN.replace("Version 1", f"Version 1{name}"))


def ask(place: Place, **fields: object) -> None:
    place.request = place.request.model_copy(update=fields)


CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.integers(0, 215_999).map(lambda at: lambda place: flip(place.data / "rt-polarity.all", at)),
    st.integers(0, 999).map(lambda at: lambda place: flip(place.weights, at)),
    st.text("abc", min_size=1, max_size=3).map(lambda name: lambda place: edit(place, name)),
    st.floats(0.31, 0.9).map(lambda ratio: lambda place: ask(place, params={"ratio": ratio})),
    st.floats(0.01, 0.02).map(lambda rate: lambda place: ask(place, overrides={"lr": rate})),
    st.sampled_from(["increasing", "decreasing"]).map(lambda name: lambda place: ask(place, schedule=name)),
)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Place]]:
    """() → a new place."""
    yield lambda: Place(tmp_path_factory.mktemp("place"))
    REGULARIZERS._entries.pop("one-line", None)  # other tests go through all that is registered


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("sqlite://") as opened:
        yield opened


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(change=CHANGES, group_by=st.sets(st.sampled_from(["data", "regularizer", "model", "suite", "seed"]), min_size=1))
def test_trials_that_differ_in_one_thing_are_never_mixed(
    place: Callable[[], Place], store: Store, change: Change, group_by: set[str]
) -> None:
    here = place()
    first = here.trial()
    assert here.trial() == first
    change(here)
    second = here.trial()
    assert first.id != second.id
    assert first.config_id != second.config_id
    different_data = first.data != second.data
    if different_data:
        resolve_data(second, here.settings)
        with pytest.raises(InputError, match="have changed since the trial was made"):
            resolve_data(first, here.settings)
    for trial, value in ((first, 10.0), (second, 20.0)):
        metrics: list[Any] = [("test/accuracy", -1, value), ("train/loss", 0, value)]
        store.record([RunRecord(trial, "succeeded", None, [], metrics)])
    ids = [first.id, second.id]
    alone = results(store, ids=ids)
    assert {(row["mean"], row["n"]) for row in alone} == {(10.0, 1), (20.0, 1)}
    first_row, second_row = ({**row, "mean": None} for row in alone)
    assert first_row != second_row, "rows that look alike"
    with reading(store.engine) as connection:
        rows = compare(*read_sides([(connection, [id]) for id in ids]))
    assert [(row["old_mean"], row["new_mean"], row["old"] != row["new"]) for row in rows] == [(10.0, 20.0, True)]
    if different_data:  # other groups average over what their keys leave out
        grouped = results(store, ids=ids, group_by=sorted(group_by))
        assert {row["mean"] for row in grouped} == {10.0, 20.0}
        lines = str(results_table(alone))
        assert first.data.fingerprint in lines
        assert second.data.fingerprint in lines
