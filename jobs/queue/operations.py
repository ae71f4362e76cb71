"""Operations on the queue: enqueue trials, cancel them, retry failed ones."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dropbench.db.store.store import Enqueued, Store, SubmissionRow
from dropbench.harness.checking.once import check_own_entries
from dropbench.harness.checking.own_entries import blaming, entries_of
from dropbench.harness.errors import InputError, UnsuitableError, count_of
from dropbench.harness.runs.kept_weights import has_no_weights, keep_weights
from dropbench.harness.runs.run_directory import BY_THE_USER, CANCELLED, RunDirectory, Runs
from dropbench.harness.settings import Settings
from dropbench.harness.suites.request import Request, write_request
from dropbench.harness.trials.plugins import keep_plugins
from dropbench.harness.trials.result_versions import version_note
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.reconcile import ACTIVE, collect, import_results
from dropbench.jobs.queue.request import Requested
from dropbench.jobs.submission.submission import job_name, read_elements, revoke
from dropbench.jobs.worker import slots
from dropbench.jobs.worker.retry import EXHAUSTED
from dropbench.tasks.data.check import require_readable
from dropbench.tasks.weights import require_fitting_weights


@dataclass
class Cancelled:
    """Ids of cancelled trials, and ids of running trials that were asked to stop."""

    cancelled: list[str] = field(default_factory=list)
    stopping: list[str] = field(default_factory=list)


def enqueue(
    store: Store, settings: Settings, requested: Requested, left_out: Collection[str] = ()
) -> tuple[Enqueued, Request]:
    """Store a request, and queue its trials; import the results of those that are trained already in `settings.runs`.

    Copies of its plug-ins, and its file, are written whole before anything is queued. A trial of a suite whose
    regularizer cannot work with its task or model is skipped with the reason. It is checked again when it is enqueued
    again, as a later version may be able to run it.

    Args:
        store: the database.
        settings: paths.
        requested: the request and its trials.
        left_out: ids of trials that are not queued, as a reference has them.

    Returns:
        the ids, and the request as it was stored.

    Raises:
        InputError: the database, a run directory or the request's file cannot be written, or a new trial is impossible.
    """
    trials = [trial for id, trial in requested.trials.items() if id not in left_out]
    unsuitable = _check_new(store, settings, trials, skips=bool(requested.request.suite.name))
    request = requested.with_reasons(unsuitable).request
    try:
        keep_plugins(trials, settings.runs)
        write_request(settings.runs, request)
    except OSError as error:
        raise InputError(f"{settings.runs}: {error.strerror}: expected a writable folder (DROPBENCH_RUNS)") from None
    present = [directory for trial in trials if (directory := Runs(settings.runs)[trial.id]).path.is_dir()]
    if present:
        with slots.dispatch_lock(settings.runs):
            for directory in present:
                _withdraw_cancellation(directory)
    _keep_weights(settings, request, {trial.id: trial for trial in trials if trial.config_id not in unsuitable})
    enqueued = store.enqueue(trials, [request], unsuitable)
    import_results(store, settings, [trial.id for trial in trials])
    return enqueued, request


def _keep_weights(settings: Settings, request: Request, trials: Mapping[str, Trial]) -> None:
    """Mark the fine-tuned trials that an analysis of the request needs, and on demand those that compete in a cell."""
    runs, analyzed, lost = Runs(settings.runs), set[str](), set[str]()
    for cell in sorted(request.cells, key=lambda cell: cell.analysis is None):
        # With seeds for tuning, the trials of the table are those of the chosen candidate, once it is known.
        tuned_apart = cell.sweep is not None and cell.sweep.seeds
        shown = filter(None, [cell.chosen]) if tuned_apart else cell.candidates
        own = [id for candidate in shown for id in candidate.trials]
        for id in own if cell.analysis is not None or settings.keep_weights else ():
            if id in trials and trials[id].weights is not None and id not in analyzed:
                if has_no_weights(runs[id]):
                    lost.add(id)
                    continue
                rivals = () if cell.analysis is not None else own
                keep_weights(runs, trials[id], rivals, cell.selected_by or cell.measured)
        analyzed.update(own if cell.analysis is not None else ())
    if settings.keep_weights and lost:
        again = "to train one again, delete its result.json and checkpoint/, then run `dropbench db rebuild`"
        finished = f"{count_of(len(lost), 'trial')} finished earlier, and kept no weights"
        print(f"--keep-weights: {finished}: {again} and this command", file=sys.stderr)


def _check_new(store: Store, settings: Settings, trials: Sequence[Trial], *, skips: bool) -> dict[str, str]:
    """Check the new and skipped trials; return why configurations are skipped, by their ids.

    Without `skips`, an unsuitable regularizer is an error.
    """
    present = store.states([trial.id for trial in trials])
    new = [trial for trial in trials if trial.id not in present or present[trial.id].state == "skipped"]
    unsuitable: dict[str, str] = {}
    for trial in {trial.config_id: trial for trial in new}.values():  # seeds make no difference
        try:
            check_trial(trial, settings)
        except UnsuitableError as error:
            if not skips:
                raise
            unsuitable[trial.config_id] = str(error)
    return unsuitable


def check_trial(trial: Trial, settings: Settings, *, again: bool = False) -> list[str]:
    """Check a trial that is about to be queued, and try what is a plug-in's in it; return notes for its author.

    Args:
        trial: the trial; its seed makes no difference.
        settings: paths.
        again: try also what has passed before.

    Raises:
        InputError: the trial is impossible.
        UnsuitableError: its regularizer cannot work with its task or model.
    """
    entries = entries_of(trial)
    with blaming(entries, "model", "task", "regularizer"):
        TASKS.get(trial.task).check(trial)
    with blaming(entries, "data"):
        require_readable(trial, settings)
    require_fitting_weights(trial, settings)
    return check_own_entries(trial, entries, settings, again=again) if entries else []


def requeue_exhausted(store: Store, ids: Sequence[str]) -> list[str]:
    """Requeue trials that were given up after lost attempts: the cause is outside the program, and may be gone."""
    failed = [row for row in store.states(ids).values() if row.state == "failed"]
    exhausted = [row.id for row in failed if (row.reason or "").startswith(EXHAUSTED)]
    return store.set_states(dict.fromkeys(exhausted, ("queued", None)), only_from={"failed"}) if exhausted else []


def retry(store: Store, settings: Settings, ids: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Requeue failed and cancelled trials, which resume from their checkpoints.

    Returns:
        the ids of the requeued trials, and by id why the others would fail again: they were made with other result
        versions.
    """
    ended = [id for id, row in store.states(list(ids)).items() if row.state in ("failed", "cancelled")]
    stale = {id: note for id, trial in store.trials(ended).items() if (note := version_note(trial, "requested"))}
    ended = [id for id in ended if id not in stale]
    for id in ended:
        _withdraw_cancellation(Runs(settings.runs)[id])
    return store.set_states(dict.fromkeys(ended, ("queued", None)), only_from={"failed", "cancelled"}), stale


