"""Measure training with DropKey by the engine against the loops and dropout of other libraries.

The peers have the engine's batches, loss and torch; BERT is also measured with the batches that transformers' Trainer
draws by default, whose texts have any lengths. Each side runs in a process of its own with its default optimizer. On
CPUs that multiply bfloat16, ViT-S and BERT are also measured with mixed precision, on both sides. The ratios have no
limit.

``python -m benchmarks.training.peers CASE SIDE PRECISION`` is one side of a case.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from transformers import PreTrainedModel, ViTConfig, ViTForImageClassification

from benchmarks.attention import RATIO
from benchmarks.measure import InProcess, Measurement, compare, serve
from benchmarks.training import translation
from benchmarks.training.engine import Ours, Trained, task_of, temporary_settings
from benchmarks.training.loops import ALGORITHM_1, Logits, PlainLoop, TimmTraining, register_algorithm_1
from dropbench.harness.errors import InputError
from dropbench.harness.memory import keep_freed_memory
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training import trainer
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import TrialRequest

Run = Callable[[], object]
Side = Callable[[Settings, str], Run]

ROUNDS = 10
UPDATES, TOKENS = 5, 1000
"""Of fairseq: updates per call, and tokens per batch."""
VIT: dict[str, Any] = {
    "task": "image-classification", "data": "imagenet-synthetic", "model": "vit-small",
    "overrides": {"batch_size": 8, "image_size": 224},
}  # fmt: skip
BERT_SMALL: dict[str, Any] = {
    "task": "text-classification", "data": "ag-news", "model": "bert-tiny",
    "overrides": {"batch_size": 16, "max_length": 256, "model.layers": 4, "model.dim": 512, "model.heads": 8,
                  "model.feedforward": 2048},
}  # fmt: skip
TRANSLATION = {"task": "translation", "model": "transformer-wmt-en-de"}
BERT_STEPS = 8
"""Per call, because the lengths of the texts vary."""
TEXT: dict[str, Any] = {
    "task": "text-classification", "data": "trec-synthetic", "model": "text-transformer", "preset": "paper",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A training by two sides. Both functions return a function that does some more steps.

    Attributes:
        what: the model, and the steps of a call.
        peer: the name of the other side.
        ours: returns our side, for settings and a precision ("no" or "bf16").
        theirs: returns the peer.
        is_mixed: also measured with mixed precision.
        needs: a trial whose data set is required; None: the data are synthetic.
    """

    what: str
    peer: str
    ours: Side
    theirs: Side
    is_mixed: bool = True
    needs: Mapping[str, Any] | None = None


def peers() -> list[Measurement]:
    """Measure steps of each side alternately, in all cases whose data are there."""
    has_bf16, rows = torch.cpu._is_avx512_bf16_supported(), []
    for precision in ("no", "bf16") if has_bf16 else ("no",):
        for name, case in CASES.items():
            if precision != "no" and not case.is_mixed:
                continue
            if case.needs and not has_data(case.needs):
                print(f"{name}: skipped: needs the data set {case.needs['data']}", file=sys.stderr)
                continue
            with (
                InProcess("benchmarks.training.peers", name, "ours", precision) as ours,
                InProcess("benchmarks.training.peers", name, "theirs", precision) as theirs,
            ):
                what = case.what if precision == "no" else f"{case.what} with {precision}"
                detail = {"threads": torch.get_num_threads()}
                rows.append(
                    compare(f"{what}, DropKey", ours, case.peer, theirs, limit=None, rounds=ROUNDS, detail=detail)
                )
    return rows


def main(name: str, side: str, precision: str) -> None:
    """Run one side of a case, a call for each line from stdin."""
    replies = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no reply
    with temporary_settings() as settings:
        case = CASES[name]
        if side == "ours":
            keep_freed_memory()  # as `run_trial`
        serve((case.ours if side == "ours" else case.theirs)(settings, precision), replies)


def has_data(fields: Mapping[str, Any]) -> bool:
    """Return whether the data set of a trial is there."""
    try:
        TASKS.get(fields["task"]).trial_for(TrialRequest(**fields), Settings.from_environment())
    except InputError:
        return False
    return True


def engine_of(fields: dict[str, Any], steps: int = 1) -> Side:
    """Return our side of a case: the engine."""
    return lambda settings, amp: Ours(build_task(fields, settings, amp), settings, steps).run


