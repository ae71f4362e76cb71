"""Wikipedia's markup as plain text, by mwparserfromhell."""

from __future__ import annotations

import re

import mwparserfromhell
from mwparserfromhell.nodes import Tag, Wikilink
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

NOT_TEXT = ("file:", "image:", "category:", "media:")
"""Links that show a picture or sort the page; a dump in another language knows them by these names, too."""
NO_TEXT_IN = frozenset(
    {"ref", "table", "gallery", "math", "timeline", "score", "imagemap", "syntaxhighlight", "source"}
)


def plain_text(markup: str) -> str:
    """What a reader of the page reads: no templates, tables, notes or pictures; "" where nothing is left.

    Headings are lines of their own. Runs of white space become one space, runs of empty lines one.
    """
    try:
        code = mwparserfromhell.parse(markup, skip_style_tags=False)
    except ParserError:
        return ""
    _prune(code)
    stripped = code.strip_code(normalize=True, collapse=True)
    lines = (" ".join(line.split()) for line in re.sub(r"__[A-Z]+__", "", stripped).split("\n"))
    # Lines of which templates have left nothing but bullets and full stops.
    told = "\n".join(line if any(map(str.isalnum, line)) else "" for line in lines)
    return re.sub(r"\n{3,}", "\n\n", told).strip()


def _prune(code: Wikicode) -> None:
    """Take out what is no text, inside of tags too."""
    code.nodes = [node for node in code.nodes if not _is_no_text(node)]
    for node in code.nodes:
        if isinstance(node, Tag) and node.contents is not None:
            _prune(node.contents)


def _is_no_text(node: object) -> bool:
    if isinstance(node, Wikilink):
        return str(node.title).strip().lower().startswith(NOT_TEXT)
    return isinstance(node, Tag) and str(node.tag).strip().lower() in NO_TEXT_IN
