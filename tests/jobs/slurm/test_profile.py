from __future__ import annotations

import os
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.jobs.slurm.profile import Profile, load_profile
from tests.jobs.workplace import Programs, Workplace
from tests.paths import ROOT

TOML = """
[profiles.a100]
partition = "gpu"
account = "vision"
qos = "long"
constraint = "a100"
gpus = 1
cpus = 8
memory = 32
time = 720
signal_delay = 120
setup = ["module load cuda", "export X=1"]

[profiles.other]
gpus = 8
gpu_type = "a100"
sbatch = {reservation = "the lab's", exclusive = true, nice = 100}
srun = {container-image = "/shared/drop bench.sqsh", container-writable = true}
python = "apptainer exec --nv dropbench.sif python"
"""


def test_the_parameters_of_a_profile(tmp_path: Path) -> None:
    (tmp_path / "dropbench.toml").write_text(TOML)
    profile = load_profile("a100", tmp_path / "dropbench.toml")
    assert profile == Profile(
        partition="gpu", account="vision", qos="long", constraint="a100", gpus=1, cpus=8, memory=32.0, time=720,
        signal_delay=120, setup=["module load cuda", "export X=1"],
    )  # fmt: skip
    assert Profile().to_submitit() == {
        "time": 60,
        "nodes": 1,
        "ntasks_per_node": 1,
        "cpus_per_task": 1,
        "signal_delay_s": 90,
        "srun_args": ["--kill-on-bad-exit=1", "--cpus-per-task=1"],
    }
    quoted = Profile(environment={"TOKENS": "a b"}, setup=["module load cuda"])
    assert quoted.to_submitit()["setup"] == ["export TOKENS='a b'", "module load cuda"]


def test_the_profile_in_the_documentation_uses_all_gpus(tmp_path: Path) -> None:
    """It is that of the first commands of the page."""
    page = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
    toml = page.partition("cat > dropbench.toml <<'.'\n")[2].partition("\n.\n")[0]
    (tmp_path / "dropbench.toml").write_text(toml)
    profile = load_profile("node", tmp_path / "dropbench.toml")
    assert profile.idle_gpus is None
    requested = profile.to_submitit()
    assert (requested["gpus_per_node"], requested["ntasks_per_node"], requested["cpus_per_task"]) == (8, 8, 8)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("", "unknown profile of dropbench.toml 'a100': known: none"),
        ("[profiles.a10]\n", "did you mean a10?"),
        ("[profiles\n", "dropbench.toml: invalid TOML: "),
        ("a = " + "[" * 100_000, "dropbench.toml: invalid TOML: "),
        ("profiles = 3\n", "dropbench.toml: profiles: expected tables such as [profiles.a100]"),
        ("[profiles]\na100 = 3\n", "profiles: expected tables such as [profiles.a100]"),
        ("[profiles.a100]\npartitoin = 'gpu'\n", "unknown key of [profiles.a100] 'partitoin': did you mean partition"),
        ("[profiles.a100]\ngpus = -1\n", "profiles.a100: gpus=-1: input should be greater than or equal to 0"),
        ("[profiles.a100]\ngpus = '1'\n", "profiles.a100: gpus=1: input should be a valid integer"),
        ("[profiles.a100]\nsetup = 'module load'\n", "profiles.a100: setup=module load: input should be a valid list"),
        ("[profiles.a100]\nenvironment = {'A;touch x;B' = '1'}\n", "environment.A;touch x;B.[key]"),
        ("[profiles.a100]\nenvironment = {'' = '1'}\n", "string should match pattern"),
        ("[profiles.a100]\ngpu_type = 'a100'\n", "gpu_type=a100: expected gpus of at least 1"),
        ("[profiles.a100]\nsbatch = {time = 3}\n", "sbatch.time: set by the keys of a profile, or by DropBench"),
        (
            "[profiles.a100]\nsbatch = {gres = 'gpu:a100:8'}\n",
            "sbatch.gres=gpu:a100:8: expected GPUs as gpus and gpu_type",
        ),
        ("[profiles.a100]\nsbatch = {exclusive = false}\n", "sbatch.exclusive"),
        ("[profiles.a100]\nsbatch = {container-image = 'x'}\n", "expected srun.container-image"),
        ("[profiles.a100]\nsbatch = {'x=1 --y' = true}\n", "string should match pattern"),
        ("[profiles.a100]\nenvironment = {DROPBENCH_RUNS = '/x'}\n", "environment: DROPBENCH_RUNS: known for a node: "),
        ("[profiles.a100]\nenvironment = {DROPBENCH_DATA = 'x'}\n", "DROPBENCH_DATA=x: expected an absolute path"),
        ("[profiles.a100]\nenvironment = {DROPBENCH_NUM_WORKERS = 'x'}\n", "expected a number of processes"),
        ("[profiles.a100]\ntime = 10000000\n", "time=10000000: input should be less than or equal to 1000000"),
        ("[profiles.a100]\ntasks = 2\ntrials_at_a_time = 4\n", "trials_at_a_time=4: expected nodes=1 and tasks=1"),
        ("[profiles.a100]\nmemory = inf\n", "memory=inf: input should be less than or equal to 1000000"),
        ("[profiles.a100]\nmemory = 0.0001\n", "memory=0.0001: input should be greater than or equal to 0.001"),
    ],
)
def test_invalid_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toml: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dropbench.toml").write_text(toml)
    with pytest.raises(InputError) as raised:
        load_profile("a100")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "key", ["partition", "account", "qos", "constraint", "setup", "environment", "gpu_type", "sbatch", "srun", "python"]
)
@pytest.mark.parametrize("letter", ["\n", "\r", "\0", "\x1b", "\x7f"])
def test_no_text_of_a_profile_adds_a_line(key: str, letter: str) -> None:
    text = f"touch x{letter}"
    value: object = {"setup": [text], "environment": {"A": text}, "sbatch": {"a": text}, "srun": {"a": text}}.get(
        key, text
    )
    with pytest.raises(ValueError, match="String should match pattern"):
        Profile(**{key: value})  # type: ignore[arg-type]


