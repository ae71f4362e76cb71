"""The wheel: one top-level name, whatever other packages and files are called."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import ROOT

PACKAGES = ("harness", "adapters", "tasks", "db", "jobs")
CLASH = "raise RuntimeError('a file of the user')\n"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_has_one_name(package: str) -> None:
    with pytest.raises(ImportError, match=f"`{package}` is imported as `dropbench.{package}`"):
        importlib.import_module(package)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip installs it, into a folder of its own; built from a copy, because setuptools keeps `build/`."""
    folder = tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, folder / name)
    for name in ("dropbench", *PACKAGES):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    quiet = "-q", "--disable-pip-version-check", "--no-deps"
    pip = sys.executable, "-m", "pip"
    subprocess.run([*pip, "wheel", *quiet, "--no-build-isolation", "-w", folder / "wheel", folder], check=True)
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
    assert not [*installed.rglob("*.pth")]


@pytest.mark.slow
def test_a_suite_runs_beside_files_of_the_same_names(run: Run) -> None:
    done = run("-m", "dropbench", "run", "quickstart", "--set", "steps=2", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    assert "ViT" in done.stdout
    for command in ("status", "results", "list models", "list data", "db rebuild", "report quickstart"):
        done = run("-m", "dropbench", *command.split())
        assert done.returncode == 0, f"{command}: {done.stderr}"
    call = "import dropbench; print(dropbench.run('quickstart', seeds=1, set={'steps': 2}).trials[0].predictions())"
    done = run("-c", call)
    assert "[1078 rows x 8 columns]" in done.stdout, done.stderr
