"""Small generated sets in the published formats, for a first run without the real files.

They are written to a cache folder once, and read by the same readers. Their names end in "-synthetic".
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import InputError
from harness.files import cache_folder as user_cache_folder
from harness.registry import load_for
from harness.trials.plugins import plugin_digests
from tasks.data.dataset import DATASETS, SYNTHETIC, Dataset

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
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as temporary:
            write_synthetic(dataset, temporary, SEED)
    except OSError as error:
        # Another process may have been faster; its set is identical.
        if not folder.is_dir():
            raise InputError(
                f"{folder}: {error.strerror}: cannot write the generated set {dataset.name}{SYNTHETIC}: "
                "set another cache folder by XDG_CACHE_HOME"
            ) from None
    return folder


@contextmanager
def locked(folder: Path, message: str = "") -> Iterator[None]:
    """Wait for other processes that write the same folder, then remove temporary folders of those that were killed.

    `message` is printed if another process holds the lock, which is kept until the end of the block.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(message, end="", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        for stale in folder.parent.glob(f".{folder.name}.*"):
            shutil.rmtree(stale, ignore_errors=True)
        yield


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
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
