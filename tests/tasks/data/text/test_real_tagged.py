"""Real tagged sets and SNLI, if DROPBENCH_DATA has them."""

from __future__ import annotations

from collections import Counter

from seqeval.metrics.sequence_labeling import get_entities

from dropbench.tasks.data import read
from dropbench.tasks.data.check import check
from dropbench.tasks.data.text.snli import PairData
from dropbench.tasks.data.text.tagged import TaggedData, TaggedSplit
from tests.tasks.data.conftest import RealSource


def spans(split: TaggedSplit) -> Counter[str]:
    return Counter(kind for tags in split.tags for kind, _, _ in get_entities(list(tags)))


def test_conll2000(real: RealSource) -> None:
    source = real("conll2000")
    data = read(source, TaggedData)
    assert data.rows() == {"train": 8042, "dev": 894, "test": 2012}
    assert data.tokens() == {"train": 190088, "dev": 21639, "test": 47377}
    assert check(source).differences() == []
    assert len(data.classes) == 23
    assert data.test.words[0][:4] == ("Rockwell", "International", "Corp.", "'s")
    assert data.test.columns["pos"][0][:4] == ("NNP", "NNP", "NNP", "POS")
    # Chunks of test, as counted by the shared task's scorer.
    assert spans(data.test)["NP"] == 12422
    assert spans(data.test).total() == 23852


def test_wnut17(real: RealSource) -> None:
    source = real("wnut17")
    data = read(source, TaggedData)
    assert data.rows() == {"train": 3394, "dev": 1009, "test": 1287}
    assert data.tokens() == {"train": 62730, "dev": 15733, "test": 23394}
    assert check(source).differences() == []
    # Entities of test by type, as stated by the shared task's paper.
    assert spans(data.test) == {
        "person": 429, "location": 150, "corporation": 66, "product": 127, "creative-work": 142, "group": 165,
    }  # fmt: skip


def test_treebank_sample(real: RealSource) -> None:
    data = read(real("ptb"), TaggedData)
    assert sum(data.tokens().values()) == 94084
    assert data.tokens() == {"train": 70927, "dev": 9810, "test": 13347}
    assert len(data.classes) == 45
    assert "6,592 traces (-NONE-) are no words" in data.notes
    assert all("-NONE-" not in rows for rows in data.class_rows().values())
    words = {word for split in data.splits().values() for sentence in split.words for word in sentence}
    assert words >= {"-LRB-", "-RRB-", "``", "''", "Vinken"}
    assert not any(set(word) & set("() ") for word in words)


def test_snli(real: RealSource) -> None:
    source = real("snli")
    data = read(source, PairData)
    assert data.rows()["dev"] == 9842
    assert data.rows()["test"] == 9824
    assert data.class_rows()["test"] == {"contradiction": 3237, "entailment": 3368, "neutral": 3219}
    assert data.test.premises[0].startswith("This church choir sings to the masses")
    assert data.classes[data.test.labels[0]] == "neutral"
    assert not [
        message for message in check(source).differences() if "with a gold label" in message and "train" not in message
    ]
