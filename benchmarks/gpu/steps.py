"""Measure whole training steps on a GPU, and an epoch of images from files against timm's loop."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import timm
import torch
from timm.data.loader import create_loader
from timm.data.mixup import Mixup
from timm.loss.cross_entropy import SoftTargetCrossEntropy
from timm.optim._optim_factory import create_optimizer_v2
from torch import Tensor, nn
from torchvision.datasets import ImageFolder

from benchmarks.attention import RATIO
from benchmarks.gpu.attention import waiting
from benchmarks.measure import Measurement, compare, interleave, measurement
from benchmarks.training.engine import Ours, task_of, temporary_settings
from benchmarks.training.images import CLASSES, STRONG, cropped, photos
from dropbench.harness.models.attention import attend
from dropbench.harness.models.regularize import regularize
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.spec import build_regularizer
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import MicroBatch, to_device
from dropbench.harness.training.trainer import Trainer

DEVICE = "cuda"
LIMIT, ROUNDS = 1.10, 10
REGULARIZERS = "dropkey", "dropout"
PLAIN = "the same with nothing dropped, SDPA by the kernel that torch chooses"
VIT: dict[str, Any] = {
    "task": "image-classification", "data": "imagenet-synthetic", "model": "vit-small",
    "overrides": {"image_size": 224, "amp": "bf16"},
}  # fmt: skip
BERT: dict[str, Any] = {
    "task": "text-classification", "data": "trec-synthetic", "model": "bert-base",
    "overrides": {"max_length": 512, "amp": "bf16"},
}  # fmt: skip
TOKENS, VOCABULARY = 512, 50
VIT_BATCH = 512
BATCH, EPOCH = 128, 6_400
"""Images of a batch, and of an epoch of T2T-ViT-14."""
CALLS = 200
"""Calls of attention per round, to measure what a call costs on the CPU."""


def gpu_steps() -> list[Measurement]:
    """Measure steps with a regularizer against the same without, with batches on the GPU; none without a GPU."""
    if not torch.cuda.is_available():
        print("gpu-steps: skipped: torch finds no GPU", file=sys.stderr)
        return []
    return [row for case in STEPS for row in of_model(*case)] + [*untouched_vit(), *overhead()]


def of_model(title: str, trial: dict[str, Any], size: int, make_batch: Callable[[Any], Any]) -> Iterator[Measurement]:
    """Measure the engine's steps of a model with each regularizer, and without, alternately."""
    fields, title = {**trial, "overrides": {**trial["overrides"], "batch_size": size}}, f"{title.format(size)}, bf16"
    with temporary_settings(device=DEVICE) as settings:
        steps = [engine_step(fields, name, make_batch, settings) for name in ("none", *REGULARIZERS)]
        plain, *regularized = interleave(steps, ROUNDS)
        for name, seconds in zip(REGULARIZERS, regularized, strict=True):
            yield measurement(f"a step of {title}, {name}", seconds, PLAIN, plain, limit=LIMIT)


def engine_step(
    fields: dict[str, Any], name: str, make_batch: Callable[[Any], Any], settings: Settings
) -> Callable[[], None]:
    """Return a function that does the engine's step of a trial, on one batch, and waits for the GPU."""
    params = {} if name == "none" else {"ratio": RATIO}
    task = task_of(settings, **fields, regularizer=name, params=params)
    trainer = Trainer(task, RunDirectory.create(settings.runs, task.trial), settings, lambda: False)
    trainer.model.train()
    batch = to_device([MicroBatch(make_batch(task), 1.0)], torch.device(DEVICE))
    return waiting(lambda: trainer.step(batch))


def images(task: Any) -> Any:
    """Return random images (B, 3, 224, 224), and labels."""
    return torch.randn(task.recipe.batch_size, 3, 224, 224), torch.randint(2, (task.recipe.batch_size,))


def texts(task: Any) -> Any:
    """Return random words (B, 512), and labels: all texts have the maximum length."""
    batch = task.recipe.batch_size
    return torch.randint(1, VOCABULARY, (batch, TOKENS)), torch.randint(2, (batch,))


def padded_texts(task: Any) -> Any:
    """Return texts of 256 to 512 words."""
    tokens, labels = texts(task)
    lengths = torch.linspace(TOKENS // 2, TOKENS, len(tokens)).long()
    return tokens.masked_fill(torch.arange(TOKENS) >= lengths[:, None], 0), labels


STEPS: list[tuple[str, dict[str, Any], int, Callable[[Any], Any]]] = [
    ("ViT-S, {} images of 224 px", VIT, VIT_BATCH, images),
    ("BERT-base, {} texts of 512 tokens", BERT, 64, texts),
    ("ViT-S, {} images of 224 px", VIT, 128, images),
    ("BERT-base, {} texts of 256 to 512 tokens", BERT, 64, padded_texts),
]
"""Title, fields of the trial, size of the batch, and what makes it. Steps of few images wait for the CPU."""


def untouched_vit() -> Iterator[Measurement]:
    """Measure a step of timm's ViT-S that `regularize` changed, against the model as timm builds it."""
    inputs = torch.randn(VIT_BATCH, 3, 224, 224, device=DEVICE)
    labels = torch.randint(1000, (VIT_BATCH,), device=DEVICE)

    def stepper(name: str | None) -> Callable[[], None]:
        model: nn.Module = timm.create_model("vit_small_patch16_224").to(DEVICE).train()
        if name is not None:
            with contextlib.redirect_stdout(io.StringIO()):  # the list of sites
                regularize(model, name, ratio=RATIO)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)

        def step() -> None:
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return waiting(step)

    plain, *regularized = interleave([stepper(name) for name in (None, *REGULARIZERS)], ROUNDS)
    for name, seconds in zip(REGULARIZERS, regularized, strict=True):
        title = f"a step of timm's ViT-S after `regularize`, {VIT_BATCH} images of 224 px, bf16, {name}"
        yield measurement(title, seconds, "timm's model, untouched", plain, limit=LIMIT)


