"""Test methods of four kinds on 60 families of both zoos: a drop of columns, of heads, a penalty, and two passes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.zoo import timm_models, transformers_models
from tests.zoo.checking import METHODS, check_each

TIMM = (
    "beit_base_patch16_224", "cait_xxs24_224", "caformer_s18", "convit_tiny", "cpubone_nano", "crossvit_tiny_240",
    "davit_tiny", "deit_tiny_patch16_224", "efficientformer_l1", "efficientformerv2_s0", "efficientvit_m0",
    "eva02_tiny_patch14_224", "fastvit_mci0", "gcvit_xxtiny", "haloregnetz_b", "hiera_tiny_224", "hieradet_small",
    "iformer_t",
    "levit_128s", "lowformer_b0", "mobilevit_xxs", "mvitv2_tiny", "nest_tiny_jx", "nextvit_small", "pit_xs_224",
    "pvt_v2_b0", "shvit_s1", "swin_tiny_patch4_window7_224", "swinv2_cr_tiny_224", "test_coatnet",
    "test_vit_relpos", "tiny_vit_5m_224", "tnt_s_legacy_patch16_224", "twins_svt_small", "visformer_tiny",
)  # fmt: skip
TYPES = (
    "albert", "bart", "bert", "big_bird", "blip", "bloom", "clip", "convbert", "deberta", "deberta-v2", "detr",
    "distilbert", "falcon", "gemma2", "gpt2", "gpt_neo", "gpt_oss", "hubert", "llama", "longformer", "longt5",
    "mixtral", "mpnet", "pvt", "qwen2_moe", "roformer", "segformer", "t5", "vit", "wavlm", "whisper", "xlnet",
)  # fmt: skip
HEADLESS = {"efficientvit_m0", "haloregnetz_b", "iformer_t", "shvit_s1"}
"""Models of which drophead is refused: they have a single head, or heads that their attention does not show."""
SLOW = {"detr", "hubert", "longformer", "longt5", "pvt", "wavlm", *TIMM} - {
    "cpubone_nano", "pvt_v2_b0", "test_coatnet", "test_vit_relpos"
}  # fmt: skip


def each_of(names: tuple[str, ...]) -> pytest.MarkDecorator:
    marked = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in names]
    return pytest.mark.parametrize("name", marked)


@each_of(TIMM)
def test_a_model_of_timm(name: str) -> None:
    assert_hold(name, *timm_models.build(name))


@each_of(TYPES)
def test_a_type_of_transformers(name: str) -> None:
    assert_hold(name, *transformers_models.build(name))


def assert_hold(name: str, model: Any, run: Any) -> None:
    for method, verdict in zip(METHODS, check_each(model, run, *METHODS), strict=True):
        is_refused = name in HEADLESS and method.startswith("drophead")
        expected = "refused" if is_refused else "holds"
        assert (method, verdict.outcome, verdict.problems) == (method, expected, [])
