"""`dropbench status --watch`: counts, trials that end, and the running trials."""

from __future__ import annotations

import json
import re

import pytest

from tests.jobs.workplace import Workplace
from tests.patience import PATIENCE, wait


@pytest.mark.slow
def test_trials_that_end_are_named_with_their_model_loss_and_rate(place: Workplace) -> None:
    place.pause.write_text("hold")
    place.ok("enqueue", "tiny.yaml", "--preset", "one")
    place.ok("submit", "--parallel", "1")
    wait(place.running, "a trial in training")
    watching = place.start("status", "--watch")
    assert watching.stdout is not None
    first = watching.stdout.readline()
    place.pause.write_text("0")
    rest, err = watching.communicate(timeout=PATIENCE)
    assert watching.returncode == 0, err
    lines = [first, *rest.splitlines()]
    assert lines[-1] == "2 succeeded"
    ended = [line for line in lines if line.startswith("[")]
    trial = "[0-9a-f]{12} tiny, (none|dropkey), tiny, seed 0"
    pattern = rf"\[[12]/2\] {trial}: succeeded, test/accuracy [\d.]+, loss [\d.]+, [\d.,]+ steps/s"
    assert len(ended) == 2
    assert all(re.fullmatch(pattern, line) for line in ended), ended
    log = json.loads(place.call("logs", ended[0].split()[1], "--json").stdout)
    assert log["attempts"][0]["number"] == 1
    assert "step 40/40" in log["log"]
