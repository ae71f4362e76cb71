"""Some hundred trials under limits of jobs, without sacct, on a login node that dies three times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.slurm import campaign
from tests.jobs.workplace import Tiny


@pytest.mark.slow
def test_no_trial_is_lost_or_doubled(tiny: Tiny, tmp_path: Path) -> None:
    report = campaign.run(tmp_path, tiny(seeds=400), trials_per_job=1)
    assert report.problems == []
    assert report.deaths == 3
    assert report.kills > 0
    assert report.attempts["succeeded"] == 400
    assert report.attempts["lost"] == report.attempts.total() - 400 <= report.kills
    assert report.look_up_rate <= 0.2
    assert "waiting in SLURM (QOSMaxJobsPerUserLimit): a limit of your QOS or account" in report.waits
