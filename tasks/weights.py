"""Initial weights from the user: a file, or a folder written by transformers' `save_pretrained`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from dropbench.harness.errors import CHANGED, InputError
from dropbench.harness.files import canonical_json, open_regular
from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial, WeightsRef


def weights_path(text: str | Path) -> Path:
    """Return the absolute path of weights; they need not exist."""
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 - it leaves the name of an unknown user


def weights_ref(path: Path) -> WeightsRef:
    """Return a path with the SHA-256 of its files' content; raise InputError if it does not exist or cannot be read."""
    path = weights_path(path)
    if not path.exists():
        raise InputError(f"weights {path}: expected a file, or a folder with config.json and model.safetensors")
    try:
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        pairs = ((file, file.stat()) for file in files)
        times = ((file, stat.st_size, (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)) for file, stat in pairs)
        return WeightsRef(path=str(path), digest=_digest(tuple(times), path))
    except OSError as error:
        raise InputError(f"weights {path}: {error.strerror}") from None


def resolve_weights(trial: Trial) -> Path | None:
    """Return the path of a trial's initial weights after checking their digest; None if the trial has none.

    Raises:
        InputError: the weights are missing, or have changed since the trial was made.
    """
    if trial.weights is None:
        return None
    current = weights_ref(Path(trial.weights.path))
    if current.digest != trial.weights.digest:
        raise InputError(f"weights {current.path} {CHANGED}")
    return Path(current.path)


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


@lru_cache
def _digest(stamps: tuple[tuple[Path, int, tuple[int, ...]], ...], root: Path) -> str:
    digest = hashlib.sha256()
    for file, size, _ in stamps:
        relative = "" if file == root else file.relative_to(root).as_posix()
        digest.update(f"{relative} {size}\n".encode())
        with open_regular(file) as content:
            hashlib.file_digest(content, lambda: digest)
    return digest.hexdigest()
