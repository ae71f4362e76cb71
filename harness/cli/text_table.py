"""Tables of texts, and their form in a pipe or a file.

`dropbench.harness.cli.table` prints them, and `dropbench.db.report.formats.writers` writes them as Markdown and LaTeX.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dropbench.harness.cli.plain_text import plain

MAX_WORD = 20
"""Longer words may break on a terminal, after hyphens if they have any."""
GAP = "  "
INDENT = "  "
"""Before a text below a row."""
_NUMBER = re.compile(r"[-+−]?\d[\d,.]*(e[-+]?\d+)?%?( ± .*)?")


@dataclass(frozen=True)
class Entry:
    """A text of a table; the best ones are bold."""

    text: str = ""
    best: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a table: the heading of a section, a row, or details below the numbers of a row."""

    kind: Literal["section", "row", "below"]
    entries: tuple[Entry, ...]


@dataclass
class TextTable:
    """A table of texts, which the writers of each format only escape and typeset.

    Attributes:
        header: the names of the columns.
        lines: a line may have fewer entries than the header.
        right: indices of the columns that are aligned right and never wrap.
        title: a line above the table, or "".
        above: lines above the table.
        notes: numbered from 1, and cited as ``[1]`` in the entries.
        below: lines below the table.
    """

    header: Sequence[str]
    lines: list[Line] = field(default_factory=list)
    right: Collection[int] = ()
    title: str = ""
    above: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)
    below: Sequence[str] = ()

    @classmethod
    def of_rows(
        cls, header: Sequence[str], rows: Iterable[Sequence[str]], above: Sequence[str] = (), below: Sequence[str] = ()
    ) -> TextTable:
        """Return a table of rows; columns of numbers are aligned right."""
        lines = [Line("row", tuple(map(Entry, row))) for row in rows]
        columns = ([line.entries[index].text for line in lines] for index in range(len(header)))
        right = [index for index, texts in enumerate(columns) if all(map(_NUMBER.fullmatch, filter(None, texts)))]
        return cls(header, lines, right if lines else (), above=above, below=below)

    @property
    def texts(self) -> list[list[str]]:
        """The texts of each line."""
        return [[entry.text for entry in line.entries] for line in self.lines]

    def cite(self, note: str | None) -> str:
        """Return the mark of a note, adding the note if it is new; "" for None."""
        if not note:
            return ""
        if note not in self.notes:
            self.notes.append(note)
        return f" [{self.notes.index(note) + 1}]"

    def columns(self, *, star: bool) -> list[list[str]]:
        """Return the printable texts of each column after its name; `star` marks the best, for outputs without bold.

        Texts below a row are indented, and numbers without ± are aligned with the means of the others.
        """
        columns = []
        for index, name in enumerate(self.header):
            entries = [line.entries[index] if index < len(line.entries) else Entry() for line in self.lines]
            texts = [plain(entry.text) for entry in entries]
            if index == 0:
                texts = [INDENT * (line.kind == "below") + text for line, text in zip(self.lines, texts, strict=True)]
            if index in self.right:
                tail = max((len(text) - text.index(" ± ") for text in texts if " ± " in text), default=0)
                texts = [text + " " * tail if text[-1:].isdigit() and " " not in text else text for text in texts]
            if star and any(entry.best for entry in entries):
                texts = [text + (" *" if entry.best else "  ") for text, entry in zip(texts, entries, strict=True)]
            columns.append([plain(name), *texts])
        return columns

    def fits(self, width: int, *, wrapped: bool) -> bool:
        """Return whether a terminal of this width holds the table, its texts wrapped between words or whole."""
        columns = self.columns(star=True)
        return fit(columns, self.right if wrapped else range(len(columns)), width) is not None

    def numbered_notes(self) -> list[str]:
        """Return the printable notes, each with its number."""
        return [f"[{number}] {plain(note)}" for number, note in enumerate(self.notes, 1)]


def to_text(table: TextTable, width: int | None = None) -> str:
    """Return one aligned line per line of the table, as wide as its texts; lines around it wrap at `width`."""
    from rich.cells import cell_len

    columns = table.columns(star=True)
    widths = [max(map(cell_len, texts)) for texts in columns]
    rows = []
    for texts in zip(*columns, strict=True):
        cells = []
        for index, (text, size) in enumerate(zip(texts, widths, strict=True)):
            padding = " " * (size - cell_len(text))
            cells.append(padding + text if index in table.right else text + padding)
        rows.append(GAP.join(cells).rstrip())
    rows.insert(1, "─" * (sum(widths) + len(GAP) * (len(widths) - 1)))
    for number, line in enumerate(table.lines):
        if number and line.kind == "section":
            rows[number + 2] = f"\n{rows[number + 2]}"
    above = [plain(line) for line in (table.title, *table.above) if line]
    below = [*table.numbered_notes(), *(plain(line).replace("bold: best", "*: best") for line in table.below)]
    above, below = ([wrap(line, width or sys.maxsize) for line in lines] for lines in (above, below))
    return "\n".join([*above, *rows, *([""] if below else []), *below])


def fit(columns: Sequence[Sequence[str]], right: Collection[int], width: int) -> tuple[int, list[int]] | None:
    """Return the gap between columns and their widths on a terminal; None if their words need more than `width`.

    The widest columns are narrowed first, and those of numbers never. (rich narrows columns below their words.)
    """
    from rich.cells import cell_len

    natural = [max(map(cell_len, texts)) for texts in columns]
    words = (max(map(cell_len, " ".join(texts).split()), default=0) for texts in columns)
    least = [
        size if index in right else min(size, MAX_WORD, longest if index else longest + len(INDENT))
        for index, (size, longest) in enumerate(zip(natural, words, strict=True))
    ]
    for gap in (2, 1):
        widths, room = [*natural], width - gap * (len(columns) - 1)
        while sum(widths) > room and widths != least:
            spare = (index for index, size in enumerate(widths) if size > least[index])
            widths[max(spare, key=widths.__getitem__)] -= 1
        if sum(widths) <= room:
            return gap, widths
    return None


def wrap(text: str, width: int, indent: str = "") -> str:
    """Return a text broken between words into lines, all but the first with an indent; longer words stay whole."""
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
