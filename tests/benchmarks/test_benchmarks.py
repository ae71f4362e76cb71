"""The benchmarks' command: what it prints, and that its ratios are ratios."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.models.volo import VOLO

from benchmarks.cluster import nodes, simulation
from benchmarks.database import queue, stores, tables
from benchmarks.database.queue import at_scale
from benchmarks.measure import compare
from benchmarks.quickstart import split_seconds
from benchmarks.training import volo
from benchmarks.training.images import clouds
from benchmarks.training.stacked import Stacked
from db.store.store import open_store
from harness.settings import Settings
from tests import forkserver
from tests.paths import ROOT


def test_a_ratio_is_the_median_of_pairs_and_the_warm_up_does_not_count() -> None:
    waits = {"ours": iter([0.2, 0.02, 0.02, 0.02]), "peer": iter([0.0, 0.01, 0.01, 0.01])}
    measured = compare(
        "a", lambda: time.sleep(next(waits["ours"])), "b", lambda: time.sleep(next(waits["peer"])), limit=3.0, rounds=3
    )
    assert 1.2 < measured.ratio < 3.0
    assert measured.ours >= 20
    assert next(waits["ours"], None) is None


def test_a_batched_model_takes_the_steps_of_its_models() -> None:
    class Squares:
        def loss(self, model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = (model(batch[0]) - batch[1]).square().mean()
            return loss

    task: Any = Squares()
    models: list[torch.nn.Module] = []
    for seed in range(3):
        torch.manual_seed(seed)
        models.append(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)))
    together = Stacked(task, models)
    optimizers = [torch.optim.AdamW(model.parameters(), fused=True) for model in models]
    for _ in range(3):
        batch = torch.randn(5, 4), torch.randn(5, 2)
        together.step(batch)
        for model, optimizer in zip(models, optimizers, strict=True):
            task.loss(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
    for number, model in enumerate(models):
        for name, values in model.named_parameters():
            torch.testing.assert_close(together.parameters[name][number], values.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_json_has_the_documented_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROPBENCH_BENCHMARK_STATUS", "10")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "startup", "--json"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    found = json.loads(done.stdout)
    names = [one["name"].removesuffix(", the whole process") for one in found]
    assert names[-3:] == ["dropbench --help", "dropbench list suites", "dropbench status of 10 trials"]
    for one in found:
        assert set(one) == {"name", "against", "ratio", "limit", "ours", "peer", "unit", "detail"}
        assert one["ratio"] == pytest.approx(one["ours"] / one["peer"], rel=0.5)


def test_the_photos_are_as_large_as_imagenets(tmp_path: Path) -> None:
    content = BytesIO()
    Image.fromarray(clouds(np.random.RandomState(0))).save(content, "JPEG", quality=95)
    assert 60_000 < len(content.getvalue()) < 160_000


def test_both_sides_train_the_same_volo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"layers": "1,1", "embed_dim": 16, "num_heads": 2, "mlp_ratio": 2.0, "stem_dim": 8}
    monkeypatch.setattr(volo, "VOLO_D1", tiny)
    monkeypatch.setattr(volo, "BATCH", 2)
    monkeypatch.setattr(volo, "ROUNDS", 2)
    monkeypatch.setattr(timm, "create_model", lambda name, num_classes: VOLO(
        [1, 1], img_size=224, num_classes=num_classes, stem_hidden_dim=8, embed_dims=[8, 16], num_heads=[1, 2],
        mlp_ratio=2.0, downsamples=(True, False), outlook_attention=(True, False), use_mix_token=False,
    ))  # fmt: skip
    found = volo.measured("none", Settings(runs=tmp_path, device="cpu", threads=1))
    ours, theirs = found.detail["first_losses"]
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert found.limit == pytest.approx(1 / 0.95, abs=1e-3)


def test_a_small_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.database.queue.ROUNDS", 1)
    found = at_scale(tmp_path, 203)
    assert [one.name.split(",")[0] for one in found] == [
        "enqueueing 203 trials", "status", "status", "results --group-by regularizer", "dropbench status",
        "dropbench results --group-by regularizer",
    ]  # fmt: skip
    assert "203 of them active" in found[2].name
    assert "2,030 metric rows" in found[3].name
    for one in found:
        assert one.limit == 1
        assert one.ratio == pytest.approx(one.ours / one.peer, abs=0.01)


@pytest.mark.slow
def test_a_simulated_cluster_runs_a_campaign_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fifty times the faults; few enough places that not all jobs can be submitted at once."""
    monkeypatch.setattr(nodes, "FAULTS", {name: 50 * often for name, often in nodes.FAULTS.items()})
    monkeypatch.setattr(nodes, "JOBS", 5)
    report = simulation.run(tmp_path, 203, 3)
    assert {name for name, count in report.states.items() if count} == {"succeeded", "failed"}
    assert sum(report.states.values()) == 203
    assert report.states["failed"] == report.faults["failed"] > 0
    assert report.attempts == 203 + sum(report.faults.values()) - report.faults["failed"]
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == report.states["succeeded"]
    assert report.calls["sbatch"] > 203 / simulation.PACK / nodes.JOBS
    assert {"collect", "submit", "status", "enqueue", "nodes"} == set(report.seconds)
    assert any(line.startswith("calls to SLURM: ") for line in report.lines())


