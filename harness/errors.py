"""User errors, reported in one line: what is wrong, where, and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(Exception):
    """The user's input is wrong. The command line prints the message alone and exits with code 2."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that does not exist, with the nearest names that do."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    near += [known for known in names if name and known.startswith(name) and known not in near]
    if near:
        hint = f"did you mean {' or '.join(near[:3])}?"
    elif len(names) <= 20:
        hint = f"known: {', '.join(names) or 'none'}"
    else:
        hint = f"there are {len(names)} of them: dropbench list"
    return InputError(f"unknown {kind} '{name}': {hint}")


class Interrupted(Exception):
    """The trial was stopped on request and has written a checkpoint."""


class Diverged(Exception):
    """The loss is no longer finite."""
