"""Wording that the output of several commands shares."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: "1 trial", "3 trials"."""
    return f"{number} {noun}{'s' * (number != 1)}"
