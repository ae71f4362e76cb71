"""Cards: every registered regularizer has one that builds it, and a wrong card is an error of one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dropbench.harness.errors import InputError
from dropbench.harness.registry import Entry
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.cards import Card, find_card
from dropbench.harness.regularizers.presets import Unregularized
from dropbench.harness.regularizers.spec import build_regularizer, describe_parameters, parse_spec

OTHER_DEFAULTS = ("dropkey", "dropkey-block", "dropkey-cross", "dropattention-c", "dropattention-e")
"""Regularizers with other defaults than the source."""
CARD = {
    "formula": "x", "source": "mine", "url": "https://example.org", "acts_on": "keys", "passes": 1, "memory": "none",
    "defaults": {}, "published": [], "open": [], "unsuitable": [],
}  # fmt: skip


@pytest.mark.parametrize("name", list(REGULARIZERS))
def test_every_regularizer_has_a_card_whose_values_build_it(name: str) -> None:
    card = find_card(name)
    assert card is not None
    spec = parse_spec(card.spec(name))
    built = build_regularizer(spec.name, **spec.params)
    assert built.num_passes <= card.passes  # further passes are the objective's own
    defaults = {key: value for key, value in card.defaults.items() if key != "schedule"}
    assert spec.params == defaults
    assert not card.formula.startswith("$")
    if name not in OTHER_DEFAULTS:
        own = {key: value["default"] for key, value in describe_parameters(name).items()}
        assert {**own, **defaults} == own


def test_cards_are_read_without_torch() -> None:
    program = "import sys; from dropbench.harness.regularizers.cards import find_card; find_card('dropkey');"
    program += "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy"} & {*done.stdout.split()}


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Registers a plug-in's regularizer, as from a file in the temporary folder, for the time of a test."""

    def add(**facts: Any) -> None:
        monkeypatch.setitem(
            REGULARIZERS._entries, "mine", Entry("mine", "", Unregularized, facts, str(tmp_path / "mine.py"))
        )

    return add


def test_a_plug_in_gives_its_card_as_a_mapping_or_a_file(register: Callable[..., None], tmp_path: Path) -> None:
    register()
    assert find_card("mine") is None
    register(card=CARD)
    assert find_card("mine") == Card.model_validate(CARD)
    (tmp_path / "card.yaml").write_text(yaml.safe_dump(CARD))
    for path in ("card.yaml", tmp_path / "card.yaml"):
        register(card=path)
        assert find_card("mine") == Card.model_validate(CARD)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"acts_at": "keys"}, "unknown key in card of regularizer 'mine' 'acts_at': did you mean acts_on"),
        ({"passes": 0}, "card of regularizer 'mine': passes=0: input should be greater than or equal to 1"),
        ({"url": "arxiv"}, "url=arxiv: expected an address that begins with https://"),
        ({"formula": "a\nb"}, "expected one line of text"),
        ({"published": [" "]}, "expected one line of text"),
    ],
)
def test_a_wrong_card_is_refused(register: Callable[..., None], change: dict[str, Any], message: str) -> None:
    register(card={**CARD, **change})
    with pytest.raises(InputError) as caught:
        find_card("mine")
    assert message in str(caught.value)


def test_a_card_that_is_missing_or_of_another_type_is_refused(register: Callable[..., None], tmp_path: Path) -> None:
    register(card="card.yaml")
    with pytest.raises(InputError, match=r"card of regularizer 'mine': .*card\.yaml is not a file: expected a YAML"):
        find_card("mine")
    register(card=3)
    with pytest.raises(InputError, match="expected a mapping or the path of a YAML file, got 3"):
        find_card("mine")
    (tmp_path / "card.yaml").write_text("- 1")
    register(card="card.yaml")
    with pytest.raises(InputError, match=r"card\.yaml: expected a mapping with the keys formula, source"):
        find_card("mine")