def test_the_sbatch_script_of_a_dry_run(place: Workplace, programs: Programs) -> None:
    (place.folder / "dropbench.toml").write_text(TOML)
    place.ok("enqueue", "tiny.yaml")
    path = {**place.environment, "PATH": os.environ["PATH"]}
    programs(srun=None)
    missing = place.call("submit", "--executor", "slurm", "--profile", "a100", "--dry-run", env=path)
    assert missing.returncode == 2
    assert "executor slurm: srun not found: " in missing.stderr
    programs(srun="exit 1", sbatch="echo 'sbatch: error: no such\npartition' >&2; exit 1")
    done = place.ok("submit", "--executor", "slurm", "--profile", "a100", "--dry-run", env=path)
    for line in (
        "#SBATCH --partition=gpu", "#SBATCH --account=vision", "#SBATCH --qos=long", "#SBATCH --constraint=a100",
        "#SBATCH --gpus-per-node=1", "#SBATCH --cpus-per-task=8", "#SBATCH --mem=32768MB", "#SBATCH --time=720",
        "#SBATCH --signal=USR2@120", "module load cuda", "export X=1",
        "#SBATCH --array=0-3%4", "# 4 trials in 4 jobs, 1 array", "# tiny: unknown GPU-hours for 4 trials",
    ):  # fmt: skip
        assert line in done.stdout.splitlines()
    other = place.ok("submit", "--executor", "slurm", "--profile", "other", "--dry-run", env=path).stdout.splitlines()
    for option in ("gpus-per-node=a100:8", "reservation='the lab'\"'\"'s'", "exclusive", "nice=100"):
        assert f"#SBATCH --{option}" in other
    (command,) = (line for line in other if line.startswith("srun "))
    assert " --kill-on-bad-exit=1 " in command
    assert " '--container-image=/shared/drop bench.sqsh' --container-writable " in command
    assert " apptainer exec --nv dropbench.sif python -u -m submitit.core._submit " in command
    refused = place.call("submit", "--executor", "slurm", "--profile", "a100", env=path)
    assert refused.returncode == 2
    assert refused.stderr == "dropbench: sbatch refuses: sbatch: error: no such partition\n"
    assert place.call("status").stdout.splitlines()[0].split() == ["queued", "4"]
