"""The benchmarks' command: what it prints, and that its ratios are ratios."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import timm
from PIL import Image
from timm.models.volo import VOLO

from benchmarks import volo
from benchmarks.images import clouds
from benchmarks.measure import compare
from harness.settings import Settings

ROOT = Path(__file__).parents[2]


def test_a_ratio_is_the_median_of_pairs_and_the_warm_up_does_not_count() -> None:
    waits = {"ours": iter([0.2, 0.02, 0.02, 0.02]), "peer": iter([0.0, 0.01, 0.01, 0.01])}
    measured = compare(
        "a", lambda: time.sleep(next(waits["ours"])), "b", lambda: time.sleep(next(waits["peer"])), limit=3.0, rounds=3
    )
    assert 1.2 < measured.ratio < 3.0
    assert measured.detail["ours_ms"] >= 20
    assert next(waits["ours"], None) is None


def test_json_has_the_documented_keys() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "startup", "--json"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    found = json.loads(done.stdout)
    assert [set(one) for one in found] == [{"name", "against", "ratio", "limit", "detail"}]
    assert found[0]["ratio"] == pytest.approx(found[0]["detail"]["ours_ms"] / found[0]["detail"]["peer_ms"], rel=0.5)


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


def test_an_unknown_benchmark_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2
    assert "unknown benchmark nothing" in done.stderr
