"""Initial weights from the user: a file, a folder of transformers or timm, or a name on the Hugging Face Hub."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from dropbench.adapters.hub import cached, fetch, is_hub_name
from dropbench.harness.errors import CHANGED, InputError
from dropbench.harness.files import canonical_json, open_regular
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial, WeightsRef


def weights_path(text: str) -> str:
    """Return the absolute path of weights, which need not exist, or their name on the hub."""
    return text if is_hub_name(text) else str(Path(os.path.expanduser(text)).absolute())  # noqa: PTH111 - it leaves the name of an unknown user


def weights_ref(text: str) -> WeightsRef:
    """Return weights with the SHA-256 of their files' content; those of a name on the hub are fetched.

    The path of a name has its commit, so that the files are still those when the name stands for others. Weights with
    equal files are equal, wherever they come from.

    Raises:
        InputError: they do not exist, or cannot be read.
    """
    if is_hub_name(text):
        named = fetch(text)
        return WeightsRef(path=named.name, digest=_digest_of(named.folder, named.files))
    path = Path(weights_path(text))
    if not path.exists():
        raise InputError(
            f"weights {path}: expected a file that exists, a folder with config.json and model.safetensors, hf:NAME,"
            " or timm:NAME"
        )
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return WeightsRef(path=str(path), digest=_digest_of(path, files))


def resolve_weights(trial: Trial) -> Path | None:
    """Return the path of a trial's initial weights after checking their digest; None if the trial has none.

    Nothing is fetched.

    Raises:
        InputError: the weights are missing, or have changed since the trial was made.
    """
    if trial.weights is None:
        return None
    name = trial.weights.path
    if is_hub_name(name):
        named = cached(name)
        path, digest = named.folder, _digest_of(named.folder, named.files)
    else:
        path, digest = Path(name), weights_ref(name).digest
    if digest != trial.weights.digest:
        raise InputError(f"weights {name} {CHANGED}")
    return path


def weights_label(trial: Trial) -> str:
    """Return a short name of a trial's initial weights: that of the repository or of the file; "" if it has none."""
    if trial.weights is None:
        return ""
    path = trial.weights.path
    return path.partition("@")[0].removeprefix("hf:") if is_hub_name(path) else Path(path).name


def weights_argument(trial: Trial) -> dict[str, Path]:
    """Return the argument of a model's function that is built from a folder of weights; {} for any other model."""
    built_from_folder = MODELS.entry(trial.model).facts.get("weights") == "folder"
    weights = resolve_weights(trial) if built_from_folder else None
    return {} if weights is None else {"weights": weights}


def load_initial_weights(trial: Trial, model: Any, load: Callable[[Any, Path], str]) -> list[str]:
    """Load a trial's initial weights into its model, if it has some, and return notes.

    A model that is built from a folder has them, and maybe an attribute `new` with the parameters that are not there.
    `load` serves DropBench's own models, and `load_by_name` those of plug-ins.

    Raises:
        InputError: they do not fit.
    """
    kind = MODELS.entry(trial.model).facts.get("weights")  # None: of a plug-in
    if kind == "folder":
        new = getattr(model, "new", ())
        return [f"random weights, as the checkpoint has none: {', '.join(new)}"] if new else []
    weights = resolve_weights(trial)
    return [] if weights is None else [(load if kind else load_by_name)(model, weights)]


def load_by_name(model: Any, path: Path) -> str:
    """See `dropbench.adapters.weights.load_named_weights`, which is imported here: commands do without torch."""
    from dropbench.adapters.weights import load_named_weights

    return load_named_weights(model, path)


def require_fitting_weights(trial: Trial, settings: Settings) -> None:
    """Set up the task of a trial and build its model, once, so that no trial is queued whose weights do not fit.

    Nothing is done for a trial that starts from random weights, unless its recipe weights the classes of the data.

    Raises:
        InputError: the weights do not fit the model, or the trial's files have changed or are damaged.
    """
    if trial.weights is None and "class_weights" not in trial.recipe:
        return
    model = trial.task, trial.model, canonical_json(trial.recipe), *sorted(trial.plugins.items())
    key = trial.weights and trial.weights.digest, trial.data, *model
    if key not in _fitting:
        with contextlib.redirect_stdout(sys.stderr):  # standard output may be for JSON
            task = TASKS.get(trial.task)(trial, settings)
            task.setup()
            task.build_model()
            _ = getattr(task, "loss_weights", None)  # raises for other classes than those of the data
        _fitting.add(key)


_fitting: set[tuple[Any, ...]] = set()


def _digest_of(root: Path, files: Iterable[Path]) -> str:
    try:
        pairs = ((file, file.stat()) for file in files)
        times = ((file, stat.st_size, (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)) for file, stat in pairs)
        return _digest(tuple(times), root)
    except OSError as error:
        raise InputError(f"weights {root}: {error.strerror}") from None


@lru_cache
def _digest(stamps: tuple[tuple[Path, int, tuple[int, ...]], ...], root: Path) -> str:
    digest = hashlib.sha256()
    for file, size, _ in stamps:
        relative = "" if file == root else file.relative_to(root).as_posix()
        digest.update(f"{relative} {size}\n".encode())
        with open_regular(file) as content:
            hashlib.file_digest(content, lambda: digest)
    return digest.hexdigest()
