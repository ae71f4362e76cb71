"""Reader of Wikipedia dumps (``pages-articles``): bzip2-compressed XML of any size, in one or more files.

The files are not trusted: a document type, which could declare entities that expand without bound, is refused, no
entity is resolved, and nothing is fetched. mwparserfromhell converts the markup to plain text.
"""

from __future__ import annotations

import bz2
import multiprocessing
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import mwparserfromhell
from lxml import etree
from mwparserfromhell.nodes import Tag, Wikilink
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

from dropbench.harness.errors import InputError
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.language.documents import LanguageData, TextChunk
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.splits import SPLITS

ARTICLES = "0"
"""Namespace of articles; others are talk, users, templates, files …"""
HELD_OUT_SHARE = 20
"""Dev and test each get one of this number of characters."""
LARGE = 256 << 20
"""Number of bytes above which one process per core converts the pages."""
BATCH_PAGES = 2048
EXCLUDED_LINKS = ("file:", "image:", "category:", "media:")
"""Prefixes of links to media and categories; dumps in all languages use these names."""
EXCLUDED_TAGS = {"ref", "table", "gallery", "math", "timeline", "score", "imagemap", "syntaxhighlight", "source"}

Page = tuple[str, str]
"""Title and markup."""


def read(source: Source) -> LanguageData:
    """Return the articles as running text; redirects and other namespaces are left out and counted.

    A page is assigned to dev, or to test, if that has less than a twentieth of the characters so far, else to train.

    Raises:
        InputError: while the text is read: a file is truncated, damaged, or not a dump.
    """
    skipped: Counter[str] = Counter()

    def chunks() -> Iterator[TextChunk]:
        skipped.clear()
        yield from _assign_splits(_texts(_pages(source.files, skipped), source.files), skipped)

    note = "90 % train, 5 % dev, 5 % test of the characters, whole pages, spread over the dump"
    return LanguageData(source.name, chunks, (note,), skipped)


def _assign_splits(texts: Iterator[str], skipped: Counter[str]) -> Iterator[TextChunk]:
    sizes: dict[Split, int] = {"train": 0, "dev": 0, "test": 0}
    for text in texts:
        if not text:
            skipped["pages without text"] += 1
            continue
        total = sum(sizes.values())
        split: Split = next((name for name in SPLITS[1:] if HELD_OUT_SHARE * sizes[name] < total), "train")
        sizes[split] += len(text)
        yield TextChunk(split, text, rows=1, last=True)


def _texts(pages: Iterator[Page], files: tuple[Path, ...]) -> Iterator[str]:
    """Yield the text of each page, in order."""
    if sum(path.stat().st_size for path in files) <= LARGE:
        yield from map(_text, pages)
        return
    # Spawned, because a fork of a process with threads of torch or tokenizers may hang. SLURM sends the signal before a
    # time limit to them, too, and the pool would wait forever for what a process that it ends was doing.
    ignoring = signal.signal, (signal.SIGUSR2, signal.SIG_IGN)
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0)), *ignoring) as pool:
        while block := list(islice(pages, BATCH_PAGES)):
            yield from pool.imap(_text, block, chunksize=16)


def _text(page: Page) -> str:
    title, markup = page
    text = plain_text(markup)
    return f"{title}\n\n{text}\n" if text else ""


def _pages(files: tuple[Path, ...], skipped: Counter[str]) -> Iterator[Page]:
    for path in files:
        count = 0
        for namespace, redirect, page in dump_pages(path):
            count += 1
            if namespace != ARTICLES:
                skipped["pages of other namespaces"] += 1
            elif redirect:
                skipped["redirects"] += 1
            else:
                yield page
        if not count:
            raise InputError(f"{path}: no pages: expected a Wikipedia dump (pages-articles, .xml.bz2)")


def dump_pages(path: Path) -> Iterator[tuple[str, bool, Page]]:
    """Yield the namespace, True for a redirect, and the title and markup of each page of a file.

    Raises:
        InputError: the file is truncated, not bzip2, not well-formed XML, or has a document type.
    """
    try:
        with bz2.open(path) as file:
            parsed = etree.iterparse(
                cast(BinaryIO, file),
                tag="{*}page",
                resolve_entities=False,
                load_dtd=False,
                no_network=True,
                remove_comments=True,
                remove_pis=True,
            )
            for _, page in parsed:
                tree = page.getroottree()
                if tree.docinfo.internalDTD is not None:
                    raise InputError(f"{path}: a document type declaration: expected a Wikipedia dump, which has none")
                markup = page.findtext("{*}revision/{*}text") or ""
                is_redirect = page.find("{*}redirect") is not None
                yield page.findtext("{*}ns") or "", is_redirect, (page.findtext("{*}title") or "", markup)
                page.clear()
                parent = page.getparent()
                while parent is not None and page.getprevious() is not None:
                    del parent[0]
    except EOFError:
        if not path.stat().st_size:
            raise InputError(f"{path}: the file is empty") from None
        raise InputError(f"{path}: the file is truncated: copy it again") from None
    except etree.XMLSyntaxError as error:
        raise InputError(f"{path}: not well-formed XML: {error.msg}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'damaged, or not a bzip2 file: copy it again'}") from None


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
