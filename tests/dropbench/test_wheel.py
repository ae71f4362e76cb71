"""The wheel: one top-level name, whatever other packages and files are called."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.paths import ROOT

CLASH = "raise RuntimeError('a file of the user')\n"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def backend() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_backend", ROOT / "dropbench" / "build_backend.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from harness.files import a\n", "from dropbench.harness.files import a\n"),
        ("from tasks import (\n    a,\n)\n", "from dropbench.tasks import (\n    a,\n)\n"),
        ("import os, db.store.store as s\n", "import os, dropbench.db.store.store as s\n"),
        ("if é:\n    'é'; from jobs import a\n", "if é:\n    'é'; from dropbench.jobs import a\n"),
        ('add("harness.analysis:Entropy")\n', 'add("dropbench.harness.analysis:Entropy")\n'),
        ('add(f"tasks.{folder}.spec:{name}")\n', 'add(f"dropbench.tasks.{folder}.spec:{name}")\n'),
        ('x = "jobs.", "db.sqlite3"\n', 'x = "dropbench.jobs.", "dropbench.db.sqlite3"\n'),
        ('x = "harness", "tasks in words", "my.tasks.x"\n', 'x = "harness", "tasks in words", "my.tasks.x"\n'),
        ('"""tasks.data: a docstring."""\n', '"""tasks.data: a docstring."""\n'),
        ("from .harness import a\nfrom harnessed import b\n", "from .harness import a\nfrom harnessed import b\n"),
    ],
)
def test_names_of_modules_are_rewritten(backend: ModuleType, source: str, expected: str) -> None:
    assert backend.rewritten(source) == expected


def test_no_import_binds_a_package_of_the_repository() -> None:
    """`import harness.x` binds the name `harness`, which the wheel does not have: write `from`, or `as`."""
    packages = "harness", "tasks", "db", "jobs", "dropbench"
    for file in (file for package in packages for file in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Import):
                continue
            bound = {alias.name.partition(".")[0] for alias in node.names if not alias.asname}
            assert bound.isdisjoint(packages), f"{file}:{node.lineno}"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip installs it, into a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    quiet = "-q", "--disable-pip-version-check", "--no-deps"
    pip = sys.executable, "-m", "pip"
    subprocess.run([*pip, "wheel", *quiet, "--no-build-isolation", "-w", folder / "wheel", ROOT], check=True)
    (wheel,) = (folder / "wheel").iterdir()
    subprocess.run([*pip, "install", *quiet, "--target", folder / "site", wheel], check=True)
    return folder / "site"


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """Run Python with the wheel and the libraries, but without the repository, in a folder of clashing names."""
    for name in ("db.py", "jobs.py", "harness.py", "tasks/__init__.py", "adapters/__init__.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(CLASH)
    path = os.pathsep.join([str(installed), sysconfig.get_path("purelib")])
    environment = {**os.environ, "PYTHONPATH": path}
    # The virtual environment's own interpreter would also find the editable installation.
    interpreter = Path(sys.base_prefix, "bin", "python3")

    def python(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [interpreter, *words], cwd=tmp_path, env=environment, text=True, capture_output=True, check=False
        )

    return python


@pytest.mark.slow
def test_the_wheel_has_one_top_level_name(installed: Path) -> None:
    assert {path.name for path in installed.iterdir()} - {"bin"} == {"dropbench", "dropbench-0.1.0.dist-info"}
    assert (installed / "dropbench" / "py.typed").exists()
    assert not [*installed.rglob("build_backend.py"), *installed.rglob("run_uv.py"), *installed.rglob("*.pth")]


@pytest.mark.slow
def test_a_suite_runs_beside_files_of_the_same_names(run: Run) -> None:
    done = run("-m", "dropbench", "run", "quickstart", "--set", "steps=2", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    assert "ViT" in done.stdout
    for command in ("status", "results", "list models", "list data", "db rebuild", "report quickstart --set steps=2"):
        done = run("-m", "dropbench", *command.split())
        assert done.returncode == 0, f"{command}: {done.stderr}"
    call = "import dropbench; print(dropbench.run('quickstart', seeds=1, set={'steps': 2}).trials[0].predictions())"
    done = run("-c", call)
    assert "[1078 rows x 8 columns]" in done.stdout, done.stderr
