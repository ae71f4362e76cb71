"""Wikipedia dumps: pages, what is left out, and files that are no dump, or were made to harm."""

from __future__ import annotations

import bz2
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import pytest

from harness.errors import InputError
from tasks.data import read
from tasks.data.language import LanguageData
from tasks.data.wikipedia import dump_pages

if TYPE_CHECKING:
    from tests.tasks.data.conftest import RealSource, WriteSource

NAMESPACE = 'xmlns="http://www.mediawiki.org/xml/export-0.10/"'


def page(title: str, markup: str, namespace: int = 0, redirect: bool = False) -> str:
    to = '<redirect title="Elsewhere" />' if redirect else ""
    return (
        f"<page><title>{escape(title)}</title><ns>{namespace}</ns><id>7</id>{to}"
        f'<revision><id>8</id><text xml:space="preserve">{escape(markup)}</text></revision></page>'
    )


def dump(*pages: str, attributes: str = NAMESPACE) -> bytes:
    site = "<siteinfo><sitename>Wikipedia</sitename></siteinfo>"
    return bz2.compress(f"<mediawiki {attributes}>\n{site}\n{''.join(pages)}\n</mediawiki>\n".encode())


def test_articles_are_text_and_the_rest_is_counted(source: WriteSource) -> None:
    data = read(
        source(
            "enwiki",
            {
                "pages-articles1.xml.bz2": dump(
                    page("Owl & Co", "'''Owls''' are [[bird]]s.<ref>A book</ref>"),
                    page("Talk:Owl", "Are they?", namespace=1),
                    page("Owls", "#REDIRECT [[Owl]]", redirect=True),
                    page("Empty", "{{Stub}}"),
                ),
                "pages-articles2.xml.bz2": dump(page("Newt", "A ''newt''."), page("Toad", "A toad."), attributes=""),
            },
        ),
        LanguageData,
    )
    assert [(piece.split, piece.text, piece.rows, piece.last) for piece in data.pieces()] == [
        ("train", "Owl & Co\n\nOwls are birds.\n", 1, True),
        ("dev", "Newt\n\nA newt.\n", 1, True),
        ("test", "Toad\n\nA toad.\n", 1, True),
    ]
    assert data.notes[1:] == (
        "left out: pages of other namespaces: 1", "left out: pages without text: 1", "left out: redirects: 1",
    )  # fmt: skip
    assert data.rows() == {"train": 1, "dev": 1, "test": 1}
    assert len(data.notes) == 4  # a second reading counts afresh


def test_pages_are_parted_by_characters_and_spread(source: WriteSource) -> None:
    pages = [page(f"P{number}", "word " * (5 + number * 37 % 90)) for number in range(400)]
    data = read(source("enwiki", {"a.xml.bz2": dump(*pages)}), LanguageData)
    sizes = dict.fromkeys(("train", "dev", "test"), 0)
    places: dict[str, list[int]] = {split: [] for split in sizes}
    for number, piece in enumerate(data.pieces()):
        sizes[piece.split] += len(piece.text)
        places[piece.split].append(number)
    total = sum(sizes.values())
    assert sizes["dev"] / total == pytest.approx(0.05, abs=0.003)
    assert sizes["test"] / total == pytest.approx(0.05, abs=0.003)
    assert max(places["dev"]) > 350
    assert len([place for place in places["dev"] if place < 200]) > len(places["dev"]) // 3


def test_a_large_dump_is_turned_into_text_by_many_processes(
    source: WriteSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    located = source("enwiki", {"a.xml.bz2": dump(*(page(f"P{n}", f"'''word''' {n}") for n in range(50)))})
    alone = list(read(located, LanguageData).pieces())
    monkeypatch.setattr("tasks.data.wikipedia.LARGE", 0)
    monkeypatch.setattr("tasks.data.wikipedia.PAGES_AT_ONCE", 16)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert list(read(located, LanguageData).pieces()) == alone
    assert len(alone) == 50


WHOLE = dump(*(page(f"P{number}", f"text {number} " * 400) for number in range(40)))
BOMB = """<?xml version="1.0"?><!DOCTYPE m [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<mediawiki><page><title>x</title><ns>0</ns><revision><text>&b;&b;</text></revision></page></mediawiki>"""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (WHOLE[: len(WHOLE) // 2], "the file is cut short: copy it again"),
        (b"no bzip2 at all", "no bzip2 file, or a damaged one"),
        (WHOLE[:200] + bytes(8) + WHOLE[208:], "no bzip2 file, or a damaged one"),
        (bz2.compress(bz2.decompress(WHOLE)[:900]), "no well-formed XML: "),
        (bz2.compress(b"just text"), "no well-formed XML: "),
        (bz2.compress(b"<mediawiki><page><title>\xe9</title></page></mediawiki>"), "no well-formed XML: "),
        (bz2.compress(b"<html><body>moved</body></html>"), "no page: expected a Wikipedia dump"),
        (bz2.compress(BOMB.encode()), "a document type declaration: expected a Wikipedia dump, which has none"),
        (
            bz2.compress(b'<!DOCTYPE m SYSTEM "file:///etc/hostname"><mediawiki><page></page></mediawiki>'),
            "a document type declaration",
        ),
    ],
)
def test_what_is_no_dump_is_one_line(source: WriteSource, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=f"dump.bz2: {message}") as caught:
        read(source("enwiki", {"dump.bz2": content}), LanguageData).rows()
    assert "\n" not in str(caught.value)


def test_a_dump_of_many_streams_is_read_to_its_end(tmp_path: Path) -> None:
    content = bz2.decompress(WHOLE)
    path = tmp_path / "multistream.xml.bz2"
    path.write_bytes(b"".join(bz2.compress(content[at : at + 5000]) for at in range(0, len(content), 5000)))
    assert len(list(dump_pages(path))) == 40


def test_the_real_sample(real: RealSource) -> None:
    source = real("enwiki")
    kinds = Counter((namespace, redirect) for file in source.files for namespace, redirect, _ in dump_pages(file))
    assert kinds == {("0", False): 106, ("0", True): 99, ("4", True): 1}
    pieces = list(islice(read(source, LanguageData).pieces(), 12))
    assert pieces[0].text.startswith("Anarchism\n\nAnarchism is a political philosophy")
    text = "".join(piece.text for piece in pieces)
    assert len(text) > 200_000
    # Markup that would still be there leaves its marks.
    for mark in ("{{", "[[", "<ref", "'''", "thumb|", "Category:"):
        assert text.count(mark) < 5, mark
