"""Settings for the whole run: tests reach no network and touch nothing of the person who runs them."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

import dropbench  # noqa: F401 - tests import libraries that need its shims

# Imports and collected tests are no garbage: looking for it in them takes as long as collecting the tests.
gc.disable()

# Tests run side by side, one a core, and their tensors are small. Before torch is imported, and for all subprocesses.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"
# What was started in the background of a script ignores Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
for name in ("DROPBENCH_RUNS", "DROPBENCH_DB", "DROPBENCH_PLUGINS"):
    os.environ.pop(name, None)
# What is written safely waits for the disk, thousands of times: pytest's folders are in memory if there is much of it.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 8 * 2**30 and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# A machine may be busy, so no test has a deadline for one example. In CI the examples are the same every time: a change
# is judged by what it changes. Elsewhere each run looks in new places.
settings.register_profile("dropbench", deadline=None, max_examples=50, derandomize="CI" in os.environ)
settings.load_profile("dropbench")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a parameter of bytes by its length: packed bytes may hold the time of day, and side by side processes would
    then collect tests of different names.
    """
    return f"{len(val)}-bytes" if isinstance(val, bytes) else None


@contextlib.contextmanager
def cache_of_all(name: str, factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    """Use a cache of this name, which all processes share: a data set is generated and tokenized once."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / name))
        yield patch


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use one cache for all modules that ask for it."""
    with cache_of_all("cache", tmp_path_factory):
        yield


FEW = {
    "bodies.SUBJECTS": 6,
    "bodies.FRAMES": 2,
    "detection.COCO_ROWS": (24, 12),
    "detection.HICO_ROWS": (48, 12),
    "text.PAIRS": (72, 9, 18),
}
"""Rows of generated sets, of subjects and their poses, or of train and the other splits."""


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Generate small sets, for modules to which it does not matter what can be learned from them."""
    with cache_of_all("few", tmp_path_factory) as patch:
        for name, rows in FEW.items():
            patch.setattr(f"dropbench.tasks.data.synthetic.{name}", rows)
        yield


LONGEST = (
    "tests/cluster/", "tests/jobs/", "tests/docs/", "tests/harness/training/", "tests/fuzz/", "tests/zoo/",
    "tests/test_quickstart.py", "tests/benchmarks/", "tests/db/",
)  # fmt: skip
"""Files that start first, so that no process runs them alone at the end."""


SLOW_FIXTURES = {"browser", "clustered", "postgresql"}
"""Fixtures that start a program which few machines have."""


@functools.cache
def may_be_slow(file: Path) -> bool:
    """Return whether the text of a file has a word without which none of its tests is slow."""
    text = file.read_text(encoding="utf-8")
    return any(word in text for word in ("slow", *SLOW_FIXTURES))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without slow tests where only those run: each process would import them and their libraries."""
    if config.getoption("markexpr") != "slow" or not collection_path.match("test_*.py"):
        return None
    return not may_be_slow(collection_path) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs such a program as slow, and put the longest first."""
    for item in items:
        if SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") is not None:
            assert may_be_slow(item.path), f"{item.nodeid}: `-m slow` leaves out its file, which has no word of that"
    items.sort(key=lambda item: next((n for n, one in enumerate(LONGEST) if item.nodeid.startswith(one)), len(LONGEST)))


def pytest_collection_finish() -> None:
    """Look for garbage again from here on, but not in what exists already."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # with Python's own, it takes a tenth of the time of tests of databases
    gc.enable()
    atexit.register(gc.unfreeze)  # nanobind reports as leaked what the interpreter does not free


CLUSTERS = 3
"""SLURM clusters side by side: their tests mostly wait."""


class ByModule(LoadScopeScheduling):  # type: ignore[misc]
    """A module's tests go to one process, which makes its fixtures once; those of the cluster go to `CLUSTERS`."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._dealt: dict[str, int] = {}

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        if Path(module).parent.name != "cluster":
            return module
        return f"cluster {self._dealt.setdefault(nodeid, len(self._dealt) % CLUSTERS)}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByModule:
    """Distribute tests so, in the order of `LONGEST`."""
    config.option.loadscopereorder = False
    return ByModule(config, log)
