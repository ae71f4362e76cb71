"""Errors of plug-ins end an attempt, whatever they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.worker import worker
from dropbench.jobs.worker.worker import Worker
from tests.jobs.worker.training import states
from tests.jobs.workplace import Workplace


class Odd(BaseException):
    """No Exception."""


class Unreadable(Exception):
    """Fails at its message."""

    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (Odd("so"), "Odd: so"),
        (KeyboardInterrupt(), "KeyboardInterrupt: no message"),  # without a signal
        (ValueError("file \udce9.png"), r"ValueError: file \udce9.png"),
        (FileNotFoundError(2, "No such file", "\udce9"), r"No such file: \udce9"),
        (InputError("file \udce9.png"), r"file \udce9.png"),
        (Unreadable(), "Unreadable: its message cannot be read"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_plug_in_may_raise_anything(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]], monkeypatch: pytest.MonkeyPatch,
    error: BaseException, cause: str,
) -> None:  # fmt: skip
    def train(*arguments: object) -> None:
        raise error

    trials = tiny(2)
    monkeypatch.setattr(worker, "_train", train)
    work(trials)()
    assert states(place) == {trial.id: ["failed"] for trial in trials}
    assert {attempts[0]["cause"] for attempts in place.attempts().values()} == {cause}
