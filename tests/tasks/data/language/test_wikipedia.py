"""Wikipedia dumps: pages, pages left out, and files that are invalid or harmful."""

from __future__ import annotations

import bz2
import os
import signal
from collections import Counter
from itertools import islice
from multiprocessing import active_children
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from dropbench.tasks.data import read
from dropbench.tasks.data.language.documents import LanguageData
from dropbench.tasks.data.language.wikipedia import dump_pages, plain_text
from tests.input_errors import one_line
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
    assert [(chunk.split, chunk.text, chunk.rows, chunk.last) for chunk in data.chunks()] == [
        ("train", "Owl & Co\n\nOwls are birds.\n", 1, True),
        ("dev", "Newt\n\nA newt.\n", 1, True),
        ("test", "Toad\n\nA toad.\n", 1, True),
    ]
    assert data.notes[1:] == (
        "left out: pages of other namespaces: 1", "left out: pages without text: 1", "left out: redirects: 1",
    )  # fmt: skip
    assert data.rows() == {"train": 1, "dev": 1, "test": 1}
    assert len(data.notes) == 4  # a second reading counts afresh


def test_pages_are_split_by_characters_and_spread(source: WriteSource) -> None:
    pages = [page(f"P{number}", "word " * (5 + number * 37 % 90)) for number in range(400)]
    data = read(source("enwiki", {"a.xml.bz2": dump(*pages)}), LanguageData)
    sizes = dict.fromkeys(("train", "dev", "test"), 0)
    positions: dict[str, list[int]] = {split: [] for split in sizes}
    for number, chunk in enumerate(data.chunks()):
        sizes[chunk.split] += len(chunk.text)
        positions[chunk.split].append(number)
    total = sum(sizes.values())
    assert sizes["dev"] / total == pytest.approx(0.05, abs=0.003)
    assert sizes["test"] / total == pytest.approx(0.05, abs=0.003)
    assert max(positions["dev"]) > 350
    assert len([position for position in positions["dev"] if position < 200]) > len(positions["dev"]) // 3


def test_a_large_dump_is_converted_by_several_processes(source: WriteSource, monkeypatch: pytest.MonkeyPatch) -> None:
    located = source("enwiki", {"a.xml.bz2": dump(*(page(f"P{n}", f"'''word''' {n}") for n in range(50)))})
    single_process = list(read(located, LanguageData).chunks())
    monkeypatch.setattr("dropbench.tasks.data.language.wikipedia.LARGE", 0)
    monkeypatch.setattr("dropbench.tasks.data.language.wikipedia.BATCH_PAGES", 16)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    chunks = iter(read(located, LanguageData).chunks())
    first = next(chunks)
    ready = [child.pid for child in active_children() if child.pid and _ignores_usr2(child.pid)]
    assert ready
    for pid in ready:
        os.kill(pid, signal.SIGUSR2)  # as SLURM does before a time limit
    assert [first, *chunks] == single_process
    assert len(single_process) == 50


def _ignores_usr2(pid: int) -> bool:
    ignored = Path(f"/proc/{pid}/status").read_text().partition("SigIgn:")[2].split()[0]
    return bool(int(ignored, 16) >> signal.SIGUSR2 - 1 & 1)


COMPLETE = dump(*(page(f"P{number}", f"text {number} " * 400) for number in range(40)))
BOMB = """<?xml version="1.0"?><!DOCTYPE m [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<mediawiki><page><title>x</title><ns>0</ns><revision><text>&b;&b;</text></revision></page></mediawiki>"""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (COMPLETE[: len(COMPLETE) // 2], "the file is truncated: copy it again"),
        (COMPLETE[:200] + bytes(8) + COMPLETE[208:], "damaged, or not a bzip2 file"),
        (bz2.compress(bz2.decompress(COMPLETE)[:900]), "not well-formed XML: "),
        (bz2.compress(b"<html><body>moved</body></html>"), "no pages: expected a Wikipedia dump"),
        (bz2.compress(BOMB.encode()), "a document type declaration: expected a Wikipedia dump, which has none"),
        (
            bz2.compress(b'<!DOCTYPE m SYSTEM "file:///etc/hostname"><mediawiki><page></page></mediawiki>'),
            "a document type declaration",
        ),
    ],
)
def test_invalid_dumps_are_errors_of_one_line(source: WriteSource, content: bytes, message: str) -> None:
    with one_line(f"dump.bz2: {message}"):
        read(source("enwiki", {"dump.bz2": content}), LanguageData).rows()


def test_a_dump_of_many_streams_is_read_to_its_end(tmp_path: Path) -> None:
    content = bz2.decompress(COMPLETE)
    path = tmp_path / "multistream.xml.bz2"
    path.write_bytes(b"".join(bz2.compress(content[start : start + 5000]) for start in range(0, len(content), 5000)))
    assert len(list(dump_pages(path))) == 40


def test_the_real_sample(real: RealSource) -> None:
    source = real("enwiki")
    kinds = Counter((namespace, redirect) for file in source.files for namespace, redirect, _ in dump_pages(file))
    assert kinds == {("0", False): 106, ("0", True): 99, ("4", True): 1}
    chunks = list(islice(read(source, LanguageData).chunks(), 12))
    assert chunks[0].text.startswith("Anarchism\n\nAnarchism is a political philosophy")
    text = "".join(chunk.text for chunk in chunks)
    assert len(text) > 200_000
    # Remaining markup would contain these marks.
    for mark in ("{{", "[[", "<ref", "'''", "thumb|", "Category:"):
        assert text.count(mark) < 5, mark


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("'''Bold''' and ''slanted'' [[page|words]] and [[page]]s", "Bold and slanted words and pages"),
        ("A&nbsp;b &amp; c &lt;d&gt; &eacute;", "A b & c <d> é"),
        ("{{Infobox | a = {{nested}} }}\nText{{cite}}.", "Text."),
        ("[[File:Owl.jpg|thumb|200px|An [[owl]]]]An owl.[[Category:Birds|*]]", "An owl."),
        ("One.<ref name=a>A book</ref> Two.<ref name=a />", "One. Two."),
        ("Before\n{| class=wikitable\n! head\n|-\n| cell\n|}\nAfter", "Before\n\nAfter"),
        ("== History ==\n\n\n\nLong   ago", "History\n\nLong ago"),
        ("* first\n* {{x}}\n* second", "first\n\nsecond"),
        ("<math>x^2</math> is a square<!-- a comment -->", "is a square"),
        ("__NOTOC__\nText", "Text"),
        ("[http://example.org a site] and http://example.org", "a site and http://example.org"),
        ("{{only}}\n{{templates}}", ""),
        ("", ""),
        ("an open {{template and [[link", "an open {{template and [[link"),
    ],
)
def test_plain_text(markup: str, text: str) -> None:
    assert plain_text(markup) == text
