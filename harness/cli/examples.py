"""Examples at the end of each command's help."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Return the epilog of a command with command lines, which are not wrapped."""
    return "\n".join(["\b", "Examples:", *(f"  dropbench {line}" for line in lines)])
