"""The source of a plug-in: its files, the modules in their folder that they import, and what an entry depends on."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import decode_source
from pathlib import Path, PurePosixPath

from dropbench.harness.errors import InputError
from dropbench.harness.files import canonical_json, open_regular, read_json

MAX_BYTES = 2**24
"""Size limit of a plug-in: its sources are copied into the folder of runs."""
INDEX = "plugin.json"
"""The file of a copy that lists the files to load and the digests of entries."""
INSTALLED = ("site-packages", "dist-packages")
"""Names of folders whose modules are installed: a plug-in in one of them has no modules of its own there."""

DEFINITIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
Key = str
"""A kind and a name: ``regularizer dropkey``."""


@dataclass(frozen=True)
class Source:
    """The files of a plug-in.

    Attributes:
        path: the file or folder that the user names.
        folder: the folder that they are in.
        main: the files that are loaded, in order, relative to `folder`.
        files: contents by path relative to `folder`: those of `main`, and the modules that they import.
    """

    path: Path
    folder: Path
    main: tuple[str, ...]
    files: Mapping[str, bytes]

    @cached_property
    def digest(self) -> str:
        """12 hex digits of the files' names and texts."""
        texts = {name: self.text(name) for name in self.files}
        return _sha256(canonical_json([self.main, texts]))[:12]

    @property
    def package(self) -> str:
        """The name of the package that has the files as modules: each version has its own."""
        return f"dropbench_plugin_{self.digest}"

    @cached_property
    def modules(self) -> dict[str, str]:
        """The files by the full name of their module."""
        return {self.module(name): name for name in reversed([*self.main, *(set(self.files) - set(self.main))])}

    def module(self, name: str) -> str:
        """Return the full name of a file's module."""
        parts = [re.sub(r"\W", "_", part) for part in PurePosixPath(name).with_suffix("").parts]
        return ".".join([self.package, *(parts[:-1] if parts[-1] == "__init__" else parts)])

    def has(self, name: str) -> bool:
        """Return whether the plug-in itself has a top-level module of this name."""
        return is_own(name) and any(module.split(".")[1:2] == [name] for module in self.modules)

    def text(self, name: str) -> str:
        """Return the text of a file, with normal line ends; undecodable bytes are left for its import to report."""
        return _text(self.files[name])

    def paths(self) -> list[str]:
        """Return the paths of the files that are loaded, to which entries are attributed."""
        return [str(self.folder / name) for name in self.main]

    def entry_digests(
        self, entries: Mapping[Key, tuple[str, int]], others: Collection[tuple[str, int]]
    ) -> dict[Key, str]:
        """Return the SHA-256 of what each entry may depend on.

        This is its module without the definitions and calls that register other entries and that the rest does not
        name, and the text of the modules that it imports. Names of files and line ends make no difference.

        Args:
            entries: the module and the line that registers each entry.
            others: those of other registrations, which belong to every entry of their module.
        """
        return {key: self._entry_digest(key, entries, others) for key in entries}

    def _entry_digest(
        self, key: Key, entries: Mapping[Key, tuple[str, int]], others: Collection[tuple[str, int]]
    ) -> str:
        module, _ = entries[key]
        name = self.modules[module]
        used = [_Statement(node) for node in _parse(self.text(name)).body]
        own = {line for where, line in (entries[key], *others) if where == module}
        dropped = [each for each in used if own.isdisjoint(each.lines) and each.registers(module, entries)]
        used = [each for each in used if each not in dropped]
        while needed := [each for each in dropped if each.is_named_by(used)]:
            used += needed
            dropped = [each for each in dropped if each not in needed]
        lines = self.text(name).split("\n")  # as Python counts them
        numbers = sorted({number for each in used for number in each.lines})
        imported = self._imported(name, [each.node for each in used])
        helpers = [self.text(helper) for helper in sorted(imported - {name})]
        return _sha256(canonical_json([[lines[number - 1] for number in numbers], helpers]))

    def _imported(self, name: str, nodes: Iterable[ast.AST]) -> set[str]:
        """Return the files that statements of a file import, and those that these import in turn."""
        found: set[str] = set()
        pending = imports(name, nodes, self.files.__contains__)
        while pending:
            found |= pending
            each = (imports(other, _parse(self.text(other)).body, self.files.__contains__) for other in pending)
            pending = set[str]().union(*each) - found
        return found


