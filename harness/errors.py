"""User errors, reported in one line: what is wrong, where, and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import accumulate, takewhile


class InputError(Exception):
    """The user's input is wrong. The command line prints the message alone and exits with code 2."""


class UnsuitableError(InputError):
    """A regularizer cannot work with a task or model, by its method. In a suite, the trial is skipped instead."""


ENQUEUE_AGAIN = "enqueue it again, as another trial"
"""The end of the cause of a failed trial whose code, data, weights or plug-ins have changed: a retry fails, too."""
CHANGED = f"have changed since the trial was made: restore them, or {ENQUEUE_AGAIN}"
"""The end of a message on files that a trial needs."""


MAX_KNOWN = 400
"""Characters of the known names that an error lists."""
SYNONYMS = {
    "learning_rate": "lr", "lr_scheduler_type": "lr_schedule", "scheduler": "lr_schedule", "num_train_epochs": "epochs",
    "max_steps": "steps", "max_grad_norm": "clip_norm", "per_device_train_batch_size": "batch_size", "warmup_ratio":
    "warmup", "warmup_steps": "warmup", "gradient_accumulation_steps": "accumulate", "max_seq_length": "max_length",
    "dropout": "model.dropout", "hidden_dropout_prob": "model.dropout",
}  # fmt: skip
"""Recipe keys by the names that transformers' Trainer and its scripts have for them."""


def unknown_name(kind: str, name: str, known: Iterable[str], own: str = "") -> InputError:
    """Return the error for a name that does not exist, with the nearest names that do; `own`: how to add others."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    near += [known for known in names if name and known.startswith(name) and known not in near]
    if (synonym := SYNONYMS.get(name)) is not None and synonym.partition(".")[0] in names:
        hint = f"did you mean {synonym}?"
    elif near:
        hint = f"did you mean {' or '.join(near[:3])}?"
    else:
        shown = list(takewhile(lambda end: end <= MAX_KNOWN, accumulate(len(known) + 2 for known in names)))
        hint = f"known: {', '.join([*names[: len(shown)], '…'][: len(names)]) or 'none'}"
    return InputError(f"unknown {kind} '{name}': {hint}" + (f" (your own: {own})" if own else ""))


def check_text(text: str, source: str, *, quotes: bool = True) -> None:
    """Raise InputError for a text that files and databases cannot hold: with a NUL, or with a surrogate.

    Python has a surrogate for each byte of a name that is not UTF-8; in JSON it is half of an escaped character. The
    message `quotes` the text, unless it may be secret.
    """
    try:
        text.encode()
        valid = "\0" not in text
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise InputError(f"{source}{f' {text!a:.200}' if quotes else ''}: expected text in UTF-8 without NUL")


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 trial", "3,000 trials"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


_MODULES = {
    "": "accelerate seqeval sqlalchemy submitit timm tokenizers torch torchvision",
    "detection": "addict cv2 mmcv mmdet mmengine pkg_resources pycocotools",
    "translation": "fairseq hydra omegaconf sacrebleu sacremoses",
    "meshes": "fast_simplification",
    "sweep": "optuna",
    "lora": "peft",
    "transformers": "transformers",
}
EXTRAS = {module: extra for extra, modules in _MODULES.items() for module in modules.split()}
"""The extra that installs a library, by the module to import; "" for a library that DropBench always needs."""
NO_DEPS = {
    "detection": "pip install --no-deps mmcv-lite==2.1.0 mmdet==3.3.0 mmengine==0.10.7",
    "translation": "READTHEDOCS=1 pip install --no-deps fairseq==0.12.2",
}
"""The second command of an extra, for libraries whose own requirements pip cannot meet. READTHEDOCS: without C++."""


def missing_library(error: BaseException) -> str | None:
    """Return the library that a failed import needs, and how to install it; None for any other error."""
    library = ((isinstance(error, ModuleNotFoundError) and error.name) or "").partition(".")[0]
    return f"needs {library}: {install_commands(library)}" if library in EXTRAS else None


def install_commands(library: str) -> str:
    """Return the commands, in backticks, that install a library of `EXTRAS`."""
    if not (extra := EXTRAS[library]):
        return "`pip install dropbench`"
    return f"`pip install 'dropbench[{extra}]'`" + (f" and `{NO_DEPS[extra]}`" if extra in NO_DEPS else "")


class Interrupted(Exception):
    """The trial was stopped on request and has written a checkpoint."""


class Diverged(Exception):
    """The loss is no longer finite."""
