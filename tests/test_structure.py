"""The house: levels, rooms, imports and words, as `docs/design.md` describes them."""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.paths import ROOT

LEVELS = (("harness",), ("adapters",), ("tasks", "db"), ("jobs",), ("dropbench",))
"""Each folder may import from the levels before its own, and from itself."""
EVERYTHING = ("adapters", "benchmarks", "db", "docs", "dropbench", "harness", "jobs", "tasks", "tests")
STRINGS_MAY_CLIMB = {
    "harness/analysis/__init__.py": "the registry of analyses",
    "harness/cli/main.py": "the list of commands",
    "harness/models/adapter.py": "the registry of adapters",
    "harness/optimization/catalog.py": "the registry of optimizers, and functions of libraries",
    "harness/trials/task.py": "the registry of tasks",
}
MAX_FILES = 12
"""Python files directly in a folder."""
MAX_LINES = 300
MAX_MEDIAN_LINES = 110
"""The median file of the product; tests and benchmarks may be longer."""
TARGET = re.compile(r"dropbench\.(harness|adapters|tasks|db|jobs)\.")


def sources(*folders: str) -> list[Path]:
    """Python files below some folders of the repository."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("dropbench", *(part for part in parts if part not in ("dropbench", "__init__"))))


def top_of(module: str) -> str:
    """The folder at the top level of the repository in which a module, or an object of it, is."""
    folder = (module + ".").split(".")[1]
    return folder if any(folder in names for names in LEVELS) else "dropbench"


def level_of(module: str) -> int:
    return next(number for number, names in enumerate(LEVELS) if top_of(module) in names)


@cache
def modules() -> dict[str, Path]:
    """All modules of the product by their dotted names."""
    return {module_of(path): path for level in LEVELS for path in sources(*level)}


@cache
def imports() -> dict[str, frozenset[str]]:
    """The modules that each module imports: at the top, in functions and under `TYPE_CHECKING` alike."""
    return {name: frozenset(_imported(path)) - {name} for name, path in modules().items()}


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            while name and name not in modules():
                name = name.rpartition(".")[0]
            if name:
                yield name


def circles(graph: dict[str, frozenset[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for node in graph[waiting.pop()] - seen:
                seen.add(node)
                waiting.append(node)
        return seen

    reach = {node: reachable(node) for node in graph}
    groups = {tuple(sorted(other for other in reach[node] if node in reach[other])) for node in graph}
    return [list(group) for group in sorted(groups) if group]


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(dict(imports())) == []


def test_no_folders_import_each_other_in_a_circle() -> None:
    folder = {name: path.parent.relative_to(ROOT).as_posix() for name, path in modules().items()}
    graph: dict[str, set[str]] = {room: set() for room in folder.values()}
    for name, imported in imports().items():
        graph[folder[name]] |= {folder[other] for other in imported} - {folder[name]}
    assert circles({room: frozenset(others) for room, others in graph.items()}) == []


def test_strings_climb_in_registries_and_the_list_of_commands_alone() -> None:
    climbing = set()
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            start = node.values[0] if isinstance(node, ast.JoinedStr) else node
            target = start.value if isinstance(start, ast.Constant) else None
            if isinstance(target, str) and TARGET.match(target) and level_of(target) > level_of(name):
                climbing.add(path.relative_to(ROOT).as_posix())
    assert climbing == set(STRINGS_MAY_CLIMB)


@pytest.mark.parametrize("folder", [name for level in LEVELS for name in level])
def test_every_folder_says_what_lives_there(folder: str) -> None:
    for room in {path.parent for path in sources(folder)}:
        text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
        assert text, f"{room}: expected a docstring in __init__.py"


def test_rooms_and_files_are_small() -> None:
    paths = sources(*EVERYTHING)
    rooms = Counter(path.parent.relative_to(ROOT).as_posix() for path in paths)
    assert {room: number for room, number in rooms.items() if number > MAX_FILES} == {}
    lines = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in paths}
    assert {path: number for path, number in lines.items() if number > MAX_LINES} == {}
    assert (
        statistics.median(lines[path.relative_to(ROOT).as_posix()] for path in modules().values()) <= MAX_MEDIAN_LINES
    )


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    wrong = []
    for path in sources(*EVERYTHING):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))) if re.match(r"\s*(What|Who|Whether|Where)\b", text):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text.strip().splitlines()[0]}")
    assert wrong == []
