"""Generated running text in the published formats: each word makes a few others likely to follow."""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

from tasks.data.dataset import Dataset
from tasks.data.synthetic_text import invented_words

VOCABULARY = 120
FOLLOWERS = 4
"""A word is followed by one of so many, eight times of ten."""
SENTENCES = 60
PAGES = 240
FILES = 3


def wikitext(folder: Path, dataset: Dataset, seed: int) -> None:
    """wiki.train.raw, wiki.valid.raw and wiki.test.raw, in articles."""
    text = _sentences(seed)
    for name, articles in zip(dataset.layouts[0].files, (30, 4, 4), strict=True):
        parts = []
        for number in range(articles):
            paragraph = " ".join(next(text) for _ in range(SENTENCES))
            parts.append(f" \n = {name} {number} = \n \n {paragraph} \n {' '.join(next(text) for _ in range(9))} \n")
        (folder / name).write_text("".join(parts), encoding="utf-8")


def text_files(folder: Path, dataset: Dataset, seed: int) -> None:
    """A few files, a sentence a line."""
    text = _sentences(seed)
    for number in range(FILES):
        lines = [next(text) + "\n" for _ in range(12 * SENTENCES)]
        (folder / f"{number}.txt").write_text("".join(lines), encoding="utf-8")


def wikipedia(folder: Path, dataset: Dataset, seed: int) -> None:
    """A dump in two files: articles with some markup, redirects, and pages of another namespace."""
    text = _sentences(seed)
    for file in range(2):
        pages = ['<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="en">']
        for number in range(PAGES // 2):
            title = f"Page {file}.{number}"
            if number % 10 == 9:
                pages.append(_page(title, "0", "#REDIRECT [[Page 0.0]]", '<redirect title="Page 0.0" />'))
            elif number % 10 == 8:
                pages.append(_page(f"Talk:{title}", "1", "Is this so?"))
            else:
                body = "".join(f"{next(text)}<ref>{next(text)}</ref> " for _ in range(9))
                pages.append(_page(title, "0", f"{{{{Infobox|a=1}}}}\n'''{title}''' {body}\n\n[[Category:Pages]]"))
        pages.append("</mediawiki>\n")
        (folder / f"pages-articles{file + 1}.xml.bz2").write_bytes(bz2.compress("\n".join(pages).encode()))


def _page(title: str, namespace: str, markup: str, redirect: str = "") -> str:
    return (
        f"<page><title>{title}</title><ns>{namespace}</ns>{redirect}"
        f"<revision><text>{escape(markup)}</text></revision></page>"
    )


def _sentences(seed: int) -> Iterator[str]:
    """Sentences without end: a chain of words."""
    vocabulary = list(invented_words(VOCABULARY))
    random = np.random.RandomState(seed)
    followers = random.randint(VOCABULARY, size=(VOCABULARY, FOLLOWERS))
    at = 0
    while True:
        sentence = []
        for _ in range(random.randint(6, 16)):
            at = int(
                followers[at, random.randint(FOLLOWERS)] if random.random_sample() < 0.8 else random.randint(VOCABULARY)
            )
            sentence.append(vocabulary[at])
        yield f"{' '.join(sentence).capitalize()} ."
