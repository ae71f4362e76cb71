"""No identifier has one of the private words that the field's words replaced (the table of CHANGELOG.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

REPLACED = {
    "harness/attention/kernels": """
        sums SUMS log_sums slopes fade best higher BEST place gone spared spare keeps in_size in_width q_b
        q_h q_t k_b k_h k_t v_b v_h v_t wide inverse key_low column queries _pass _weights Launch Pieces
        Piece Columns worth_moving _moved TOGETHER soften slope Rooms ROOMS room _Job what origins shares
    """,
    "harness/attention": """
        UNSEEN seed_probability grow _grown Draw new_draw draw_of drawn_keys chosen unfit KINDS attend_kept
        attend_kept_or_all
    """,
    "harness/regularizers": "draws prefix attend_fast dropped OwnLoss penalized",
    "harness/models": "bind_all place idle unasked left OwnLoss penalized",
    "harness/training": "ahead PAYS _Answers loaders pieces agreed summed say Progress borrow sibling",
    "harness/trials": """
        checked_align deviations words summed_up shown Shown Mark Marks without_words selecting
        steps_an_epoch Outcome
    """,
    "harness/suites": "Strict Choice known at Asked ask Outcome",
    "harness/runs": "BEAT silent elsewhere find_directory",
    "harness": "PATIENCE MOST LEAST FEW ENOUGH feedforward Run",
    "tasks": """
        located _room numbered case_of learn_pieces Shot mixed moved_and_mirrored normalised overlap shown
        Shown Mark Marks without_words selecting steps_an_epoch MOST LEAST FEW ENOUGH
    """,
    "jobs": """
        Wishes to_stop pass_on Place keeper occupy rubbish expendable judge Verdict bury adopt look settle
        explain Death Team hear dismiss near stillborn withdraw shunned HALVINGS GAVE_UP revive pack most
        again made _see_off FAREWELL unasked PATIENCE Outcome Asked MOST LEAST FEW ENOUGH
    """,
    "db": """
        Snapshot AFTER told in_order Places among _replace stage Found checks overrule behind tails freedom
        answers Behind Drawing Outcome PATIENCE MOST LEAST FEW ENOUGH
    """,
    "adapters": "place idle unasked shown MOST LEAST FEW ENOUGH",
}
"""Folder → words that no identifier below it is."""
EXCEPTIONS = {
    ("harness/trials/sample_view.py", "words"): "the words of a text",
}
"""File and word → reason to keep it."""


def identifiers(path: Path) -> Iterator[str]:
    """Names of variables, arguments, attributes, functions and classes in a file, and the file's own."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name


@pytest.mark.parametrize("folder", REPLACED)
def test_replaced_words_are_gone(folder: str) -> None:
    words = set(REPLACED[folder].split())
    used = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / folder).rglob("*.py")
        for name in words.intersection(identifiers(path))
    }
    assert used - set(EXCEPTIONS) == set()


def test_exceptions_are_needed() -> None:
    assert [key for key in EXCEPTIONS if key[1] not in set(identifiers(ROOT / key[0]))] == []
