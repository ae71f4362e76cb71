"""Text that comes from outside, made harmless for each format."""

from __future__ import annotations

import re
import unicodedata

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~]?)"
)
"""ANSI escape sequences: CSI, OSC, the other strings, and two-character ones."""

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$", "−": r"$-$", "Δ": r"$\Delta$", "↑": r"$\uparrow$",
    "↓": r"$\downarrow$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$", "[": "{[}", "]": "{]}",
}  # fmt: skip

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&$])")


def plain(text: object) -> str:
    """One line without escape sequences and control characters."""
    whole = str(text)
    if whole.isprintable():  # nearly always, and much quicker
        return " ".join(whole.split())
    kept = _ESCAPES.sub("", whole)
    kept = "".join(
        " " if character in "\t\n\r\v\f\x85\u2028\u2029" else character
        for character in kept
        if character in "\t\n\r\v\f\x85\u2028\u2029" or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
    )
    return " ".join(kept.split())


def markdown(text: object) -> str:
    """Text that Markdown shows as it is, within a line or in a table."""
    return _MARKDOWN.sub(r"\\\1", plain(text))


def latex(text: object) -> str:
    """Text that LaTeX sets as it is; the signs of our own tables become mathematics."""
    return "".join(_LATEX.get(character, character) for character in plain(text))


def csv_text(text: object) -> str:
    """Text that a spreadsheet does not take for a formula."""
    safe = plain(text)
    return f"'{safe}" if safe.startswith(("=", "+", "-", "@")) else safe
