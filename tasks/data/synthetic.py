"""Small generated sets in the published formats, for a first run where the real files are absent.

They are written once, to a cache folder, and read by the same readers. Their names say what they are.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.errors import InputError
from harness.registry import load
from tasks.data.dataset import SYNTHETIC, Dataset

SEED = 1
# Part of the folder's name. Raise it when what is written changes.
VERSION = 2


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/dropbench, else ~/.cache/dropbench."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dropbench"


def ensure_synthetic(dataset: Dataset) -> Path:
    """The folder of a set's synthetic twin, written now if it is not there.

    Raises:
        InputError: the cache folder cannot be written.
    """
    folder = cache_folder() / f"{dataset.name}{SYNTHETIC}-{VERSION}-{SEED}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Written beside and renamed, so that no other process sees half of it.
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            write_synthetic(dataset, unfinished, SEED)
            unfinished.chmod(0o755)
            unfinished.rename(folder)
        except OSError:
            # Another process may have been faster: its set is the same as ours.
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror}: cannot write the generated set {dataset.name}{SYNTHETIC} "
            "(XDG_CACHE_HOME sets another place)"
        ) from None
    return folder


def write_synthetic(dataset: Dataset, folder: Path, seed: int) -> None:
    """Write the set's synthetic twin into an empty folder; equal seeds give equal files."""
    write: Callable[[Path, Dataset, int], None] = load(dataset.synthetic)
    write(folder, dataset, seed)
