"""Build backend: setuptools, with every package below ``dropbench`` in a wheel.

In the repository, `harness`, `adapters`, `tasks`, `db` and `jobs` are top-level packages, so that linters and type
checkers resolve every import. Installed under these names, they would collide with other projects and with a user's
own files. A wheel therefore has them as `dropbench.harness` and so on, with their imports rewritten.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from setuptools import build_meta  # type: ignore[import-untyped]

# The other hooks: an editable installation uses the repository as it is.
from setuptools.build_meta import *  # type: ignore[import-untyped]  # noqa: F403

FACE = "dropbench"
PACKAGES = ("harness", "adapters", "tasks", "db", "jobs")
METADATA = ("pyproject.toml", "README.md", "LICENSE")
_MODULE = re.compile(rf"({'|'.join(PACKAGES)})\.[\w.]*(:\w*)?")
"""The dotted name of a module, perhaps with a name in it (``module:name``), or the start of such an f-string."""
_YAML_MODULE = re.compile(rf"(?<=: )(?=(?:{'|'.join(PACKAGES)})\.[\w.]+:\w+$)", re.MULTILINE)


def build_wheel(
    wheel_directory: str, config_settings: Mapping[str, object] | None = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel from a copy in which all packages are below `dropbench`."""
    wheel_directory = str(Path(wheel_directory).absolute())
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        stage(before, Path(folder))
        os.chdir(folder)
        try:
            return str(build_meta.build_wheel(wheel_directory, config_settings))
        finally:
            os.chdir(before)


def stage(root: Path, target: Path) -> None:
    """Copy the project in `root` to `target`, with the packages below `dropbench` and their imports rewritten."""
    for name in METADATA:
        shutil.copy2(root / name, target / name)
    ignore = shutil.ignore_patterns("__pycache__", Path(__file__).name, "run_uv.py")
    shutil.copytree(root / FACE, target / FACE, ignore=ignore)
    for name in PACKAGES:
        shutil.copytree(root / name, target / FACE / name, ignore=ignore)
    for file in (target / FACE).rglob("*.py"):
        file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")
    for file in (target / FACE).rglob("*.yaml"):
        file.write_text(_YAML_MODULE.sub(f"{FACE}.", file.read_text(encoding="utf-8")), encoding="utf-8")


def rewritten(source: str) -> str:
    """Return Python source in which imports of `PACKAGES`, and strings that name their modules, begin with `FACE`."""
    lines = source.encode().splitlines(keepends=True)
    for line, column in sorted(set(_positions(ast.parse(source), lines)), reverse=True):
        text = lines[line - 1]
        lines[line - 1] = text[:column] + f"{FACE}.".encode() + text[column:]
    return b"".join(lines).decode()


def _positions(tree: ast.AST, lines: list[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the line and the column, in bytes, of each name of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _root(node.module) in PACKAGES:
            yield node.lineno, node.col_offset + len("from ")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _root(alias.name) in PACKAGES:
                    yield alias.lineno, alias.col_offset
        elif isinstance(node, ast.JoinedStr | ast.Constant):
            text = lines[node.lineno - 1][node.col_offset :]
            quoted = re.match(rb'f?"(?!"")', text)
            if quoted and _MODULE.match(text[quoted.end() :].decode()) and _is_name(node):
                yield node.lineno, node.col_offset + quoted.end()


def _is_name(node: ast.JoinedStr | ast.Constant) -> bool:
    first = node.values[0] if isinstance(node, ast.JoinedStr) else node
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and bool(_MODULE.fullmatch(first.value))


def _root(module: str | None) -> str:
    return (module or "").partition(".")[0]