def test_beside_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"version": "1.2", "log_batch": 20.0, "search_runs": 10.0}
    (peer := tmp_path / "peer.py").write_text(
        f"print('a word before')\nprint('{json.dumps(answer)}')", encoding="utf-8"
    )
    monkeypatch.setattr(stores, "PEERS", peer)
    monkeypatch.setenv("DROPBENCH_PEERS", sys.executable)
    recorded, averaged = stores.beside("mlflow", tmp_path)
    assert recorded.against == "mlflow 1.2, log_batch"
    assert recorded.peer == 20_000
    assert 0 < recorded.ratio == pytest.approx(recorded.ours / 20_000, rel=0.5)
    assert averaged.ours > 0
    peer.write_text("import no_such_module_of_anybodys", encoding="utf-8")
    (tmp_path / "again").mkdir()
    assert stores.beside("optuna", tmp_path / "again") == []
    assert "optuna is not installed" in capsys.readouterr().err


@pytest.mark.slow
def test_an_unknown_benchmark_is_refused() -> None:
    done = forkserver.run(["nothing"], cwd=ROOT, env=os.environ, module="benchmarks")
    assert done.returncode == 2
    assert "unknown benchmark nothing" in done.stderr


@pytest.mark.slow
def test_tables_are_made_of_what_was_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS", 3)
    monkeypatch.setattr(tables, "SEEDS", 2)
    monkeypatch.setattr(queue, "ROUNDS", 1)
    found = {one.name.split(";")[0]: one for one in tables.at_scale(tmp_path, 100)}
    assert {"rank", "report quickstart (28 trials)", "report quickstart (28 trials) --format html"} <= found.keys()
    assert all(one.ratio > 0 for one in found.values())
    assert 10**5 < found["that page of quickstart"].ours < tables.PAGE_BYTES
    with open_store(f"sqlite:///{tmp_path}/tables.db") as store:
        assert store.counts()["succeeded"] == sum(store.counts().values()) == 100


def test_the_parts_of_make_bench_begin_with_what_it_prints() -> None:
    printed = """
        1 Creating .venv with Python 3.11.7
        2 Installing requirements.lock (longer for a CUDA build of torch)
        21 Importing the libraries for the first time
        25 .venv/bin/dropbench run quickstart
        30 28 trials, 2 workers
        60 [27/28] 0123456789ab none, digits-small, seed 0: succeeded, test/accuracy 90.00
        62 [28/28] 0123456789ac none, digits-small, seed 1: succeeded, test/accuracy 90.00
        63 quickstart: Four regularizers
        64
    """
    rows = [row.strip().partition(" ") for row in printed.strip().splitlines()]
    lines = [(float(moment), line) for moment, _, line in rows]
    assert split_seconds(lines, 0.0) == {"installation": 21.0, "first imports": 4.0, "training": 37.0, "table": 2.0}
