"""JSON of the commands on queued trials, and completion of their filters."""

from __future__ import annotations

import json
from typing import Any

from tests.jobs.workplace import Workplace


def printed(place: Workplace, *words: str) -> Any:
    """Return the JSON on standard output; a command prints nothing else there."""
    done = place.ok(*words, "--json")
    return json.loads(done.stdout)


def test_every_command_on_the_queue_prints_json(place: Workplace) -> None:
    added = printed(place, "enqueue", "tiny.yaml")["added"]
    (preview,) = printed(place, "submit", "--dry-run", "--parallel", "3")
    assert (preview["executor"], preview["trials"]) == ("local", 4)
    assert "3 workers" in preview["preview"]
    cancelled = printed(place, "cancel", "seed=1")
    assert {**cancelled, "cancelled": {*cancelled["cancelled"]}} == {"cancelled": {*added[1::2]}, "stopping": []}
    assert printed(place, "cancel", "seed=1") == {"cancelled": [], "stopping": []}
    assert sorted(printed(place, "retry", "cancelled")["requeued"]) == sorted(added[1::2])
    (submitted,) = printed(place, "submit", "--executor", "debug")
    assert submitted == {"executor": "debug", "trials": 4, "workers": 4, "queued": 0, "refusal": None}
    assert printed(place, "submit") == []
    assert printed(place, "status")["succeeded"] == 4


def test_watch_prints_a_line_of_counts_per_change(place: Workplace) -> None:
    printed(place, "enqueue", "tiny.yaml", "--preset", "one")
    watched = place.call("status", "--watch", "--json")
    assert watched.returncode == 0
    counts = [json.loads(line) for line in watched.stdout.splitlines()]
    assert [(line["queued"], line["running"]) for line in counts] == [(2, 0)]
    assert {*counts[0]} == {*printed(place, "status")}
    assert "2 trials queued without workers" in watched.stderr


def test_filters_are_completed_from_the_database(place: Workplace) -> None:
    first, *_ = added = printed(place, "enqueue", "tiny.yaml")["added"]

    def offered(*words: str) -> list[str]:
        environment = {"_DROPBENCH_COMPLETE": "complete_bash", "COMP_CWORD": str(len(words))}
        environment["COMP_WORDS"] = "\n".join(["dropbench", *words])
        done = place.call(env={**place.environment, **environment})
        assert done.stderr == ""
        return [line for line in done.stdout.splitlines() if line]

    assert offered("cancel", "regularizer", "=") == ["dropkey", "none"]
    assert offered("results", "regularizer", "=", "none,dr") == ["none,dropkey"]
    assert offered("compare", "--rank", "model!", "=") == ["tiny"]
    assert offered("retry", "mod") == ["model=", "model=tiny"]
    assert offered("submit", "suc") == ["succeeded"]
    assert offered("gc", "tin") == []
    assert offered("results", "suite", "=", "t") == ["tiny"]
    assert offered("cancel", first[:6]) == [first]
    assert {id for id in added if id.startswith(first[0])} == {*added} & {*offered("cancel", first[0])}


def test_a_completion_creates_no_database(place: Workplace) -> None:
    environment = {"_DROPBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "dropbench cancel fai", "COMP_CWORD": "2"}
    assert place.call(env={**place.environment, **environment}).stdout.split() == ["failed"]
    assert not (place.folder / "bench.db").exists()


def test_submit_enqueues_a_suite_first_and_submits_nothing_else(place: Workplace) -> None:
    other = printed(place, "enqueue", "tiny.yaml")["added"]
    (preview,) = printed(place, "submit", "tiny.yaml", "--preset", "one", "--dry-run")
    assert preview["trials"] == 2
    done = place.call("submit", "tiny.yaml", "--preset", "one", "--executor", "debug")
    assert done.stdout.startswith("Added 0 trials (2 already present).\n"), done.stderr
    counts = printed(place, "status")
    assert (counts["queued"], counts["succeeded"]) == (len(other), 2)
    place.call("cancel", "queued")
    again = place.call("submit", "tiny.yaml", "--dry-run")
    assert again.stdout.startswith(
        f"Added 0 trials ({len(other)} already present, {len(other)} of them queued again).\n"
    )


def test_one_configuration_is_enqueued(place: Workplace) -> None:
    configuration = ("--task", "tiny", "--data", "tiny", "--model", "tiny", "--regularizer", "dropkey:ratio=0.5")
    assert len(printed(place, "enqueue", *configuration, "--seeds", "2")["added"]) == 2
    refused = place.call("enqueue")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "nothing to run: pass a SUITE" in refused.stderr
