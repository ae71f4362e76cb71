"""Convert Wikipedia's markup to plain text, by mwparserfromhell."""

from __future__ import annotations

import re

import mwparserfromhell
from mwparserfromhell.nodes import Tag, Wikilink
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

EXCLUDED_LINKS = ("file:", "image:", "category:", "media:")
"""Prefixes of links to media and categories; dumps in all languages use these names."""
EXCLUDED_TAGS = frozenset(
    {"ref", "table", "gallery", "math", "timeline", "score", "imagemap", "syntaxhighlight", "source"}
)


def plain_text(markup: str) -> str:
    """Return the running text of a page, without templates, tables, notes and pictures; may be "".

    Headings are lines of their own. Runs of white space become one space, runs of empty lines become one.
    """
    try:
        code = mwparserfromhell.parse(markup, skip_style_tags=False)
    except ParserError:
        return ""
    _prune(code)
    stripped = code.strip_code(normalize=True, collapse=True)
    lines = (" ".join(line.split()) for line in re.sub(r"__[A-Z]+__", "", stripped).split("\n"))
    # Drop lines of which the removed templates have left only bullets and full stops.
    text = "\n".join(line if any(map(str.isalnum, line)) else "" for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _prune(code: Wikicode) -> None:
    """Remove excluded links and tags, also inside of other tags."""
    code.nodes = [node for node in code.nodes if not _is_excluded(node)]
    for node in code.nodes:
        if isinstance(node, Tag) and node.contents is not None:
            _prune(node.contents)


def _is_excluded(node: object) -> bool:
    if isinstance(node, Wikilink):
        return str(node.title).strip().lower().startswith(EXCLUDED_LINKS)
    return isinstance(node, Tag) and str(node.tag).strip().lower() in EXCLUDED_TAGS
