"""Writers of synthetic running text in the published formats: a Markov chain of words."""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

from dropbench.tasks.data.dataset import Dataset
from dropbench.tasks.data.synthetic.text import invented_words

VOCABULARY_SIZE = 120
FOLLOWERS = 4
"""Number of likely followers of a word, one of which follows it in eight of ten cases."""
SENTENCES = 60
PAGES = 240
FILES = 3


def wikitext(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write wiki.train.raw, wiki.valid.raw and wiki.test.raw, in articles."""
    text = _sentences(seed)
    for name, articles in zip(dataset.layouts[0].files, (30, 4, 4), strict=True):
        parts = []
        for number in range(articles):
            paragraph = " ".join(next(text) for _ in range(SENTENCES))
            parts.append(f" \n = {name} {number} = \n \n {paragraph} \n {' '.join(next(text) for _ in range(9))} \n")
        (folder / name).write_text("".join(parts), encoding="utf-8")


def text_files(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write a few files, one sentence per line."""
    text = _sentences(seed)
    for number in range(FILES):
        lines = [next(text) + "\n" for _ in range(12 * SENTENCES)]
        (folder / f"{number}.txt").write_text("".join(lines), encoding="utf-8")


def wikipedia(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write a dump in two files: articles with some markup, redirects, and pages of another namespace."""
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
    """Yield sentences of the chain without end."""
    vocabulary = list(invented_words(VOCABULARY_SIZE))
    random = np.random.RandomState(seed)
    followers = random.randint(VOCABULARY_SIZE, size=(VOCABULARY_SIZE, FOLLOWERS))
    word = 0
    while True:
        sentence = []
        for _ in range(random.randint(6, 16)):
            is_likely = random.random_sample() < 0.8
            word = int(followers[word, random.randint(FOLLOWERS)]) if is_likely else random.randint(VOCABULARY_SIZE)
            sentence.append(vocabulary[word])
        yield f"{' '.join(sentence).capitalize()} ."
