from __future__ import annotations

import math
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from dropbench.harness import registry
from dropbench.harness.errors import InputError
from dropbench.harness.registry import Registry


def test_names_aliases_and_order() -> None:
    shapes: Registry[type] = Registry("shape")

    @shapes.register("square", "box", sides=4)
    class Square:
        """Four equal sides.

        More of it.
        """

    shapes.add("number", "fractions:Fraction", help="a fraction")
    assert list(shapes) == ["square", "number"]
    assert len(shapes) == 2
    assert shapes.get("square") is shapes.get("box") is Square
    assert shapes.entry("box").name == "square"
    assert shapes.entry("square").help == "Four equal sides."
    assert shapes.entry("square").facts == {"sides": 4}
    assert "box" in shapes
    assert "circle" not in shapes


def test_a_target_is_imported_when_it_is_asked_for() -> None:
    """In a Python of its own, since it is about what is not imported."""
    program = (
        "import sys; from dropbench.harness.registry import Registry; r = Registry('thing');"
        "r.add('later', 'fractions:Fraction'); r.entry('later'); before = 'fractions' in sys.modules;"
        "r.get('later'); print(before, 'fractions' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_the_regularizers_are_listed_without_torch() -> None:
    program = (
        "import sys; from dropbench.harness.regularizers import REGULARIZERS;"
        "from dropbench.harness.regularizers.spec import parse_spec;"
        "print([REGULARIZERS.entry(name).help for name in REGULARIZERS] != [], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_conflicting_duplicates_raise() -> None:
    things: Registry[object] = Registry("thing")
    things.add("one", 1, "uno")
    things.add("one", 1)  # the same again is no conflict: a module may be imported twice
    for name, aliases in (("one", ()), ("uno", ()), ("two", ("one",)), ("two", ("uno",))):
        with pytest.raises(ValueError, match=r"is registered already \(by DropBench\)"):
            things.add(name, 2, *aliases)
    assert list(things) == ["one"]


def test_unknown_names_are_answered_with_the_nearest() -> None:
    things: Registry[object] = Registry("thing")
    things.add("dropkey", 1)
    things.add("dropkey-block", 2)
    with pytest.raises(InputError, match="unknown thing 'dropky': did you mean dropkey"):
        things.get("dropky")
    with pytest.raises(InputError, match="unknown thing 'zebra': known: dropkey, dropkey-block"):
        things.entry("zebra")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("fractions", "thing 'mine': cannot load fractions: 'fractions' is not of the form 'module:attribute'"),
        ("no_such_module:x", "thing 'mine': cannot load no_such_module:x: No module named 'no_such_module'"),
        ("exits:x", r"thing 'mine': cannot load exits:x: SystemExit\(3\)"),
        (5, "thing 'mine': expected a function, got 5"),
        ("math:pi", "thing 'mine': expected a function, got 3.14"),
    ],
)
def test_a_broken_item_is_an_error_of_one_line(
    target: object, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exits.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    things: Registry[object] = Registry("thing", "a function", callable)
    things.add("mine", target)
    with pytest.raises(InputError, match=message):
        things.get("mine")


def test_broken_entry_points_are_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    points = [
        EntryPoint(*point, "dropbench.things") for point in (("taken", "math:sin"), ("bad", "no"), ("pi", "math:pi"))
    ]
    monkeypatch.setattr(registry, "_entry_points", lambda: EntryPoints(points))
    monkeypatch.setattr(registry, "PLUGIN_MODULES", set())
    things: Registry[object] = Registry("thing", "an item", lambda item: True, "things")
    things.add("taken", 1)
    assert things.get("taken") == 1
    assert "bad" not in things._entries  # nobody needed the entry points so far
    assert list(things) == ["taken", "bad", "pi"]
    assert dict(things.working(things, things.get)) == {"taken": 1, "pi": math.pi}
    assert things.get("pi") == math.pi
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == "left out: entry point of math:sin: thing 'taken' is registered already"
    assert messages[1].startswith("left out: thing 'bad': ")
    things.add("mine", "nowhere:x")
    with pytest.raises(InputError, match="unknown thing 'mien': did you mean mine"):
        things.get("mien")
    with pytest.raises(InputError, match="cannot load nowhere:x"):
        list(things.working(["mine"], things.get))  # not of a package: the user passed its file