class _Statement:
    """A statement at the top of a module.

    Attributes:
        lines: those of its source, with decorators.
        defined: the name of the class or function that it defines.
        named: the names that it uses, and those in texts that are arguments of calls, as in ``TASKS.get("mine")``.
    """

    def __init__(self, node: ast.stmt) -> None:
        self.node = node
        decorators = getattr(node, "decorator_list", ())
        self.lines = range(min(each.lineno for each in (node, *decorators)), (node.end_lineno or node.lineno) + 1)
        self.defined = {node.name} if isinstance(node, DEFINITIONS) else set[str]()
        self.named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        for each in ast.walk(node):
            for value in (*each.args, *(other.value for other in each.keywords)) if isinstance(each, ast.Call) else ():
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    self.named.update(re.split(r"[\s:+]+", value.value))

    def registers(self, module: str, entries: Mapping[Key, tuple[str, int]]) -> bool:
        """Return whether it is a definition or a call that registers entries, whose names it adds to `defined`.

        Other statements, such as loops, may do more than that.
        """
        names = {
            key.partition(" ")[2] for key, (where, line) in entries.items() if where == module and line in self.lines
        }
        self.defined |= names
        return bool(names) and isinstance(self.node, (*DEFINITIONS, ast.Expr))

    def is_named_by(self, others: Iterable[_Statement]) -> bool:
        """Return whether one of the others uses a name that it defines."""
        return any(not self.defined.isdisjoint(other.named) for other in others)


def read_source(path: Path) -> Source:
    """Read a plug-in: a Python file, a folder, or a copy in the folder of runs.

    Of a folder, ``__init__.py`` is loaded, or else each Python file in it.

    Raises:
        InputError: it is missing, is none of these, or is too large.
    """
    try:
        real = path.resolve(strict=True)
        if real.is_dir():
            names = sorted(file.name for file in real.iterdir() if file.suffix == ".py" and file.is_file())
            main = ["__init__.py"] if "__init__.py" in names else names
            if (real / INDEX).is_file():
                main = [name for name in names if name in read_json(real / INDEX)["main"]]
            if not main:
                raise InputError(
                    f"plug-in {path}: the folder has no Python file: expected a Python file or a folder of some"
                )
            return _complete(real, real, main)
        if not real.is_file():
            raise InputError(f"plug-in {path}: not a regular file: expected a Python file")
        if real.suffix != ".py":
            raise InputError(f"plug-in {path}: expected a file that ends in .py")
        return _complete(real, real.parent, [real.name])
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links is a RuntimeError until Python 3.13
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"plug-in {path}: {reason}: expected a Python file, or a copy of it in the folder `plugins` of the runs"
        ) from None


def _complete(path: Path, folder: Path, main: list[str]) -> Source:
    """Return the source of these files, with the modules in their folder that they import."""

    def exists(name: str) -> bool:
        return folder.name not in INSTALLED and (folder / name).is_file()

    files: dict[str, bytes] = {}
    pending = list(main)
    while pending:
        name = pending.pop()
        if name in files:
            continue
        with open_regular(folder / name) as file:
            files[name] = file.read(MAX_BYTES + 1)
        if sum(map(len, files.values())) > MAX_BYTES:
            raise InputError(f"plug-in {path}: its Python files have more than {MAX_BYTES >> 20} MiB: install them")
        pending += sorted(imports(name, _parse(_text(files[name])).body, exists))
    return Source(path, folder, tuple(main), {name: files[name] for name in sorted(files)})


def imports(name: str, nodes: Iterable[ast.AST], exists: Callable[[str], bool]) -> set[str]:
    """Return the files that statements of the file `name` import: modules, and the packages that they are in."""
    found: set[str] = set()
    for parts in _imported_names(PurePosixPath(name).parts[:-1], nodes):
        for path in ("/".join(parts[:count]) for count in range(1, len(parts) + 1)):
            found.update([file for file in (f"{path}/__init__.py", f"{path}.py") if exists(file)][:1])
    return found


def _imported_names(package: tuple[str, ...], nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ...]]:
    """Yield the modules that statements may import, as paths from the plug-in's folder."""
    for node in (each for top in nodes for each in ast.walk(top)):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            names = [module, *((*module, alias.name) for alias in node.names)]
        else:
            continue
        relative = isinstance(node, ast.ImportFrom) and node.level > 0
        yield from (parts for parts in names if parts and (relative or is_own(parts[0])))


def is_own(name: str) -> bool:
    """Return whether a module of this name may be the plug-in's: neither Python's nor DropBench."""
    return name != "dropbench" and name not in sys.stdlib_module_names


def _text(content: bytes) -> str:
    try:
        return decode_source(content)
    except (SyntaxError, UnicodeDecodeError):
        return content.decode("latin-1")


def _parse(text: str) -> ast.Module:
    """Return the parsed text, empty if it is no Python: its import reports why."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
