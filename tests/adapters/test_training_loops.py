"""Run the examples of docs/training-loops.md in the loops of other libraries."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from dropbench import regularize, set_progress, sites, training_loss
from dropbench.harness.errors import InputError
from tests.paths import ROOT

TEXT = (ROOT / "docs/training-loops.md").read_text()
FORWARD, ACCELERATE, TRAINER, TRAINER_CALLBACK, LIGHTNING, LIGHTNING_CALLBACK, TIMM = re.findall(
    r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL
)
PENALTIES: dict[str, dict[str, Any]] = {
    "none": {}, "attention-entropy": {"weight": 1.0}, "weight-orthogonality": {"alpha": 1.0}, "r-drop": {"alpha": 5.0}
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:regularize. .* changes (the loss|over steps)")


class Counting(nn.Module):
    """Counts the training passes of a model. Every second one may scale its scores, for r-drop without dropout."""

    def __init__(self, model: nn.Module, scale: float) -> None:
        super().__init__()
        self.model, self.scale = model, scale
        self.passes = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += self.training
        scores: Tensor = self.model(inputs)
        return scores * (self.scale if self.training and not self.passes % 2 else 1.0)


def vit(name: str, **params: Any) -> Counting:
    torch.manual_seed(0)
    options: dict[str, Any] = {"img_size": 32, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 4}
    scale = 2.0 if "r-drop" in name else 1.0
    model = Counting(timm.create_model("vit_tiny_patch16_224", **options), scale).train()
    return regularize(model, name, quiet=True, **params)


def images(batch: int) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    samples: Any = [(torch.randn(3, 32, 32, generator=generator), index % 4) for index in range(8)]
    return DataLoader(samples, batch)


def seeded_loss(*arguments: Any, **options: Any) -> Tensor:
    """Compute `training_loss` with the same draws each time, such as those of weight-orthogonality."""
    torch.manual_seed(0)
    return training_loss(*arguments, **options)


def run(code: str, **names: Any) -> dict[str, Any]:
    """Run an example of the page with these names, after the function that all examples share."""
    names |= {"torch": torch, "training_loss": seeded_loss, "set_progress": set_progress}
    exec(FORWARD + code, names)  # noqa: S102 - the page's code
    return names


def weights(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_examples_have_at_most_ten_lines() -> None:
    for code in (FORWARD, ACCELERATE, TRAINER, TRAINER_CALLBACK, LIGHTNING, LIGHTNING_CALLBACK, TIMM):
        assert sum(map(bool, code.splitlines())) <= 10


@pytest.mark.parametrize("name", PENALTIES)
def test_accelerate(name: str) -> None:
    results = []
    for steps in (1, 4):
        model = vit(name, **PENALTIES[name])
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        before = weights(model)
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps)
        run(ACCELERATE, model=model, optimizer=optimizer, loader=images(8 // steps), accelerator=accelerator)
        assert model.passes == steps * (2 if name == "r-drop" else 1)
        results.append(weights(model) - before)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


def test_timm() -> None:
    model = vit("dropkey + r-drop", **{"dropkey.over": "late@0.5"})
    imports = """
from timm.data import Mixup
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
"""
    names = run(imports + TIMM, model=model, loader=images(2))
    assert model.passes == 8
    assert all(site.ratio == pytest.approx(0.1) for site in sites(model))
    average = names["average"].module
    assert not average.training
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(average(x), average(x))


def gpt2(name: str, **params: Any) -> tuple[GPT2LMHeadModel, Counting]:
    """Return a small regularized GPT-2, and the module that makes its scores."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
    rates: dict[str, Any] = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.0)
    model = GPT2LMHeadModel(GPT2Config(**sizes, **rates, bos_token_id=0, eos_token_id=0, tie_word_embeddings=False))
    model.lm_head = Counting(model.lm_head, 2.0 if "r-drop" in name else 1.0)
    return regularize(model, name, quiet=True, **params), model.lm_head


def trainer(kind: type[Trainer], model: nn.Module, folder: Path, **options: Any) -> Trainer:
    tokens = torch.randint(0, 50, (8, 8), generator=torch.Generator().manual_seed(0))
    samples: Any = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = TrainingArguments(
        str(folder), optim="sgd", learning_rate=1.0, lr_scheduler_type="constant", max_grad_norm=0.0, report_to="none",
        disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False, save_strategy="no", **options,
    )  # fmt: skip
    return kind(model=model, args=arguments, train_dataset=samples, eval_dataset=samples)


