"""Environment variables, cluster profiles and the jobs of 969bcf6 have their effect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.compatibility.command import Done, dropbench, in_process
from tests.compatibility.written import WRITTEN, unpack_runs

PROFILES = """
[profiles.everything]
partition = "gpu"
account = "vision"
qos = "long"
constraint = "a100"
nodes = 2
tasks = 4
gpus = 3
cpus = 8
memory = 32.5
time = 720
signal_delay = 120
setup = ["module load cuda"]
environment = {HF_HOME = "/scratch/hf", WORDS = "a b"}
trials = "regularizer=none"

[profiles.default]
partition = "cpu"
"""
ASKED = (
    "#SBATCH --partition=gpu", "#SBATCH --account=vision", "#SBATCH --qos=long", "#SBATCH --constraint=a100",
    "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=4", "#SBATCH --gpus-per-node=3", "#SBATCH --cpus-per-task=8",
    "#SBATCH --mem=33280MB", "#SBATCH --time=720", "#SBATCH --signal=USR2@120", "module load cuda",
    "export HF_HOME=/scratch/hf", "export WORDS='a b'",
)  # fmt: skip
TINY = "run --task tiny --data tiny --model tiny-model --executor debug --set epochs=1"


def batches(log: Path) -> list[tuple[str, int, str]]:
    """The split, the size and the process of each batch."""
    lines = [line.split() for line in log.read_text(encoding="utf-8").splitlines()]
    return [(split, int(size), process) for split, size, process in lines]


def cluster(folder: Path) -> dict[str, str]:
    """An environment with programs of SLURM's names that say nothing."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("srun", "sbatch", "squeue"):
        (programs / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    return {"PATH": f"{programs}:/usr/bin:/bin"}


def test_every_key_of_a_profile(complete: Path) -> None:
    (complete / "dropbench.toml").write_text(PROFILES, encoding="utf-8")
    environment = cluster(complete)
    submit = ("submit", "--executor", "slurm", "--dry-run")
    done = dropbench(complete, *submit, "--profile", "everything", environment=environment)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert [line for line in ASKED if line not in lines] == []
    assert any(line.startswith("#SBATCH --array=0-2") for line in lines)
    done = dropbench(complete, *submit, environment=environment)
    assert done.code == 0, done.err
    first, _, second = done.out.partition("#SBATCH --partition=cpu")
    assert "#SBATCH --partition=gpu" in first + second
    arrays = sorted(line.partition("%")[0] for line in done.out.splitlines() if line.startswith("#SBATCH --array="))
    assert arrays == ["#SBATCH --array=0-0", "#SBATCH --array=0-1"]


def test_every_environment_variable(place: Path) -> None:
    environment = {
        "DROPBENCH_RUNS": "elsewhere",
        "DROPBENCH_DB": "sqlite:///other.db",
        "DROPBENCH_PLUGINS": "tiny.py:my.py",
        "DROPBENCH_BACKEND": "eager",
        "DROPBENCH_LOADERS": "1",
        "TINY_LOG": "batches",
    }
    done = dropbench(place, *TINY.split(), "--regularizer", "dropkey:ratio=0.3", environment=environment)
    assert done.code == 0, done.err
    assert (place / "other.db").exists()
    assert not (place / "dropbench.db").exists()
    (file,) = (place / "elsewhere").glob("*/environment.json")
    assert json.loads(file.read_bytes())["backend"] == "eager"
    assert len({process for *_, process in batches(place / "batches")}) > 1
    (place / "batches").unlink()
    done = dropbench(place, *TINY.split(), "--set", "lr=0.04", environment={**environment, "DROPBENCH_LOADERS": "0"})
    assert done.code == 0, done.err
    assert len({process for *_, process in batches(place / "batches")}) == 1
    done = dropbench(place, "list", "regularizers", environment=environment)
    assert "dropself" in done.out


def test_the_data_folder(place: Path) -> None:
    (place / "corpora" / "text").mkdir(parents=True)
    (place / "corpora" / "text" / "a.txt").write_text("one two three\n" * 50, encoding="utf-8")
    done = dropbench(place, "data", "list", "--json", environment={"DROPBENCH_DATA": "corpora"})
    states = {row["name"]: row["state"] for row in done.json}
    assert states["text"] == "ready"
    assert states["trec"] != "ready"


@pytest.mark.parametrize("variable", ["DROPBENCH_LOADERS", "DROPBENCH_BACKEND", "DROPBENCH_TRACKERS"])
def test_impossible_values_are_refused(place: Path, variable: str) -> None:
    done = dropbench(place, *TINY.split(), "--plugin", "tiny.py", environment={variable: "nobody"})
    assert done.code == 2
    assert "nobody" in done.err
    assert not (place / "runs").exists()


def begin_job(file: str) -> int:
    """Do as a cluster's node when it begins with a pickled job, with the engine of the job's version."""
    from submitit.core.utils import DelayedSubmission

    from harness.trials import result_versions

    result_versions.ENGINE = 1
    DelayedSubmission.load(file).result()
    return 0


@pytest.fixture
def job(place: Path) -> Path:
    """A job that was submitted before an upgrade, and its trial."""
    shutil.copyfile(WRITTEN / "job" / "job.pkl", place / "job.pkl")
    directory = place / "runs" / "05791074337e"
    directory.mkdir(parents=True)
    shutil.copyfile(WRITTEN / "job" / "trial.json", directory / "trial.json")
    return directory


def begin(place: Path) -> Done:
    return in_process(begin_job, ["job.pkl"], place, {"TINY_LOG": "batches"})


def test_a_submitted_job_begins_after_an_upgrade(place: Path, job: Path) -> None:
    done = begin(place)
    assert done.code == 0, done.err
    assert json.loads((job / "result.json").read_bytes())["steps"] == 6
    assert json.loads((job / "environment.json").read_bytes())["backend"] == "eager"  # as its payload says
    found = batches(place / "batches")
    assert {size for split, size, _ in found if split == "train"} == {4}
    assert len({process for *_, process in found}) > 1  # `loaders` is 1


def test_a_job_goes_on_with_smaller_micro_batches(place: Path, job: Path, tmp_path: Path) -> None:
    unpack_runs(WRITTEN / "runs.tar.xz", tmp_path / "written")
    (job / "attempts").mkdir()
    shutil.copyfile(tmp_path / "written" / "runs" / "31d10206d3e6" / "attempts" / "1.json", job / "attempts" / "1.json")
    done = begin(place)
    assert done.code == 0, done.err
    assert (job / "result.json").exists()
    assert {size for split, size, _ in batches(place / "batches") if split == "train"} == {2}


def read_payload(file: str) -> int:
    """Read the settings of a job, as `Settings` has done from its first version."""
    from harness.settings import Settings

    payload = json.loads(Path(file).read_bytes())
    payload |= {"loaders": 3, "pieces": 4, "folders": {"trec": "corpora/TREC"}, "trackers": ["tensorboard"]}
    settings = Settings.from_payload(payload)
    again = Settings.from_payload(settings.to_payload())
    for one in (settings, again):
        assert getattr(one, "num_workers", getattr(one, "loaders", None)) == 3
        assert getattr(one, "micro_batch_splits", getattr(one, "pieces", None)) == 4
        assert (one.device, one.backend, one.compile, one.threads) == ("cpu", "eager", False, 1)
        assert (one.checkpoint_seconds, one.trackers, set(one.folders)) == (60.0, ("tensorboard",), {"trec"})
        assert [path.name for path in one.plugins] == ["tiny.py"]
        assert (one.data.name, one.runs.name, one.database) == ("data", "runs", "sqlite:///dropbench.db")
    return 0


def test_a_payload_of_settings_is_read(tmp_path: Path) -> None:
    done = in_process(read_payload, [str(WRITTEN / "job" / "settings.json")], tmp_path, {})
    assert done.code == 0, done.err
