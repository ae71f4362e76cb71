"""Test models of several towers that the zoo's rule does not build, and what else was once reached in part."""

from __future__ import annotations

import copy

import pytest
import torch
from timm.models.crossvit import MultiScaleBlock
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from transformers import ClapConfig, ClapModel, GraniteSpeechConfig, GraniteSpeechForConditionalGeneration

from dropbench.harness.models.regularize import bind
from tests.zoo import transformers_models
from tests.zoo.checking import check
from tests.zoo.counting import tensors

TEXT = {
    "vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize("fusion", [False, True])
def test_the_audio_tower_of_clap(fusion: bool) -> None:
    audio = {
        "window_size": 4, "num_mel_bins": 16, "spec_size": 64, "hidden_size": 32, "depths": (2, 2),
        "num_attention_heads": (2, 4), "patch_embeds_hidden_size": 16, "num_hidden_layers": 2,
        "enable_fusion": fusion, "fusion_type": "aff_2d" if fusion else None,
    }  # fmt: skip
    torch.manual_seed(0)
    model = ClapModel(ClapConfig(text_config=TEXT, audio_config=audio, projection_dim=16))
    inputs = {
        "input_ids": torch.randint(3, 100, (2, 10)),
        "input_features": torch.randn(2, 4 if fusion else 1, 250, 16),
        "is_longer": torch.tensor([[True], [False]]),
    }
    verdict = check(model, lambda model: model(**inputs))
    assert (verdict.outcome, verdict.problems, verdict.bound) == ("holds", [], 4 + 2)


def test_all_three_parts_of_granite_speech() -> None:
    config = GraniteSpeechConfig(
        text_config={"model_type": "granite", **TEXT, "num_key_value_heads": 2},
        encoder_config={
            "input_dim": 16, "num_layers": 2, "hidden_dim": 32, "num_heads": 4, "output_dim": 8, "context_size": 8,
            "max_pos_emb": 16, "conv_kernel_size": 3,
        },
        projector_config={"model_type": "blip_2_qformer", **TEXT, "encoder_hidden_size": 32},
        audio_token_index=127, has_lora_adapter=False,
    )  # fmt: skip
    torch.manual_seed(0)
    tokens = torch.randint(3, 100, (2, 12))
    tokens[:, :6] = 127  # 3 for each window of 15 frames
    inputs = {"input_ids": tokens, "input_features": torch.randn(2, 20, 16)}
    verdict = check(GraniteSpeechForConditionalGeneration(config), lambda model: model(**inputs, use_cache=False))
    assert (verdict.outcome, verdict.problems, verdict.bound) == ("holds", [], 2 + 3 + 2)


def test_the_fusion_of_crossvit() -> None:
    torch.manual_seed(0)
    model = MultiScaleBlock((16, 32), (16, 4), (1, 1, 1), (2, 4), (2.0, 2.0, 2.0), drop_path=[0.0, 0.0])
    inputs = [torch.randn(2, 17, 16), torch.randn(2, 5, 32)]
    verdict = check(model, lambda model: model(inputs))
    assert (verdict.outcome, verdict.problems, verdict.bound) == ("holds", [], 4)
    fusion = bind(model, "dropkey", include="fusion*").bound
    assert [(site.name, site.kind) for site in fusion] == [("fusion.0.0.attn", "cross"), ("fusion.1.0.attn", "cross")]


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel lengths")  # of lasr
@pytest.mark.parametrize("name", ["wav2vec2-conformer", "parakeet_encoder", "lasr_encoder"])
def test_evaluation_of_a_conformer_changes_by_its_batch_normalization_alone(name: str) -> None:
    model, run = transformers_models.build(name)
    normalizations = [module for module in model.modules() if isinstance(module, _BatchNorm)]

    def evaluate() -> list[Tensor]:
        with torch.no_grad():
            return tensors(dict(run(model.eval())))

    def train(*frozen: nn.Module) -> None:
        model.train()
        for module in frozen:
            module.eval()
        run(model)

    before, statistics = evaluate(), copy.deepcopy(model.state_dict())
    train()
    assert not same(evaluate(), before)  # without a regularizer
    model.load_state_dict(statistics)
    bind(model, "dropkey", ratio=0.5)
    assert same(evaluate(), before)
    train(*normalizations)
    assert same(evaluate(), before)
    train()
    assert not same(evaluate(), before)
    model.load_state_dict(statistics)
    assert same(evaluate(), before)


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(first, second, strict=True))
