"""From a data name to its files: the data root, a folder of the user's, an installed package, or a generated set."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InputError
from harness.settings import Settings
from tasks.data.catalog import DATASETS
from tasks.data.dataset import SYNTHETIC, Dataset, Layout
from tasks.data.fingerprint import fingerprint


@dataclass(frozen=True)
class Source:
    """A data set that is there: its folder, and every file of its layout.

    Attributes:
        name: as asked for; it ends in "-synthetic" for a generated set.
        files: absolute or relative to the working folder, in the order of the layout.
    """

    name: str
    dataset: Dataset
    layout: Layout
    folder: Path
    files: tuple[Path, ...]

    @property
    def synthetic(self) -> bool:
        """Whether the rows are generated, not published."""
        return self.name.endswith(SYNTHETIC)

    def fingerprint(self) -> str:
        """12 hex digits that change with the files; see `tasks.data.fingerprint`."""
        return fingerprint(self.folder, self.files)


@dataclass(frozen=True)
class Found:
    """The layout that comes nearest to what lies in a folder."""

    layout: Layout
    folder: Path
    missing: tuple[str, ...]

    @property
    def state(self) -> str:
        """One of "ready", "incomplete" and "missing"."""
        if not self.missing:
            return "ready"
        return "missing" if len(self.missing) == len(self.layout.files) else "incomplete"


def locate(name: str, root: Path | None = None, folders: Mapping[str, Path] | None = None) -> Source:
    """Find the files of a data set; a synthetic set is generated if it is not there yet.

    Args:
        name: a data name, "-synthetic" allowed behind.
        root: the folder of the data folders; default: `DROPBENCH_DATA`, else ./data.
        folders: data name → folder, for those that lie elsewhere.

    Raises:
        InputError: the name is unknown, or files are missing; says which, where, and where to get them.
    """
    dataset = DATASETS.get(name)
    synthetic = name.endswith(SYNTHETIC)
    given = (folders or {}).get(name)
    if synthetic and given is None:
        from tasks.data.synthetic import ensure_synthetic

        folder = ensure_synthetic(dataset)
    else:
        folder = given if given is not None else default_folder(dataset, root)
    found = nearest_layout(dataset, folder)
    if found.missing:
        raise InputError(_what_is_missing(name, dataset, found))
    files = tuple(path for file in found.layout.files for path in matching(found.folder, file))
    return Source(name, dataset, found.layout, found.folder, files)


def default_folder(dataset: Dataset, root: Path | None = None) -> Path:
    """Where a set lies unless the user says otherwise."""
    if not dataset.package:
        return (Settings.from_environment().data if root is None else root) / dataset.folder
    package, *below = dataset.package.split("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"data '{dataset.name}' comes with the Python package {package}, which is not installed")
    return Path(spec.submodule_search_locations[0], *below)


def nearest_layout(dataset: Dataset, folder: Path) -> Found:
    """The first complete layout in the folder; else the one of which the most is there."""
    candidates = []
    for layout in dataset.layouts:
        for subfolder in ("", *layout.subfolders):
            place = folder / subfolder
            missing = tuple(file for file in layout.files if not matching(place, file))
            candidates.append(Found(layout, place, missing))
    return min(candidates, key=lambda found: len(found.missing) / len(found.layout.files))


def parse_folders(items: Iterable[str]) -> dict[str, Path]:
    """Read what stands behind `--data`: NAME=PATH.

    Raises:
        InputError: there is no "=", the name is unknown, or the path is no folder.
    """
    folders = {}
    for item in items:
        name, separator, path = item.partition("=")
        if not separator or not path:
            raise InputError(f"--data {item}: expected NAME=PATH, such as trec=/data/trec")
        DATASETS.entry(name)
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise InputError(f"--data {item}: no folder {folder}")
        folders[name] = folder
    return folders


def matching(folder: Path, file: str) -> list[Path]:
    """The file, or the folder, of that name in a folder; of a name with a star all that match it, in order.

    An empty list where it is not there. Hidden files do not match.
    """
    try:
        if "*" in file:
            return sorted(path for path in folder.glob(file) if path.is_file() and not path.name.startswith("."))
        path = folder / file
        return [path] if (path.is_dir() if file.endswith("/") else path.is_file()) else []
    except PermissionError:
        return []


def _what_is_missing(name: str, dataset: Dataset, found: Found) -> str:
    if found.state == "missing":
        told = f"data '{name}' is not there: expected {', '.join(found.layout.files)} in {found.folder}"
    else:
        there = [file for file in found.layout.files if file not in found.missing]
        told = f"data '{name}' is incomplete: {found.folder} has {', '.join(there)}, but not {', '.join(found.missing)}"
    if dataset.package:
        return f"{told}, which the Python package {dataset.package.split('/')[0]} brings along: install it again"
    told += f" (DROPBENCH_DATA or --data {name}=PATH set another place); get it from {dataset.home}"
    if dataset.synthetic and not name.endswith(SYNTHETIC):
        told += f", or run on a small generated set: {name}{SYNTHETIC}"
    return told