def transformers_vit(settings: Settings, amp: str) -> Run:
    """Return transformers' Trainer with its ViT-S at 224 px, with Algorithm 1."""
    register_algorithm_1()
    sizes: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "num_labels": 1000}
    config = ViTConfig(**sizes, intermediate_size=1536)
    config._attn_implementation = ALGORITHM_1
    model = Logits(ViTForImageClassification(config))
    return Trained(build_task(VIT, settings, amp), settings.runs, model, steps=1).run


def transformers_bert(settings: Settings, amp: str, *, own_batches: bool = False) -> Run:
    """Return transformers' Trainer with a BERT of four layers of 512, with Algorithm 1."""
    register_algorithm_1()
    task = build_task(BERT_SMALL, settings, amp)
    model = task.build_model()
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            module.set_attn_implementation(ALGORITHM_1)
    return Trained(task, settings.runs, model, BERT_STEPS, own_batches=own_batches).run


def timm_vit(settings: Settings, amp: str) -> Run:
    """Return the step of timm's ``train.py`` with its ViT-S at 224 px, with dropout of attention weights."""
    return TimmTraining(build_task(VIT, settings, amp), steps=1).run


def fairseq_updates(settings: Settings, _: str, *, data: str, ours: bool) -> Run:
    """Return updates of the engine, or of fairseq's Trainer with dropout of attention weights."""
    # In the default order, the optimizer is torch's fused Adam.
    tokens = {"max_tokens": TOKENS, "steps": UPDATES * (ROUNDS + 1), "order": "dropbench"}
    task = translation.prepared(data, settings, "dropkey", **tokens)
    if ours:
        directory = RunDirectory.create(settings.runs, task.trial)
        losses = translation.our_updates(trainer.Trainer(task, directory, settings, lambda: False))
    else:
        peer = translation.fairseq_train(task, settings.runs, "--attention-dropout", str(RATIO))
        losses = translation.fairseq_updates(peer)
    return lambda: [*islice(losses, UPDATES)].clear()


def fairseq_case(data: str) -> Case:
    """Return the case of fairseq on a data set."""
    return Case(
        f"{UPDATES} updates, {TRANSLATION['model']} on {data}",
        "fairseq's Trainer, attention dropout",
        partial(fairseq_updates, data=data, ours=True),
        partial(fairseq_updates, data=data, ours=False),
        is_mixed=False,
        needs={**TRANSLATION, "data": data},
    )


def bare_text(settings: Settings, _: str) -> Run:
    """Return a loop written by hand, without a regularizer and with torch's default AdamW."""
    return PlainLoop(build_task(TEXT, settings), steps=10).run


def build_task(fields: dict[str, Any], settings: Settings, amp: str = "no") -> Any:
    """Return the task of a trial with DropKey that is longer than all rounds, with its data."""
    overrides = {**fields.get("overrides", {}), "steps": 10_000, "evaluate_every": 10_000, "amp": amp}
    return task_of(settings, **{**fields, "overrides": overrides}, regularizer="dropkey", params={"ratio": RATIO})


CASES = {
    "fairseq": fairseq_case("multi30k-synthetic"),
    "fairseq-multi30k": fairseq_case("multi30k"),
    "bare": Case(
        "10 steps, text Transformer",
        "a bare loop, plain SDPA, torch's default AdamW",
        engine_of(TEXT, 10),
        bare_text,
        is_mixed=False,
    ),
    "vit-transformers": Case(
        "a step, ViT-S at 224 px", "transformers' Trainer, Algorithm 1", engine_of(VIT), transformers_vit
    ),
    "bert": Case(
        f"{BERT_STEPS} steps, BERT-small on AG's News",
        "transformers' Trainer, Algorithm 1",
        engine_of(BERT_SMALL, BERT_STEPS),
        partial(transformers_bert, own_batches=True),
        needs=BERT_SMALL,
    ),
    "bert-batches": Case(
        f"{BERT_STEPS} steps, BERT-small on AG's News",
        "the same with the engine's batches",
        engine_of(BERT_SMALL, BERT_STEPS),
        transformers_bert,
        needs=BERT_SMALL,
    ),
    "vit-timm": Case("a step, ViT-S at 224 px", "timm's training step, attention dropout", engine_of(VIT), timm_vit),
}

if __name__ == "__main__":
    main(*sys.argv[1:])
