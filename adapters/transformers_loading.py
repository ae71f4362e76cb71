"""Loading of transformers' configurations and weights from local folders, without code from them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers.utils import logging

from dropbench.harness.errors import InputError

LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""Options of every `from_pretrained`: nothing is fetched while a model is built, and no code of a checkpoint runs."""
LOADING_ERRORS = (OSError, ValueError, KeyError, UnpicklingError, SafetensorError)
"""Errors of `from_pretrained` for files that are missing, damaged, do not fit, or would run code."""


def read_config(folder: Path) -> Any:
    """Return the configuration in a folder; raise InputError if there is none, or if it needs code of its own."""
    try:
        return transformers.AutoConfig.from_pretrained(folder, **LOCAL)
    except LOADING_ERRORS as error:
        raise loading_error(folder, error) from None


def load_model(folder: Path, config: Any, kind: Any) -> tuple[Any, list[str]]:
    """Return a model with the weights of a folder, and the names of its parameters that are not there or do not fit.

    On torch's meta device, no weights are read. Raises ValueError if the body of the model does not fit.
    """
    if torch.get_default_device().type == "meta":
        return kind.from_config(config), []
    with _silenced():  # a note says which weights are new
        options = {"config": config, "ignore_mismatched_sizes": True, "output_loading_info": True, **LOCAL}
        model, info = kind.from_pretrained(folder, weights_only=True, **options)
    body = model.base_model_prefix + "."
    mismatched = sorted(str(key[0]) for key in info["mismatched_keys"])
    if wrong := [key for key in mismatched if key.startswith(body)]:
        raise ValueError(f"{wrong[0]} has another shape than config.json says")
    return model, sorted({*info["missing_keys"], *mismatched})


def loading_error(folder: Path, error: Exception, missing: str = "") -> InputError:
    """Return the error for a folder that transformers cannot load, in one line; `missing` is what it was to load."""
    text = str(error).strip()
    if "trust_remote_code" in text:  # transformers advises to run the code
        return InputError(
            f"weights {folder}: need code of their own, which never runs: expected a model of transformers"
        )
    if isinstance(error, UnpicklingError):  # torch advises to switch the check off
        return InputError(f"weights {folder}: expected a checkpoint with only tensors and numbers")
    reason = text.splitlines()[0][:200] if text else type(error).__name__
    return InputError(": ".join(filter(None, (f"weights {folder}", missing, reason))))


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Keep transformers from printing its loading bar and its report."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
