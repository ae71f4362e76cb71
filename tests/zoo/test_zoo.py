"""`regularize` reaches the attention of both zoos, as an independent count finds it; `make zoo` walks all of them."""

from __future__ import annotations

import pytest

from dropbench.adapters import compat

compat.install()

from tests.zoo import timm_models, transformers_models  # noqa: E402
from tests.zoo.checking import check  # noqa: E402

TIMM = {
    "beit": "beit_base_patch16_224", "cait": "cait_xxs24_224", "coatnet": "test_coatnet", "davit": "davit_tiny",
    "efficientformer": "efficientformer_l1", "hiera": "hiera_tiny_224", "mvit": "mvitv2_tiny", "nest": "nest_tiny",
    "pvt": "pvt_v2_b0", "swin-v2": "swinv2_cr_tiny_224", "twins": "twins_pcpvt_small",
    "visformer": "visformer_tiny",
}  # fmt: skip
TYPES = (
    "albert", "bert", "bloom", "convbert", "deberta", "deberta-v2", "falcon", "gpt_neo", "gpt_oss", "llama", "longt5",
    "mixtral", "mpnet", "qwen2_moe", "roformer", "t5", "wavlm", "xlnet",
)  # fmt: skip


@pytest.mark.parametrize("name", TIMM.values(), ids=TIMM)
def test_a_family_of_timm(name: str) -> None:
    verdict = check(*timm_models.build(name), ratio=0.5)
    assert (verdict.outcome, verdict.problems) == ("holds", [])


@pytest.mark.parametrize("name", TYPES)
def test_a_type_of_transformers(name: str) -> None:
    verdict = check(*transformers_models.build(name), ratio=0.5)
    assert (verdict.outcome, verdict.problems) == ("holds", [])


@pytest.mark.slow
def test_a_tenth_of_transformers() -> None:
    outcomes = {}
    for name in transformers_models.types()[::10]:
        try:
            model, run = transformers_models.build(name)
        except Exception:  # the rule does not fit: the page of `make zoo` has the reason
            continue
        outcomes[name] = check(model, run, ratio=0.5).outcome
    assert len(outcomes) >= 25
    assert {name for name, outcome in outcomes.items() if outcome in ("fails", "refused")} == set()
