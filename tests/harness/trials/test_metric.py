"""Names of stored values, and the direction of metrics."""

from __future__ import annotations

import math
import re

import pytest

from dropbench.db.store.filters import COLUMNS, TRIAL_KEYS
from dropbench.harness.trials.metric import RESERVED, Metric, MetricName


@pytest.mark.parametrize(
    ("text", "stored", "label", "metric"),
    [
        ("accuracy", "test/accuracy", "accuracy", "accuracy"),
        ("test/accuracy", "test/accuracy", "accuracy", "accuracy"),
        ("dev/accuracy", "dev/accuracy", "dev/accuracy", "accuracy"),
        ("occlusion/accuracy@0.3", "occlusion/accuracy@0.3", "occlusion/accuracy@0.3", "accuracy"),
        ("test/a/b", "test/a/b", "a/b", "a/b"),
        ("", "test/", "", ""),
    ],
)
def test_a_metric_name_is_parsed_and_printed(text: str, stored: str, label: str, metric: str) -> None:
    name = MetricName.parse(text)
    assert (str(name), name.label, name.metric) == (stored, label, metric)
    assert MetricName.parse(str(name)) == name


def test_another_default_split_is_used_only_without_a_split() -> None:
    assert str(MetricName.parse("loss", "train")) == "train/loss"
    assert str(MetricName.parse("dev/loss", "train")) == "dev/loss"


@pytest.mark.parametrize(("higher_is_better", "best"), [(True, 3.0), (False, 1.0)])
def test_a_higher_score_is_better_in_either_direction(higher_is_better: bool, best: float) -> None:
    metric = Metric("any", higher_is_better=higher_is_better)
    assert max([2.0, 3.0, 1.0], key=metric.score) == best
    assert math.isnan(metric.score(math.nan))


@pytest.mark.parametrize("name", ["", "f1/macro", "a b", "a@0.3", "a=1", "-a", *sorted(RESERVED)])
def test_a_name_that_filters_cannot_tell_from_others_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"metric '{re.escape(name)}': "):
        Metric(name)


def test_fields_of_trials_are_no_metrics() -> None:
    assert {*COLUMNS, *TRIAL_KEYS} <= RESERVED
    assert Metric("pa-mpjpe_1.5", decimals=0).decimals == 0
    with pytest.raises(ValueError, match="decimals=-1: expected 0 to 12"):
        Metric("error", decimals=-1)
