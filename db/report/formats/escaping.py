"""Escape untrusted text for each format."""

from __future__ import annotations

import re

from dropbench.harness.cli.plain_text import plain

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "{''}", "±": r"$\pm$", "−": r"$-$", "Δ": r"$\Delta$", "↑": r"$\uparrow$",
    "↓": r"$\downarrow$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$", "[": "{[}", "]": "{]}",
}  # fmt: skip

MAX_TEXT = 2000
"""Maximum characters of an untrusted text on a page."""

MAX_LATEX_TEXT = 300
"""Maximum characters of a cell or caption: a line of TeX has at most 5.7 m, and ``[U+1F600]`` takes 2 cm."""

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&$])")


def cut(text: object, limit: int = MAX_TEXT) -> str:
    """Return one harmless line of at most `limit` characters, followed by the number of characters cut off."""
    line = plain(text)
    return line if len(line) <= limit else f"{line[:limit]}… ({len(line) - limit:,} more characters)"


def markdown(text: object) -> str:
    """Return text that Markdown shows literally, within a line or in a table."""
    return _MARKDOWN.sub(r"\\\1", plain(text))


def latex(text: object, limit: int = MAX_LATEX_TEXT) -> str:
    """Return at most `limit` characters that LaTeX sets literally; the symbols of our own tables become math."""
    return "".join(_LATEX.get(character, character) for character in cut(text, limit))


def latex_definitions(text: str) -> list[str]:
    r"""Return definitions that let pdfLaTeX set every character of a document, unknown ones as ``[U+05D0]``.

    pdfLaTeX rejects documents with unknown characters. It defines known ones as ``\u8:`` and the character's bytes;
    XeLaTeX and LuaLaTeX ignore these definitions, as they set every character of the font.
    """
    lines = []
    for character in sorted({character for character in text if not character.isascii()}):
        name, code = rf"u8:\detokenize{{{character}}}", f"{{[}}U+{ord(character):04X}{{]}}"
        lines.append(rf"\ifcsname {name}\endcsname\else\expandafter\gdef\csname {name}\endcsname{{{code}}}\fi")
    return lines


def csv_text(text: object) -> str:
    """Return text that a spreadsheet does not read as a formula."""
    line = plain(text)
    return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line
