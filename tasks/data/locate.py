"""Locate the files of a data set: below the data root, in a user's folder, in a package, or in the synthetic cache."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import SYNTHETIC
from dropbench.tasks.data.dataset import DATASETS, LABELED, SPLIT_SEED, Dataset, Layout
from dropbench.tasks.data.fingerprint import OWN_RULES, RULES, fingerprint
from dropbench.tasks.data.synthetic_cache import ensure_synthetic

PACKED = (".gz", ".bz2", ".xz", ".zip", ".tar", ".tgz", ".tar.gz")
_find_spec = cache(importlib.util.find_spec)
"""The lookup takes 0.1 ms, and a table repeats it for each configuration."""


@dataclass(frozen=True)
class Source:
    """A data set whose files are present: its folder, and every file of its layout.

    Attributes:
        name: the requested name; it ends in "-synthetic" for a generated set.
        files: paths, absolute or relative to the working folder, in the order of the layout.
        split_seed: seed of the splits that the files do not have.
    """

    name: str
    dataset: Dataset
    layout: Layout
    folder: Path
    files: tuple[Path, ...]
    split_seed: int = SPLIT_SEED

    @property
    def synthetic(self) -> bool:
        """True if the rows are generated, not published."""
        return self.name.endswith(SYNTHETIC)

    def fingerprint(self, *, trust_cache: bool = False) -> str:
        """Return hex digits that change with any byte of the files; see `dropbench.tasks.data.fingerprint`."""
        rules = OWN_RULES if self.dataset.card else RULES
        return fingerprint(self.folder, self.files, trust_cache=trust_cache, rules=rules)

    def require_kind(self, task: str) -> None:
        """Raise InputError if the set is one of another task."""
        if self.dataset.kind == task:
            return
        hint = ""
        if "score" in self.dataset.card:
            hint = ": card.yaml says what the columns are, such as `text: [A, B]` of pairs and `score: C` of numbers"
        raise InputError(f"data '{self.name}' belong to task '{self.dataset.kind}', not '{task}'{hint}")


@dataclass(frozen=True)
class LayoutMatch:
    """The layout of which a folder has most files."""

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
    """Find the files of a data set. A synthetic set is generated unless it is cached.

    Args:
        name: a data name, optionally followed by "-synthetic", or by a colon and a label, which is the default folder.
        root: the folder of the data folders; default: `DROPBENCH_DATA`, else ./data.
        folders: data name → folder, for data sets outside the root.

    Raises:
        InputError: the name is unknown, or files are missing; the message names them and their source.
    """
    dataset = DATASETS.get(name)
    if labeled := LABELED.fullmatch(name):
        dataset = dataset.model_copy(update={"folder": labeled[2]})
    folder = (folders or {}).get(name)
    if folder is None:
        folder = ensure_synthetic(dataset) if name.endswith(SYNTHETIC) else default_folder(dataset, root)
    if dataset.card:
        from dropbench.tasks.data.card import describe

        dataset, _, _ = describe(dataset, folder)
    match = nearest_layout(dataset, folder)
    if match.missing:
        raise InputError(_missing_message(name, dataset, match))
    files = tuple(path for file in match.layout.files + match.layout.optional for path in matching(match.folder, file))
    return Source(name, dataset, match.layout, match.folder, files)


def default_folder(dataset: Dataset, root: Path | None = None) -> Path:
    """Return the folder of a set for which the user has given none."""
    if not dataset.package:
        return (Settings.from_environment().data if root is None else root) / dataset.folder
    package, *below = dataset.package.split("/")
    spec = _find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"data '{dataset.name}' needs the Python package {package}: run `pip install {package}`")
    return Path(spec.submodule_search_locations[0], *below)


def nearest_layout(dataset: Dataset, folder: Path) -> LayoutMatch:
    """Return the first complete layout in the folder, else the one of which the largest share is present."""
    folders = ((layout, folder / subfolder) for layout in dataset.layouts for subfolder in ("", *layout.subfolders))
    candidates = (
        LayoutMatch(layout, candidate, tuple(file for file in layout.files if not matching(candidate, file)))
        for layout, candidate in folders
    )
    return min(candidates, key=lambda match: len(match.missing) / len(match.layout.files))


def parse_folders(items: Iterable[str]) -> dict[str, Path]:
    """Parse the values NAME=PATH of `--data`; raise InputError if the name is unknown or the path is not a folder."""
    folders = {}
    for item in items:
        name, separator, path = item.partition("=")
        if not separator or not path:
            raise InputError(f"--data {item}: expected NAME=PATH, such as trec=/data/trec")
        DATASETS.entry(name)
        folder = Path(os.path.expanduser(path))  # noqa: PTH111 - it leaves the name of an unknown user
        if not folder.is_dir():
            raise InputError(f"--data {item}: {folder} is not a folder")
        folders[name] = folder
    return folders


def matching(folder: Path, file: str) -> list[Path]:
    """Return the file or subfolder of that name, or, for a name with a star, all files that match it, in order.

    The list is empty if there is none. Hidden files do not match.
    """
    try:
        if "*" in file:
            return sorted(path for path in folder.glob(file) if path.is_file() and not path.name.startswith("."))
        path = folder / file
        return [path] if (path.is_dir() if file.endswith("/") else path.is_file()) else []
    except PermissionError:
        return []


def _missing_message(name: str, dataset: Dataset, match: LayoutMatch) -> str:
    if match.state == "missing":
        message = f"data '{name}' not found: expected {', '.join(match.layout.files)} in {match.folder}"
    else:
        present = [file for file in match.layout.files if file not in match.missing]
        missing = ", ".join(match.missing)
        message = f"data '{name}' is incomplete: {match.folder} has {', '.join(present)}, but not {missing}"
    names = [file.rstrip("/") + ending for file in match.missing for ending in PACKED]
    folders = matching(match.folder, "./")  # none, and nothing to search, if it does not exist
    if packed := [str(path) for folder in folders for packed_name in names for path in matching(folder, packed_name)]:
        return f"{message}: unpack {', '.join(packed)}"
    if dataset.package:
        return f"{message}: reinstall the Python package {dataset.package.split('/')[0]}, which includes them"
    message += f" (set another folder by DROPBENCH_DATA or --data {name}=PATH)"
    if dataset.home:
        message += f"; {'see' if dataset.card else 'get it from'} {dataset.home}"
    if dataset.synthetic and not name.endswith(SYNTHETIC):
        message += f", or use the small generated set {name}{SYNTHETIC}"
    return message
