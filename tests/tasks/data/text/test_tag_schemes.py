"""Tag schemes: detected, converted to BIO, refused; compared with examples and with seqeval's strict reading."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.scheme import IOB1, IOB2, IOBES, Entities, Token

from dropbench.tasks.data.text.tag_schemes import detect_scheme, to_bio
from tests.input_errors import one_line

FILE = Path("eng.train")
SCHEMES: dict[str, type[Token]] = {"IOB1": IOB1, "BIO": IOB2, "BIOES": IOBES}
Spans = list[tuple[str | None, int]]
"""Type (None for outside) and number of words of each part of a sentence."""

PIECES = st.lists(
    st.one_of(
        st.tuples(st.none(), st.integers(1, 3)), st.tuples(st.sampled_from(["PER", "LOC", "B-x"]), st.integers(1, 3))
    ),
    min_size=1,
    max_size=8,
)


def written(spans: Spans, scheme: str) -> list[str]:
    """Return the tags of a sentence by the definition of each scheme."""
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
    assert detect_scheme(FILE, [tags.split()], [1]) == scheme
    assert to_bio(tags.split()) == tuple(bio.split())


@pytest.mark.parametrize("scheme", list(SCHEMES))
@given(sentences=st.lists(PIECES, min_size=1, max_size=4))
def test_the_spans_of_every_scheme_are_those_of_its_bio(scheme: str, sentences: list[Spans]) -> None:
    # A span at the start distinguishes IOB1 from BIO, and one of two words BIOES from both.
    rows = [written([("PER", 2), *spans], scheme) for spans in sentences]
    assert detect_scheme(FILE, rows, [1] * len(rows)) == scheme
    converted = [list(to_bio(row)) for row in rows]
    assert converted == [written([("PER", 2), *spans], "BIO") for spans in sentences]
    original = Entities(rows, scheme=SCHEMES[scheme]).entities
    from_bio = Entities(converted, scheme=IOB2).entities
    assert [[entity.to_tuple() for entity in row] for row in original] == [
        [entity.to_tuple() for entity in row] for row in from_bio
    ]


def test_a_sentence_ends_every_span() -> None:
    rows = [["O", "I-PER"], ["I-PER", "O"]]
    assert detect_scheme(FILE, rows, [1, 4]) == "IOB1"
    assert [to_bio(row) for row in rows] == [("O", "B-PER"), ("B-PER", "O")]


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (["O", "U-PER"], "eng.train:8: tag 'U-PER' has no known scheme: expected O, or B-, I-, E- or S- and a type"),
        *(([tag], f"eng.train:7: tag '{tag}' has no known scheme") for tag in ("PER", "B-", "B_PER", "O-PER", "b-PER")),
        (
            ["B-PER", "O", "I-LOC"],
            "eng.train:9: I-LOC starts a span (IOB1), and so does eng.train:7: B-PER (BIO): ",
        ),
        (["B-PER", "I-LOC"], "eng.train:8: I-LOC starts a span (IOB1), and so does eng.train:7: B-PER"),
        (["S-PER", "B-LOC", "O"], "eng.train:8: B-LOC is not closed: expected E-LOC at its end"),
        (["S-PER", "B-LOC"], "eng.train:8: B-LOC is not closed"),
        (["S-PER", "I-PER", "O"], "eng.train:8: I-PER without a start: expected B-PER before it"),
        (["B-PER", "E-PER", "E-PER"], "eng.train:9: E-PER without a start"),
    ],
)
def test_invalid_tags_are_reported_by_line(sentences: list[str], message: str) -> None:
    with one_line() as error:
        detect_scheme(FILE, [["O"], sentences], [1, 7])
    assert message in str(error.value)
