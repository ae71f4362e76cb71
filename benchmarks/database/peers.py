"""Optuna's and MLflow's SQLite stores at work: a script for a Python that has them (see `benchmarks.database.stores`).

``python -I benchmarks/database/peers.py optuna|mlflow COUNT METRICS FOLDER`` prints JSON. The script imports nothing of
DropBench, because that Python may have other versions of DropBench's dependencies.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

REGULARIZERS = ("none", "dropout", "dropkey", "dropattention-c", "dropattention-e")


def optuna(count: int, metrics: int, folder: Path) -> dict[str, Any]:
    """Seconds to enqueue `count` trials by each of its two ways, and to count them by state."""
    module: Any = import_module("optuna")
    module.logging.set_verbosity(module.logging.ERROR)
    params = [{"regularizer": REGULARIZERS[i % 5], "ratio": i % 10 / 10, "seed": i} for i in range(count)]
    waiting = [
        module.trial.create_trial(state=module.trial.TrialState.WAITING, system_attrs={"fixed_params": one})
        for one in params
    ]

    one_by_one, at_once = (
        module.create_study(storage=f"sqlite:///{folder}/{name}.db", study_name="campaign") for name in ("one", "all")
    )

    def count_states() -> Counter[Any]:
        study = module.load_study(storage=f"sqlite:///{folder}/all.db", study_name="campaign")  # nothing in memory
        return Counter(one.state for one in study.get_trials(deepcopy=False))

    return {
        "version": module.__version__,
        "enqueue_trial": _seconds(lambda: [one_by_one.enqueue_trial(one) for one in params]),
        "add_trials": _seconds(lambda: at_once.add_trials(waiting)),
        "get_trials": _seconds(count_states),
    }


def mlflow(count: int, metrics: int, folder: Path) -> dict[str, Any]:
    """Seconds to log `metrics` values of each of `count` runs, a batch a run, and to average one by a parameter."""
    module: Any = import_module("mlflow")
    entities: Any = import_module("mlflow.entities")
    client = module.MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("campaign", artifact_location=str(folder / "artifacts"))
    runs = []
    for number in range(count):
        runs.append(client.create_run(experiment).info.run_id)
        client.log_param(runs[-1], "regularizer", REGULARIZERS[number % 5])
    curve = [entities.Metric("train_loss", 1 / step, 0, step) for step in range(1, metrics)]

    def log() -> None:
        for number, run in enumerate(runs):
            client.log_batch(run, metrics=[*curve, entities.Metric("test_accuracy", 80 + number % 7, 0, 0)])

    def results() -> dict[str, float]:
        found: dict[str, list[float]] = {}
        token = None
        while True:
            page = client.search_runs([experiment], max_results=50000, page_token=token)
            for run in page:
                found.setdefault(run.data.params["regularizer"], []).append(run.data.metrics["test_accuracy"])
            token = page.token
            if not token:
                return {name: fmean(values) for name, values in found.items()}

    return {"version": module.__version__, "log_batch": _seconds(log), "search_runs": _seconds(results)}


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    kind, count, metrics, folder = sys.argv[1:]
    print(json.dumps({"optuna": optuna, "mlflow": mlflow}[kind](int(count), int(metrics), Path(folder))))
