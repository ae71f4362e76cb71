"""Stamps of files: the id of the trial and a digest, by which a changed file, or another trial's, is noticed."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dropbench.harness.errors import InputError
from dropbench.harness.files import open_regular

_TRIAL, _DIGEST = "trial", "digest"
_CHECK = ', "check": "'
_DIGITS = 12
_CHANGED = "its content is not what the trial wrote"


def stamped(content: Mapping[str, Any], trial: str) -> dict[str, Any]:
    """Return the content of a JSON file with a stamp, which replaces an earlier one."""
    own = {**content, _TRIAL: trial}
    own.pop(_DIGEST, None)
    plain = json.loads(json.dumps(own))  # as it will be read: all keys are texts
    return {**own, _DIGEST: _digest(json.dumps(plain, sort_keys=True))}


def check_stamp(content: Any, trial: str, file: Path) -> dict[str, Any]:
    """Return the content of a JSON file; raise InputError if it is not what this trial wrote."""
    if not isinstance(content, dict):
        raise damaged(file, trial, "expected an object")
    if (owner := content.get(_TRIAL, trial)) != trial:
        raise damaged(file, trial, f"it is of trial {owner!a:.40}")
    if content.get(_DIGEST) != stamped(content, trial)[_DIGEST]:
        raise damaged(file, trial, _CHANGED)
    return content


def stamped_line(line: str, trial: str) -> str:
    """Return a line of JSON, an object, with a digest of itself and the trial's id as its last value."""
    return f'{line[:-1]}{_CHECK}{_digest(trial + line)}"}}'


def check_line(line: str, trial: str) -> None:
    """Raise ValueError if a line is not what this trial wrote."""
    if stamped_line(line.rpartition(_CHECK)[0] + "}", trial) != line:
        raise ValueError(_CHANGED)


def check_archive(file: Path, trial: str) -> None:
    """Raise InputError if a checkpoint is no archive of torch, or is not of this trial; no tensor is read."""
    try:
        with open_regular(file) as opened, zipfile.ZipFile(opened) as archive:
            objects = [archive.read(name) for name in archive.namelist() if name.endswith("/data.pkl")]
    except FileNotFoundError:  # its worker has a newer one
        return
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError) as error:
        raise damaged(file, trial, str(error)) from None
    if not any(trial.encode() in content for content in objects):
        raise damaged(file, trial, "it is not of this trial")


def damaged(file: Path | str, trial: str, cause: str) -> InputError:
    """Return the error for a damaged file of a run directory."""
    return InputError(f"{file}: damaged ({' '.join(cause.split())}): delete it, then run `dropbench retry {trial}`")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