def overhead() -> Iterator[Measurement]:
    """Measure what a call of attention costs on the CPU: small inputs, whose kernels end before the next launch."""
    q, k, v = (torch.randn(2, 6, 64, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))

    def caller(call: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[], None]:
        def calls() -> None:
            for _ in range(CALLS):
                torch.autograd.grad(call(q, k, v).sum(), (q, k, v))

        return waiting(calls)

    def through(site: Site) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return lambda q, k, v: attend(q, k, v, site, training=True)

    sites = {name: Site("benchmark", "encoder-self", 0, 1, 1) for name in ("none", *REGULARIZERS)}
    for name in REGULARIZERS:
        sites[name].regularizer, sites[name].ratio = build_regularizer(name, ratio=RATIO), RATIO
    sdpa, *others = interleave(
        [caller(nn.functional.scaled_dot_product_attention), *(caller(through(site)) for site in sites.values())],
        ROUNDS,
    )
    for name, seconds in zip(sites, others, strict=True):
        title = f"{CALLS} calls of attention, forward and backward, 2×6×64×64, through a site, {name}"
        yield measurement(title, seconds, "SDPA", sdpa, limit=None)


def gpu_epoch() -> list[Measurement]:
    """Measure an epoch of T2T-ViT-14 from files of ImageNet's size, against timm's loop; none without a GPU."""
    if not torch.cuda.is_available():
        print("gpu-epoch: skipped: torch finds no GPU", file=sys.stderr)
        return []
    with TemporaryDirectory() as files:
        imagenet_of(Path(files), EPOCH)
        fields = {
            "task": "image-classification", "data": "imagenet", "model": "t2t-vit-14", "regularizer": "dropkey",
            "params": {"ratio": RATIO},
            "overrides": {**cropped(**STRONG), "batch_size": BATCH, "amp": "fp16", "steps": 10_000,
                          "evaluate_every": 10_000, "model.drop_path_rate": 0.1},
        }  # fmt: skip
        options: dict[str, Any] = {"device": DEVICE, "num_workers": None, "folders": {"imagenet": Path(files)}}
        with temporary_settings(**options) as settings:
            steps = EPOCH // BATCH
            engine = Ours(task_of(settings, **fields), settings, steps)
            plain = task_of(settings, **{**fields, "regularizer": "none", "params": {}})
            with contextlib.closing(timm_steps(plain.build_model().to(DEVICE), Path(files))) as peer:
                row = compare(
                    f"{steps} steps of T2T-ViT-14, {BATCH} files, fp16, dropkey", waiting(engine.run),
                    "timm's loop and loader, nothing dropped", waiting(lambda: [*islice(peer, steps)].clear()),
                    limit=None, rounds=1,
                )  # fmt: skip
    return [row]


def imagenet_of(folder: Path, number: int) -> None:
    """Write train/ and val/ with many files, each the copy of one of a few photos."""
    photos(folder)
    few = sorted((folder / "train").glob("*/*"))
    for count in range(len(few), number):
        path = few[count % len(few)]
        os.link(path, path.with_name(f"copy_{count}.JPEG"))


def timm_steps(model: nn.Module, folder: Path) -> Generator[None]:
    """Train as timm's ``train.py`` does, with its loader, mixup, optimizer and scaler; yield after each step."""
    cores = len(os.sched_getaffinity(0))
    loader: Any = create_loader(
        ImageFolder(str(folder / "train")), (3, 224, 224), BATCH, is_training=True, re_prob=STRONG["erase"],
        re_mode="pixel", auto_augment=STRONG["randaugment"], interpolation="random", num_workers=min(16, cores - 1),
        persistent_workers=True, device=torch.device(DEVICE),
    )  # fmt: skip
    mix: Any = Mixup(STRONG["mixup"], STRONG["cutmix"], label_smoothing=0.1, num_classes=CLASSES)  # type: ignore[no-untyped-call]
    optimizer = create_optimizer_v2(model, opt="adamw", lr=5e-4, weight_decay=0.05)
    loss: Any = SoftTargetCrossEntropy()  # type: ignore[no-untyped-call]
    scaler = torch.amp.GradScaler(DEVICE)
    model.train()
    while True:
        for batch, targets in loader:
            inputs, soft = mix(batch, targets)
            with torch.autocast(DEVICE, torch.float16):
                value = loss(model(inputs), soft)
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            yield