def cancel(store: Store, settings: Settings, ids: Iterable[str], reason: str = BY_THE_USER) -> Cancelled:
    """Cancel trials; ask the workers of running ones to write a checkpoint and stop."""
    collect(store, settings)
    rows = {id: row for id, row in store.states(list(ids)).items() if row.state in ("queued", "submitted", "running")}
    for id in rows:
        if (settings.runs / id).is_dir():
            Runs(settings.runs)[id].cancel(reason)
    queued = [id for id, row in rows.items() if row.state == "queued"]
    store.set_states(dict.fromkeys(queued, ("cancelled", reason)), only_from={"queued"})
    collect(store, settings, always_inspect=rows)
    if arrays := [row for row in store.open_submissions() if row.executor == "slurm"]:
        _cancel_idle(store, arrays)
    after = store.states(list(rows))
    return Cancelled(
        cancelled=[id for id, row in after.items() if row.state == "cancelled"],
        stopping=[id for id, row in after.items() if row.state in ("submitted", "running")],
    )


def _cancel_idle(store: Store, arrays: Sequence[SubmissionRow]) -> None:
    """Cancel the jobs of arrays that have no active trial left; of others, the jobs without such trials."""
    from dropbench.jobs.slurm import client

    active = store.states(store.find(ACTIVE))
    busy = {row.submission_id for row in active.values()}
    for row in arrays:
        with contextlib.suppress(client.SlurmCommandError):  # these jobs exit as soon as they start
            if row.id not in busy:
                revoke(Path(row.folder))
                client.cancel(job_name(row.id))
            elif row.job_id is not None:
                elements = read_elements(Path(row.folder))
                if idle := {*elements.values()} - {elements.get(id) for id in active}:
                    client.cancel_elements(row.job_id, sorted(idle))


def _withdraw_cancellation(directory: RunDirectory) -> None:
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        (directory.path / CANCELLED).unlink()
