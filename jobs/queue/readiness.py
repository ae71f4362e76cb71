"""The checklist before a suite is submitted: whether jobs of a cluster profile can train it, and at which cost."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterator, Sequence

from dropbench.db.queries.rates import Shape, shape_of
from dropbench.db.store.store import open_store
from dropbench.harness.checking.findings import Finding
from dropbench.harness.errors import InputError, UnsuitableError, count_of
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import Suite, load_suite
from dropbench.harness.training.checkpoint import KEEP
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.operations import check_trial
from dropbench.jobs.queue.request import request_suite
from dropbench.jobs.slurm import client
from dropbench.jobs.slurm.profile import Profile, load_profile
from dropbench.jobs.submission.cost import PROBE, Speed, known_speeds
from dropbench.jobs.submission.node_check import Report, run_node_check
from dropbench.tasks.data.locate import locate

GIB = 2**30


def check_readiness(profile_name: str, suite: str, options: SuiteOptions, settings: Settings) -> list[Finding]:
    """Check whether jobs of a profile can train a suite; wait for one such job, also if data are missing.

    Raises:
        InputError: there is no such profile, suite or preset, or data set of the suite.
    """
    profile, known_suite = load_profile(profile_name), load_suite(suite)
    findings = [*_check_profile(profile), _check_accounting()]
    trials: list[Trial] = []
    try:
        trials += request_suite(known_suite, options, settings).trials.values()
    except InputError as error:
        findings += _missing_data(known_suite, options, settings) or [_missing("data here", error)]
    else:
        findings += [Finding("data here", "ok", f"of {suite}, {options.preset}"), _check_trials(trials, settings)]
    kinds: dict[Shape, list[Trial]] = {}
    for trial in trials:
        kinds.setdefault(shape_of(trial.config()), []).append(trial)
    with open_store(settings.database) as store:
        speeds = known_speeds(store, profile) if profile.gpus else {}
    findings += [_check_time(shape, len(alike), speeds.get(shape), profile) for shape, alike in kinds.items()]
    try:
        reports = run_node_check(settings, profile, [first for first, *_ in kinds.values()])
    except InputError as error:
        return [*findings, _missing("job", error)]
    return [*findings, *_check_nodes(reports, profile, settings), *_check_kinds(reports, kinds, speeds, settings)]


def _check_profile(profile: Profile) -> Iterator[Finding]:
    gpus = count_of(profile.gpus, "GPU") if profile.gpus else "no GPU"
    request = f"{count_of(profile.nodes, 'node')} × {count_of(profile.tasks, 'process', 'processes')}, {gpus} per node"
    if profile.idle_gpus is not None:
        yield Finding("profile", "missing", f"{request}: {profile.idle_gpus}")
    else:
        cores = count_of(profile.cpus, "core")
        yield Finding("profile", "ok", f"{request}, {cores} per process, {profile.time} minutes")


def _missing_data(suite: Suite, options: SuiteOptions, settings: Settings) -> list[Finding]:
    """Return a finding for each data set of a suite that is not here."""
    findings = []
    for name in dict.fromkeys(cell.request.data for cell in suite.cells(options)):
        try:
            locate(name, settings.data, settings.folders)
        except InputError as error:
            findings.append(_missing("data here", error))
    return findings


def _missing(what: str, error: InputError) -> Finding:
    return Finding(what, "missing", str(error))


def _check_accounting() -> Finding:
    try:
        client.run_command("sacct", "--noheader", "--format=JobID", "--jobs=1")
    except client.SlurmCommandError as error:
        return Finding("sacct", "absent", f"{error}: causes of killed workers are not known; nothing else needs it")
    return Finding("sacct", "ok", "answers")


def _check_trials(trials: Sequence[Trial], settings: Settings) -> Finding:
    """Check the trials as they are when a suite is enqueued, which skips unsuitable ones."""
    paths = sorted({trial.weights.path for trial in trials if trial.weights is not None})
    try:
        for trial in {trial.config_id: trial for trial in trials}.values():
            with contextlib.suppress(UnsuitableError):
                check_trial(trial, settings)
    except InputError as error:
        return _missing("trials", error)
    weights = f"their weights fit: {', '.join(paths)}" if paths else "random weights, which need no file"
    return Finding("trials", "ok", f"{count_of(len(trials), 'trial')}, {weights}")


def _check_time(shape: Shape, trials: int, speed: Speed | None, profile: Profile) -> Finding:
    """Compare the time of a trial with the time limit."""
    what = f"time of {shape.label}"
    if not profile.gpus:
        return Finding(what, "unchecked", "the profile requests no GPU")
    if speed is None:
        return Finding(what, "unchecked", f"no speed is recorded on these GPUs: {PROBE}")
    hours, limit = speed.steps * speed.seconds_per_step / 3600, profile.time / 60
    gpu_hours = trials * speed.steps * speed.gpu_hours_per_step
    cost = f"{gpu_hours:,.0f} GPU-hours for {count_of(trials, 'trial')}"
    jobs = count_of(math.ceil(hours / limit), "job")
    return Finding(what, "ok", f"{hours:.1f} hours: {jobs} of {limit:.3g} hours each, about {cost}")


def _check_nodes(reports: Sequence[Report], profile: Profile, settings: Settings) -> Iterator[Finding]:
    """Compare what the processes found with what the profile requests."""
    nodes = sorted({str(report["node"]) for report in reports})
    names = sorted(
        {name for report in reports for name in report["devices"]} if _all_are(list, reports, "devices") else []
    )
    gpus = min(int(report["gpus"]) for report in reports)
    if gpus != profile.gpus:
        yield Finding(
            "GPUs", "missing", f"{gpus} of {profile.gpus} per node on {', '.join(nodes)}: see `gpus`, `gpu_type`"
        )
    elif profile.gpus and not names:
        error = reports[0]["devices"] or "torch sees none: install torch for its driver (`nvidia-smi` on the node)"
        yield Finding("GPUs", "missing", f"{gpus} per node on {', '.join(nodes)}, but {error}")
    else:
        yield Finding("GPUs", "ok", f"{gpus} per node on {', '.join(nodes)} {', '.join(names)}".rstrip())
    if len(reports) > 1:
        found = [report["communication"] for report in reports]
        if error := next((each for each in found if isinstance(each, str)), None):
            hint = "set `NCCL_SOCKET_IFNAME` and `NCCL_DEBUG=INFO` in `environment`"
            yield Finding(
                "communication", "missing", f"{count_of(len(reports), 'process', 'processes')}: {error}: {hint}"
            )
        else:
            speed = min(each["gb_per_second"] for each in found)
            text = f"{found[0]['backend']} over {count_of(len(reports), 'process', 'processes')}: {speed:.2f} GB/s"
            yield Finding("communication", "ok", text)
    if not all(report["runs"] is True for report in reports):
        where = f"{settings.runs.absolute()} cannot be written on {', '.join(nodes)}"
        yield Finding("runs folder", "missing", f"{where}: set DROPBENCH_RUNS to a folder that all nodes share")


def _check_kinds(
    reports: Sequence[Report], kinds: dict[Shape, list[Trial]], speeds: dict[Shape, Speed], settings: Settings
) -> Iterator[Finding]:
    """Compare the speed of the loader with that of training, and the sizes of checkpoints with the disk."""
    needed = kept = 0
    for number, (shape, trials) in enumerate(kinds.items()):
        found, what = [report[f"trial {number}"] for report in reports], f"data of {shape.label}"
        if error := next((each for each in found if isinstance(each, str)), None):
            yield Finding(what, "missing", f"on the node: {error}")
            continue
        rate = min(each["batches_per_second"] for each in found)
        text = f"{rate:.2f} batches per second for {count_of(len(reports), 'process', 'processes')}"
        if (speed := speeds.get(shape)) is None:
            yield Finding(what, "unchecked", f"{text}; the speed of training is not known: {PROBE}")
        elif rate < (wanted := 1 / speed.seconds_per_step):
            hint = "more `cpus`, or data on the node's own disk (DROPBENCH_DATA in `environment`)"
            yield Finding(what, "missing", f"{text}, but training takes {wanted:.2f}: {hint}")
        else:
            yield Finding(what, "ok", f"{text}; training takes {1 / speed.seconds_per_step:.2f}")
        kept += len(trials) * found[0]["weights_bytes"]
        needed += len(trials) * KEEP * found[0]["checkpoint_bytes"]
    if kept:
        settings.runs.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(settings.runs).free
        text = f"up to {(needed + kept) / GIB:.1f} GiB of checkpoints while all trials run, {kept / GIB:.1f} GiB after"
        if free < kept + needed:
            hint = "free space, or let fewer trials run at a time (`--parallel`)"
            yield Finding("disk", "missing", f"{text}, {free / GIB:.1f} GiB free in {settings.runs.absolute()}: {hint}")
        else:
            yield Finding("disk", "ok", f"{text}, {free / GIB:.1f} GiB free")


def _all_are(kind: type, reports: Sequence[Report], name: str) -> bool:
    return all(isinstance(report[name], kind) for report in reports)
