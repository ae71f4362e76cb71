"""`make paper`: train a cell of each suite's preset `paper`, with small models, on a private SLURM.

    python -m tests.zoo.paper [SUITE…]

Data are generated in their published layouts. Each trial is trained by two processes on each of two nodes, stopped once
it has a checkpoint (SIGKILL of its last or first process, or scancel), continued by three processes of one node, and
looked up in its table. The exit code is 1 if one of them has not succeeded in its second attempt.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import yaml

from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.suite import load_suite, suite_names
from dropbench.harness.trials.recipe_diff import PAPER
from dropbench.tasks.data.dataset import DATASETS
from dropbench.tasks.data.synthetic_cache import write_synthetic
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import ClusterPlace, running
from tests.cluster.fault_checks import job_of
from tests.tasks.language.gpt2_files import gpt2_folder
from tests.tasks.making import save_bert

STRIKES = "kill the last process", "kill the first process", "scancel"
PROFILES = """
[profiles.two]
nodes = 2
tasks = 2
memory = 1.9
[profiles.three]
tasks = 3
memory = 3.8
"""
ENCODER = {"image_size": 64, "model.embed_dim": 32, "model.depth": 2, "model.num_heads": 2}
DETECTOR = {
    "model.depth": 18, "model.num_queries": 12, "model.encoder_layers": 1, "model.decoder_layers": 2,
    "model.embed_dim": 32, "model.num_heads": 2, "model.feedforward": 64,
}  # fmt: skip
TRANSLATOR = {
    "model.encoder_layers": 2, "model.decoder_layers": 2, "model.dim": 32, "model.feedforward": 64, "model.heads": 2,
}  # fmt: skip
SMALL_MODELS: dict[str, dict[str, Any]] = {
    "t2t-vit-digits": {}, "vit-digits": {}, "vit-cifar": {},
    "t2t-vit": {**ENCODER, "model.token_dim": 16},
    "volo": {
        "image_size": 64, "model.layers": "1,1,1,1", "model.embed_dim": 32, "model.num_heads": 2, "model.stem_dim": 16,
    },
    "detr": DETECTOR,
    "qpic": DETECTOR,
    "metro": {
        "model.backbone": "resnet10t", "model.hidden": "32,16,16", "model.between": "16,16", "model.layers": 1,
        "model.feedforward": 64,
    },
    "transformer-wmt-en-de": TRANSLATOR,
    "learned-dropout-lm": {"model.layers": 2, "model.dim": 36, "model.heads": 3},
    "transformers-encoder": {"max_length": 32},
    "image-encoder": {"image_size": 56},
    "text-transformer": {"model.layers": 2, "model.dim": 32, "model.heads": 2, "model.feedforward": 64},
    "vit": ENCODER,
    "deit": ENCODER,
}  # fmt: skip
"""Options of the models whose names begin so."""
SMALL_TASKS: dict[str, dict[str, Any]] = {
    "image-classification": {"batch_size": 32},
    "object-detection": {"image_size": 96, "batch_size": 8, "accumulate": 4},
    "interaction-detection": {"image_size": 96, "batch_size": 8, "accumulate": 4},
    "mesh-recovery": {"image_size": 64, "batch_size": 16},
    "translation": {"batch_size": 400},
    "language-modelling": {"batch_size": 16, "vocabulary": 300, "evaluation_batches": 4},
}
"""Recipes; those of the other tasks keep their batches."""
STEPS = 60


def write_data(root: Path) -> None:
    """Write the data sets that can be generated, in their published layouts, and files of GPT-2's tokenizer."""
    for name in DATASETS:
        dataset = DATASETS.get(name)
        if dataset.synthetic:
            (folder := root / dataset.folder).mkdir(parents=True)
            write_synthetic(dataset, folder, 0)
    binarize(root / DATASETS.get("wmt16-en-de").folder)
    gpt2_folder(root)


