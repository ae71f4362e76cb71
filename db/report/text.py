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
    "|": r"\textbar{}", '"': "{''}", "±": r"$\pm$", "−": r"$-$", "Δ": r"$\Delta$", "↑": r"$\uparrow$",
    "↓": r"$\downarrow$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$", "[": "{[}", "]": "{]}",
}  # fmt: skip

MOST = 2000
"""Letters of a text from outside that a page shows."""

IN_LATEX = 300
"""Letters in a cell or a caption: TeX has no lines longer than 5.7 m, and a letter may need 2 cm (``[U+1F600]``)."""

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


def cut(text: object, most: int = MOST) -> str:
    """One harmless line of at most so many letters, saying how many are left out."""
    whole = plain(text)
    return whole if len(whole) <= most else f"{whole[:most]}… ({len(whole) - most:,} more letters)"


def markdown(text: object) -> str:
    """Text that Markdown shows as it is, within a line or in a table."""
    return _MARKDOWN.sub(r"\\\1", plain(text))


def latex(text: object, most: int = IN_LATEX) -> str:
    """Text of at most so many letters that LaTeX sets as it is; the signs of our own tables become mathematics."""
    return "".join(_LATEX.get(character, character) for character in cut(text, most))


def latex_definitions(text: str) -> list[str]:
    r"""What lets pdfLaTeX set each character of a document, as ``[U+05D0]`` where it knows no other way.

    It refuses a document with an unknown one. It keeps what it knows as ``\u8:`` and the character's bytes; XeLaTeX and
    LuaLaTeX, which set whatever the font has, do not look there.
    """
    lines = []
    for one in sorted({character for character in text if not character.isascii()}):
        name, shown = rf"u8:\detokenize{{{one}}}", f"{{[}}U+{ord(one):04X}{{]}}"
        lines.append(rf"\ifcsname {name}\endcsname\else\expandafter\gdef\csname {name}\endcsname{{{shown}}}\fi")
    return lines


def csv_text(text: object) -> str:
    """Text that a spreadsheet does not take for a formula."""
    safe = plain(text)
    return f"'{safe}" if safe.startswith(("=", "+", "-", "@")) else safe
