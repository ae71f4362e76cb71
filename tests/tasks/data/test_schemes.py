"""Tag schemes: recognised, brought to BIO, refused; judged by hand and by seqeval's own strict reading."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.scheme import IOB1, IOB2, IOBES, Entities, Token

from harness.errors import InputError
from tasks.data.schemes import recognise, to_bio

FILE = Path("eng.train")
SCHEMES: dict[str, type[Token]] = {"IOB1": IOB1, "BIO": IOB2, "BIOES": IOBES}
Spans = list[tuple[str | None, int]]
"""The type (None: outside) and the number of words of each piece of a sentence."""

PIECES = st.lists(
    st.one_of(
        st.tuples(st.none(), st.integers(1, 3)), st.tuples(st.sampled_from(["PER", "LOC", "B-x"]), st.integers(1, 3))
    ),
    min_size=1,
    max_size=8,
)


def written(spans: Spans, scheme: str) -> list[str]:
    """The tags of a sentence as each scheme is defined."""
    tags: list[str] = []
    for kind, length in spans:
        if kind is None:
            tags += ["O"] * length
        elif scheme == "BIOES":
            prefixes = "S" if length == 1 else f"B{'I' * (length - 2)}E"
            tags += [f"{prefix}-{kind}" for prefix in prefixes]
        else:
            adjacent = bool(tags) and tags[-1][2:] == kind
            first = "B" if scheme == "BIO" or adjacent else "I"
            tags += [f"{first}-{kind}", *[f"I-{kind}"] * (length - 1)]
    return tags


@pytest.mark.parametrize(
    ("tags", "scheme", "bio"),
    [
        ("I-PER I-PER O I-LOC", "IOB1", "B-PER I-PER O B-LOC"),
        ("I-PER B-PER I-PER O", "IOB1", "B-PER B-PER I-PER O"),
        ("I-PER I-LOC B-LOC", "IOB1", "B-PER B-LOC B-LOC"),
        ("B-PER I-PER B-PER O B-LOC", "BIO", "B-PER I-PER B-PER O B-LOC"),
        ("O O", "BIO", "O O"),
        ("B-PER E-PER S-LOC S-LOC O B-LOC I-LOC E-LOC", "BIOES", "B-PER I-PER B-LOC B-LOC O B-LOC I-LOC I-LOC"),
        ("B-creative-work I-creative-work", "BIO", "B-creative-work I-creative-work"),
    ],
)
def test_by_hand(tags: str, scheme: str, bio: str) -> None:
    assert recognise(FILE, [tags.split()], [1]) == scheme
    assert to_bio(tags.split()) == tuple(bio.split())


@pytest.mark.parametrize("scheme", list(SCHEMES))
@given(sentences=st.lists(PIECES, min_size=1, max_size=4))
def test_the_spans_of_every_scheme_are_those_of_its_bio(scheme: str, sentences: list[Spans]) -> None:
    # A span at the start makes IOB1 and BIO differ, and one of two words BIOES from both.
    rows = [written([("PER", 2), *spans], scheme) for spans in sentences]
    assert recognise(FILE, rows, [1] * len(rows)) == scheme
    converted = [list(to_bio(row)) for row in rows]
    assert converted == [written([("PER", 2), *spans], "BIO") for spans in sentences]
    before = Entities(rows, scheme=SCHEMES[scheme]).entities
    after = Entities(converted, scheme=IOB2).entities
    assert [[entity.to_tuple() for entity in row] for row in before] == [
        [entity.to_tuple() for entity in row] for row in after
    ]


def test_a_sentence_ends_every_span() -> None:
    rows = [["O", "I-PER"], ["I-PER", "O"]]
    assert recognise(FILE, rows, [1, 4]) == "IOB1"
    assert [to_bio(row) for row in rows] == [("O", "B-PER"), ("B-PER", "O")]


@pytest.mark.parametrize(
    ("sentences", "told"),
    [
        (["O", "U-PER"], "eng.train:8: tag 'U-PER' is of no known scheme: expected O, or B-, I-, E- or S- and a type"),
        (["PER"], "eng.train:7: tag 'PER' is of no known scheme"),
        (["B-"], "eng.train:7: tag 'B-' is of no known scheme"),
        (["B_PER"], "eng.train:7: tag 'B_PER'"),
        (["O-PER"], "eng.train:7: tag 'O-PER'"),
        (["b-PER"], "eng.train:7: tag 'b-PER'"),
        (["B-PER", "O", "I-LOC"], "eng.train:9: I-LOC begins a span, and so does eng.train:7: B-PER: IOB1 and BIO"),
        (["B-PER", "I-LOC"], "eng.train:8: I-LOC begins a span, and so does eng.train:7: B-PER"),
        (["S-PER", "B-LOC", "O"], "eng.train:8: B-LOC is left open: expected E-LOC at its end"),
        (["S-PER", "B-LOC"], "eng.train:8: B-LOC is left open"),
        (["S-PER", "B-LOC", "E-PER"], "eng.train:8: B-LOC is left open"),
        (["S-PER", "I-PER", "O"], "eng.train:8: I-PER without a beginning: expected B-PER before it"),
        (["E-PER"], "eng.train:7: E-PER without a beginning"),
        (["B-PER", "E-PER", "E-PER"], "eng.train:9: E-PER without a beginning"),
    ],
)
def test_refused_with_its_line(sentences: list[str], told: str) -> None:
    with pytest.raises(InputError) as error:
        recognise(FILE, [["O"], sentences], [1, 7])
    assert told in str(error.value)
    assert "\n" not in str(error.value)