def binarize(folder: Path) -> None:
    """Replace tokenized translations by the files that fairseq-preprocess makes of them."""
    from fairseq import options
    from fairseq_cli import preprocess

    files = {"train": "train.tok.clean.bpe.32000", "valid": "newstest2013.tok.bpe.32000"}
    files["test"] = "newstest2014.tok.bpe.32000"
    words = [f"--{split}pref={folder / name}" for split, name in files.items()]
    words += ["--source-lang=en", "--target-lang=de", "--joined-dictionary", f"--destdir={folder}"]
    preprocess.main(options.get_preprocessing_parser().parse_args(words))
    for text in folder.glob("*.32000.*"):
        text.unlink()


def write_weights(folder: Path) -> dict[str, Path]:
    """Save pre-trained models with random weights, and return them by the models of ours that begin with them."""
    import timm
    import torch
    from transformers import Dinov2Config, Dinov2Model

    save_bert(folder / "bert")
    config = Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, mlp_ratio=2, image_size=56, patch_size=14
    )
    Dinov2Model(config).save_pretrained(folder / "dinov2")
    torch.save(timm.create_model("resnet18").state_dict(), folder / "resnet18.pth")
    resnet = folder / "resnet18.pth"
    encoders = {"transformers-encoder": folder / "bert", "image-encoder": folder / "dinov2"}
    return {**encoders, "detr": resnet, "qpic": resnet}


def chosen(name: str, data: set[str]) -> Cell:
    """Return a cell of a suite's paper preset on data that are there: one with a finetune stage, or a regularizer."""
    options = SuiteOptions(preset=PAPER, seeds=[0], sweep={})
    cells = [cell for cell in load_suite(name).cells(options) if cell.request.data in data]
    finetuned = [cell for cell in cells if cell.request.align == "finetune"]
    regularized = [cell for cell in cells if cell.request.regularizer != "none"]
    found = finetuned or regularized or cells
    # The suites of the field have the same regularizers: each takes another one.
    return found[sum(map(ord, name)) % len(found) if name.startswith("field/") else 0]


def suite_of(cell: Cell, weights: dict[str, Path]) -> str:
    """Return a suite file with one cell, made small."""
    request = cell.request
    small = next((keys for model, keys in SMALL_MODELS.items() if request.model.startswith(model)), {})
    overrides = {**request.overrides, **SMALL_TASKS.get(request.task, {}), **small, "steps": STEPS}
    overrides.pop("epochs", None)
    if request.align == "finetune":
        overrides["finetune_epochs"] = 1
    trial = {
        key: getattr(request, key) for key in ("task", "data", "model", "regularizer", "params", "schedule", "align")
    }
    preset: dict[str, Any] = {"seeds": 1, "overrides": overrides}
    if request.model in weights:
        preset["weights"] = str(weights[request.model])
    content = {
        "title": cell.suite, "source": f"{cell.suite}, made small", "metric": cell.metric, "trial": trial,
        "rows": [{"label": cell.row}], "columns": [{"label": cell.column}], "presets": {PAPER: preset},
    }  # fmt: skip
    return str(yaml.safe_dump(content, sort_keys=False))


def processes(job: str) -> dict[int, int]:
    """Return the pids of an array job's processes by rank."""
    array, _, element = job.partition("_")
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, KeyError, ValueError):
            if (entry / "comm").read_text().startswith(("srun", "slurm")) or b"core._submit" not in (
                entry / "cmdline"
            ).read_bytes():
                continue
            pairs = (pair.partition("=") for pair in (entry / "environ").read_text().split("\0"))
            environment = {name: value for name, _, value in pairs}
            if (environment["SLURM_ARRAY_JOB_ID"], environment["SLURM_ARRAY_TASK_ID"]) == (array, element):
                found[int(environment["SLURM_PROCID"])] = int(entry.name)
    return found


