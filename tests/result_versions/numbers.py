"""Measure the numbers of items by training tiny trials, and compare them with those recorded in `RECORDED`."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.seeding import seed_all
from dropbench.harness.settings import Settings
from dropbench.harness.training.environment import installed_version
from dropbench.harness.trials.plugins import make_trials
from dropbench.harness.trials.result_versions import current_versions, item_version
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import TrialRequest
from tests.paths import ROOT
from tests.result_versions import cases

RECORDED = ROOT / "tests" / "golden" / "result_versions.json"
COMMAND = "python -m tests.result_versions.record"
LIBRARIES = ("torch", "timm", "transformers", "mmdet", "fairseq")
DECLARED = {
    "engine": "ENGINE in harness/trials/result_versions.py",
    "task": "the class attribute",
    "model": "in harness/models/catalog.yaml",
    "regularizer": "the class attribute",
}
"""The place in which an item's version is declared."""
SPREAD = {f"regularizer {name}" for name in REGULARIZERS if name not in cases.MODEL_OF}
"""Items whose trials start from spread weights: those of a regularizer on a ViT."""
RELATIVE, OF_METRICS = 1e-4, 2e-2
"""Relative tolerance of losses, and of metrics: other processors round differently, which may flip an example."""
Numbers = dict[str, float | str]


def measure(item: str) -> Numbers:
    """Return the losses and metrics of an item's trial; of a model, also a digest of its shapes and sites."""
    request = cases.request(item)
    numbers = dict(_trained(request.model_dump_json(), spread=item in SPREAD))
    kind, _, name = item.partition(" ")
    return numbers | ({"structure": structure(name)} if kind == "model" else {})


@functools.cache  # several items have the same trial
def _trained(request_json: str, *, spread: bool) -> Numbers:
    from dropbench.harness.training.engine import run_trial

    request = TrialRequest.model_validate_json(request_json)
    numbers: Numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(runs=Path(folder), device="cpu", threads=1, backend="eager", num_workers=0)
        if spread:
            request = request.model_copy(update={"weights": str(_spread_weights(request, settings))})
        (trial,) = make_trials(request, [request.seed], settings)
        directory = RunDirectory.create(settings.runs, trial)
        result = run_trial(directory, settings)
        for event in directory.events():
            if event["event"] == "train":
                numbers[f"loss of step {event['step']}"] = event["loss"]
    return numbers | {name: value for name, value in sorted(result["metrics"].items()) if value is not None}


def _spread_weights(request: TrialRequest, settings: Settings) -> Path:
    """Write initial weights with which attention is far from uniform, as it is not with fresh ones."""
    import torch

    (trial,) = make_trials(request, [request.seed], settings)
    task = TASKS.get(trial.task)(trial, settings)
    task.setup()
    seed_all(request.seed)
    model, generator = task.build_model(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    settings.runs.mkdir(exist_ok=True)
    torch.save(model.state_dict(), path := settings.runs / "weights.pt")
    return path


def structure(model: str) -> str:
    """Return a digest of the parameters and the attention sites of a model for its sample data."""
    from dropbench.harness.models.sites import sites
    from dropbench.jobs.cli.listing import build_for_sample

    built = build_for_sample(model)
    shapes = [[name, *value.shape] for name, value in built.state_dict().items()]
    found = [
        [site.name, site.kind, site.layer, site.depth, site.heads, site.num_prefix_tokens] for site in sites(built)
    ]
    return hashlib.sha256(json.dumps([shapes, found]).encode()).hexdigest()[:12]


def differences(old: Numbers, new: Numbers) -> list[str]:
    """Return what differs by more than rounding, as texts."""
    return [
        f"{name}: {old.get(name)} recorded, {new.get(name)} measured"
        for name in {**old, **new}
        if not _close(name, old.get(name), new.get(name))
    ]


def _close(name: str, old: Any, new: Any) -> bool:
    if not isinstance(old, int | float) or not isinstance(new, int | float):
        return bool(old == new)
    return math.isclose(old, new, rel_tol=RELATIVE if "loss" in name else OF_METRICS, abs_tol=1e-6)


def versions_of(item: str) -> dict[str, int]:
    """Return the current versions of an item, and of everything else that its trial uses."""
    (trial,) = make_trials(cases.request(item), [1], Settings())
    return current_versions(trial) | {item: item_version(item)}


def case_digest(item: str) -> str:
    """Return a digest of the trial that is trained for an item."""
    return hashlib.sha256(cases.request(item).model_dump_json().encode()).hexdigest()[:12]


def libraries() -> str:
    """Return the versions of the libraries that numbers depend on."""
    return ", ".join(f"{name} {installed_version(name)}" for name in LIBRARIES)


def problem(item: str, old: Mapping[str, Any], new: Numbers) -> str | None:
    """Return what is wrong if the numbers or the versions of an item are not those recorded, else None."""
    versions = versions_of(item)
    changed = differences(old["numbers"], new)
    if (versions, case_digest(item)) != (old["versions"], old["case"]):
        return f"{item}: its result versions {versions} or its case are not those recorded: run `{COMMAND} '{item}'`"
    if not changed:
        return None
    others = ", ".join(other for other in versions if other != item)
    return (
        f"the numbers of {item} changed: raise result_version of {item} ({DECLARED[item.partition(' ')[0]]}), "
        f"or of what else its trial uses if that has changed ({others}); then run `{COMMAND}` to record the new ones: "
        + "; ".join(changed)
    )


def recorded() -> dict[str, dict[str, Any]]:
    """Return what is recorded, by item: `versions`, `case`, `libraries` and `numbers`."""
    content: dict[str, dict[str, Any]] = json.loads(RECORDED.read_bytes())
    return content
