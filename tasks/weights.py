"""Initial weights of the user's: a file, or a folder as transformers' `save_pretrained` writes it."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from harness.errors import InputError
from harness.trial import Trial, WeightsRef

BLOCK = 1 << 20


def weights_ref(path: Path) -> WeightsRef:
    """The path, and the SHA-256 of what lies there, file by file in the order of their names.

    Raises:
        InputError: there is nothing, or it cannot be read.
    """
    path = path.expanduser().absolute()
    if not path.exists():
        raise InputError(f"weights {path}: expected a file, or a folder with config.json and model.safetensors")
    try:
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        stamps = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
        return WeightsRef(path=str(path), digest=_digest(stamps, str(path)))
    except OSError as error:
        raise InputError(f"weights {path}: {error.strerror}") from None


def located_weights(trial: Trial) -> Path | None:
    """Where a trial's initial weights lie; None where it has none.

    Raises:
        InputError: they are missing, or not those that the trial was made for.
    """
    if trial.weights is None:
        return None
    found = weights_ref(Path(trial.weights.path))
    if found.digest != trial.weights.digest:
        raise InputError(f"weights {found.path} have changed since the trial was made")
    return Path(found.path)


@lru_cache
def _digest(stamps: tuple[tuple[str, int, int], ...], root: str) -> str:
    digest = hashlib.sha256()
    for name, _, size in stamps:
        file = Path(name)
        relative = "" if name == root else file.relative_to(root).as_posix()
        digest.update(f"{relative} {size}\n".encode())
        with file.open("rb") as content:
            while block := content.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()