def strike(place: ClusterPlace, struck: dict[str, str]) -> None:
    """Stop each trial of one attempt that has a checkpoint."""
    for directory in place.directories():
        attempts = directory.attempts()
        if directory.id in struck or len(attempts) != 1 or attempts[0]["state"] != "running":
            continue
        job = job_of(directory)
        if not any((directory.path / "checkpoint").glob("step-*.pt")) or len(ranks := processes(job)) < 4:
            continue
        kind = STRIKES[len(struck) % 5 % 3]
        if kind == "scancel":
            place.cluster.run("scancel", job)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(ranks[max(ranks) if kind == STRIKES[0] else 0], signal.SIGKILL)
        struck[directory.id] = kind
        print(f"{directory.id}: {kind}", flush=True)


def dropbench(place: ClusterPlace, *words: str) -> str:
    """Run the command line, with warnings of libraries, and return its output."""
    command = [sys.executable, "-m", "dropbench", *words]
    done = subprocess.run(command, cwd=place.folder, env=place.environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def train(place: ClusterPlace, profile: str, struck: dict[str, str] | None = None) -> dict[str, Any]:
    """Submit what is queued, wait for the end, and return the status."""
    dropbench(place, "submit", "--executor=slurm", f"--profile={profile}", "--parallel=2", "--checkpoint-seconds=0")
    while True:
        if struck is not None:
            strike(place, struck)
        status = place.look()
        if not status["submitted"] + status["running"]:
            print(f"{profile}: {status}", flush=True)
            return status
        time.sleep(0.5)


def files_of(names: Sequence[str], folder: Path, data: set[str]) -> Iterator[tuple[Cell, Path]]:
    """Write the suite files, and yield them with their cells."""
    weights = write_weights(folder / "weights")
    for name in names:
        cell, file = chosen(name, data), folder / f"{name.replace('/', '-')}.yaml"
        file.write_text(suite_of(cell, weights), encoding="utf-8")
        yield cell, file


def walk(cluster: Cluster, folder: Path, names: Sequence[str]) -> bool:
    """Train a cell of each suite; return whether each succeeded in its second attempt, and is in its table."""
    logging.disable(logging.INFO)
    write_data(folder / "data")
    place = ClusterPlace(folder, cluster)
    place.environment |= {"DROPBENCH_DATA": str(folder / "data")}
    with (folder / "dropbench.toml").open("a", encoding="utf-8") as file:
        file.write(PROFILES)
    data = {name for name in DATASETS if DATASETS.get(name).synthetic} | {"digits", "digits-small"}
    suites = {file.name: cell for cell, file in files_of(names, folder, data)}
    print(dropbench(place, "enqueue", *suites, f"--preset={PAPER}"), flush=True)
    struck: dict[str, str] = {}
    train(place, "two", struck)
    if "scancel" in struck.values():
        dropbench(place, "retry", "cancelled")
    status = train(place, "three")
    print(dict(Counter(struck.values())))
    wrong = [
        f"{id}: {[attempt['state'] for attempt in attempts]}"
        for id, attempts in place.attempts().items()
        if len(attempts) != 2 or attempts[-1]["state"] != "succeeded"
    ]
    for name, cell in suites.items():
        if "/" in cell.metric:
            dropbench(place, "analyze", name, f"--preset={PAPER}")
        table = json.loads(dropbench(place, "report", name, f"--preset={PAPER}", "--json"))
        mean = table["cells"][0]["mean"]
        print(f"{cell.suite}: {cell.row}, {cell.column}: {mean}")
        wrong += [f"{cell.suite}: not in its table"] if mean is None else []
    print("\n".join(wrong) or f"all {status['succeeded']} trials succeeded in their second attempt")
    place.clean()
    return not wrong


def main() -> None:
    """Run the command line."""
    names = sys.argv[1:] or suite_names()
    folder = Path(mkdtemp(prefix="paper-"))
    with running() as cluster:
        ok = walk(cluster, folder, names)
    if ok:
        shutil.rmtree(folder)
    else:
        print(f"the files are in {folder}")
    sys.exit(not ok)


if __name__ == "__main__":
    main()
