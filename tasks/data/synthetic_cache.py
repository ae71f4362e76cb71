"""The cache folders: small generated sets in the published formats, and what else is computed from data once.

Generated sets are for a first run without the real files; their names end in "-synthetic". The usual readers read them.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dropbench.harness.errors import InputError
from dropbench.harness.files import cache_folder as user_cache_folder
from dropbench.harness.files import synced_together
from dropbench.harness.registry import load_for
from dropbench.harness.trials.plugins import plugin_digests
from dropbench.harness.trials.trial import SYNTHETIC
from dropbench.tasks.data.dataset import DATASETS, Dataset

SEED = 1
# Part of the folder's name. Raise it when the written files change.
VERSION = 4


def cache_folder(data: str = "") -> Path:
    """Return $XDG_CACHE_HOME/dropbench, else ~/.cache/dropbench; of a plug-in's data set a folder for its version."""
    versions = [digest[:12] for digest in plugin_digests((DATASETS, data)).values()] if data else []
    return user_cache_folder().joinpath(*versions)


def ensure_synthetic(dataset: Dataset) -> Path:
    """Return the folder of a set's synthetic twin, written unless cached; raise InputError if that is impossible."""
    folder = cache_folder(dataset.name) / f"{dataset.name}{SYNTHETIC}-{VERSION}-{SEED}"
    what = f"the generated set {dataset.name}{SYNTHETIC}"
    return ensure_cached(folder, lambda empty: write_synthetic(dataset, empty, SEED), what)


def ensure_cached(folder: Path, write: Callable[[Path], object], what: str, waiting: str = "") -> Path:
    """Return a cache folder, which one process writes once, under a temporary name, while the others wait.

    Args:
        folder: the folder.
        write: writes its files to an empty folder.
        what: what the folder has, for the error.
        waiting: printed if another process is writing it.

    Raises:
        InputError: the folder cannot be written.
    """
    try:
        if not folder.is_dir():
            with _locked(folder, waiting):
                if not folder.is_dir():
                    with _new_folder(folder) as temporary, synced_together(temporary):
                        write(temporary)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"{folder}: {reason}: cannot write {what}: set another cache folder by XDG_CACHE_HOME"
        ) from None
    return folder


@contextmanager
def _locked(folder: Path, waiting: str) -> Iterator[None]:
    """Wait for other processes that write the same folder, then remove temporary folders of those that were killed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(waiting, end="", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        for stale in folder.parent.glob(f".{folder.name}.*"):
            shutil.rmtree(stale, ignore_errors=True)
        yield


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder and rename it at the end, so that no other process reads an incomplete one."""
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_synthetic(dataset: Dataset, folder: Path, seed: int) -> None:
    """Write the set's synthetic twin into an empty folder; equal seeds give equal files."""
    load_for(f"data '{dataset.name}'", dataset.synthetic)(folder, dataset, seed)