@pytest.mark.parametrize("name", PENALTIES)
def test_trainer_scales_no_term_by_accumulation(name: str, tmp_path: Path) -> None:
    kind = run(TRAINER, Trainer=Trainer)["RegularizedTrainer"]
    results = []
    for steps in (1, 4):
        model, scores = gpt2(name, **PENALTIES[name])
        before = weights(model)
        options = {"per_device_train_batch_size": 8 // steps, "gradient_accumulation_steps": steps, "max_steps": 1}
        trainer(kind, model, tmp_path, **options).train()
        assert scores.passes == steps * (2 if name == "r-drop" else 1)
        results.append(weights(model) - before)
    assert results[0].abs().max() > 0.01
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


def test_without_regularizer_the_loss_is_that_of_trainer(tmp_path: Path) -> None:
    results = []
    for kind in (Trainer, run(TRAINER, Trainer=Trainer)["RegularizedTrainer"]):
        model, _ = gpt2("none")
        options = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, "max_steps": 2}
        trainer(kind, model, tmp_path, **options).train()
        results.append(weights(model))
    assert torch.equal(*results)


def test_evaluation_within_training_changes_nothing(tmp_path: Path) -> None:
    kind = run(TRAINER, Trainer=Trainer)["RegularizedTrainer"]
    results = []
    for strategy in ("no", "steps"):
        model, scores = gpt2("attention-entropy + r-drop")
        loop = trainer(kind, model, tmp_path, max_steps=3, eval_strategy=strategy, eval_steps=1)
        loop.train()
        assert scores.passes == 6
        assert not any(site.penalties for site in sites(model))
        results.append(weights(model))
    assert torch.equal(*results)


def test_the_callback_of_trainer_sets_the_progress(tmp_path: Path) -> None:
    model, _ = gpt2("dropkey", ratio=0.4, over="increasing@1")
    callback = run(TRAINER_CALLBACK, TrainerCallback=TrainerCallback)["Progress"]
    loop = trainer(Trainer, model, tmp_path, max_steps=4, per_device_train_batch_size=2)
    loop.add_callback(callback())
    loop.train()
    assert [site.ratio for site in sites(model)] == [pytest.approx(0.3)] * 2


@pytest.fixture
def lightning() -> Any:
    return pytest.importorskip("lightning", reason="lightning is not installed: pip install lightning")


def fit(
    lightning: Any, model: Counting, folder: Path, *,
    batch: int = 8, example: str = LIGHTNING, callback: Any = None, **options: Any,
) -> None:  # fmt: skip
    """Train with the example of Lightning for one pass over 8 images, and evaluate after each batch."""
    regularized = run(example, model=model, LightningModule=lightning.LightningModule)["Regularized"]

    class Evaluated(regularized):  # type: ignore[misc, valid-type]
        def validation_step(self, batch: Any, index: int) -> None:
            assert not self.model.training
            self.model(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1.0)

    shown = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    silent: dict[str, Any] = dict.fromkeys(shown, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hints, such as to use more workers
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", default_root_dir=folder, val_check_interval=1, callbacks=callback,
            **silent, **options,
        )  # fmt: skip
        trainer.fit(Evaluated(model), images(batch), images(4))


@pytest.mark.parametrize("name", PENALTIES)
def test_lightning(name: str, lightning: Any, tmp_path: Path) -> None:
    results = []
    for steps in (1, 4):
        model = vit(name, **PENALTIES[name])
        before = weights(model)
        fit(lightning, model, tmp_path, batch=8 // steps, accumulate_grad_batches=steps)
        assert model.passes == steps * (2 if name == "r-drop" else 1)
        results.append(weights(model) - before)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


def test_the_callback_of_lightning_sets_the_progress(lightning: Any, tmp_path: Path) -> None:
    model = vit("dropkey", ratio=0.4, over="decreasing@1")
    seen: list[float] = []
    model.register_forward_hook(lambda *_: seen.append(sites(model)[0].ratio) if model.training else None)
    callback = run(LIGHTNING_CALLBACK, Callback=lightning.Callback)["Progress"]
    plain = LIGHTNING.replace(", progress=progress", "")
    assert plain != LIGHTNING
    fit(lightning, model, tmp_path, example=plain, callback=callback(), batch=2)
    assert seen == [pytest.approx(ratio) for ratio in (0.4, 0.3, 0.2, 0.1)]


def test_a_model_that_lightning_leaves_in_evaluation_mode_is_refused(lightning: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"in evaluation mode, in which no regularizer acts: call `model.train\(\)`"):
        fit(lightning, vit("dropkey").eval(), tmp_path)
