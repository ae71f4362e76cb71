"""Test transformers' models: sites, configs, refused modules."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor, nn

from dropbench import InputError, Site, regularize
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import ATTENTION_KINDS, sites, watch
from tests.adapters.families import tokens
from tests.adapters.libraries.transformers_families import BART, BERT, FAMILIES, LLAMA, VIT, build_model

FAMILY = {family.name.removeprefix("transformers-"): family for family in FAMILIES}
bert = partial(build_model, tf.BertModel, tf.BertConfig, **BERT)
OWN_NAMES = {"ConvBert": "ConvBertSelfAttention"}
drop = partial(regularize, regularizer="dropkey", ratio=0.5, quiet=True)


def implementations(model: nn.Module) -> set[str]:
    """Return the attention implementations of all configs in a model."""
    return {
        value._attn_implementation
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, tf.PreTrainedConfig)
    }


def test_bert_as_a_decoder_with_cross_attention() -> None:
    model = bert(is_decoder=True, add_cross_attention=True)
    assert [site.kind for site in bind(model, "none").bound] == ["decoder-self", "cross"] * 2


@pytest.mark.parametrize(
    ("name", "grid", "prefix"), [("vit", (4, 4), 1), ("deit", (4, 4), 2), ("swin", (4, 4), 0), ("bert", None, 0)]
)
def test_keys_of_images_form_a_grid_after_prefix_tokens(name: str, grid: tuple[int, int] | None, prefix: int) -> None:
    site = bind(FAMILY[name].model(), "none").bound[0]
    assert (site.grid, site.num_prefix_tokens) == (grid, prefix)


def test_registers_count_as_prefix_and_masked_autoencoders_have_no_grid() -> None:
    registers = build_model(tf.Dinov2WithRegistersModel, tf.Dinov2WithRegistersConfig, **VIT, num_register_tokens=3)
    assert bind(registers, "none").bound[0].num_prefix_tokens == 4
    registers.train()(torch.randn(2, 3, 32, 32))
    drop(registers, regularizer="dropkey-block")
    registers(torch.randn(2, 3, 32, 32))
    masked = build_model(tf.ViTMAEModel, tf.ViTMAEConfig, **VIT)
    assert bind(masked, "none").bound[0].grid is None


@pytest.mark.parametrize("name", ["bert", "bert-eager", "detr-sdpa", "detr-eager"])
def test_configs_are_unchanged(name: str) -> None:
    model = FAMILY[name].model()
    before = implementations(model)
    drop(model)
    assert implementations(model) == before


def test_the_implementation_may_change_after_regularize() -> None:
    model: Any = drop(FAMILY["bert"].model()).train()
    for name in ("eager", "sdpa"):
        model.set_attn_implementation(name)
        assert not torch.equal(FAMILY["bert"].run(model, seed=1), FAMILY["bert"].run(model, seed=2)), name


def test_a_model_that_returns_its_weights_can_be_saved(tmp_path: Path) -> None:
    model: Any = drop(build_model(tf.BertModel, tf.BertConfig, "eager", **BERT, output_attentions=True))
    model.save_pretrained(tmp_path)
    assert tf.BertModel.from_pretrained(tmp_path).config.output_attentions


def test_a_saved_model_has_no_trace_of_the_regularizer(tmp_path: Path) -> None:
    model = drop(build_model(tf.BertForSequenceClassification, tf.BertConfig, **BERT))
    model.save_pretrained(tmp_path)
    assert "dropbench" not in (tmp_path / "config.json").read_text()
    again = tf.BertForSequenceClassification.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(**tokens()).logits, model(**tokens()).logits)


def test_generation_is_unchanged() -> None:
    options = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    for model, config, shape in (
        (tf.LlamaForCausalLM, tf.LlamaConfig, LLAMA),
        (tf.BartForConditionalGeneration, tf.BartConfig, BART),
    ):
        torch.manual_seed(0)
        generator: Any = build_model(model, config, **shape)
        before = generator.generate(**tokens(), **options)
        assert torch.equal(drop(generator).generate(**tokens(), **options), before)


def test_attention_dropout_of_the_model_is_replaced_only_at_bound_sites() -> None:
    model = build_model(tf.BertModel, tf.BertConfig, **{**BERT, "attention_probs_dropout_prob": 0.9})
    with torch.no_grad():
        plain = model(**tokens()).last_hidden_state
        model.train()
        bind(model, "no-attention-dropout")
        torch.testing.assert_close(model(**tokens()).last_hidden_state, plain)
        bind(model, "no-attention-dropout", include=["*.0.*"])
        assert (model(**tokens()).last_hidden_state - plain).abs().max() > 1e-3


def test_output_attentions_are_those_that_attend_in_training_and_plain_in_evaluation() -> None:
    model = build_model(tf.BertModel, tf.BertConfig, "eager", **BERT)
    with torch.no_grad():
        plain = model(**tokens(), output_attentions=True).attentions[0]
        trained = drop(model).train()(**tokens(), output_attentions=True).attentions[0]
        evaluated = model.eval()(**tokens(), output_attentions=True).attentions[0]
    assert ((trained == 0) & (plain > 0)).any()
    torch.testing.assert_close(trained.sum(-1), torch.ones_like(trained.sum(-1)))
    assert torch.equal(evaluated, plain)


def test_a_timm_model_inside_transformers_is_handled_by_the_timm_adapter() -> None:
    arguments = {"img_size": 32, "patch_size": 8, "embed_dim": 8, "depth": 2, "num_heads": 2}
    config = tf.TimmWrapperConfig(architecture="vit_tiny_patch16_224", model_args=arguments)
    report = bind(tf.TimmWrapperModel(config), "dropkey", ratio=0.5)
    assert [(site.name, site.grid) for site in report.bound] == [
        (f"timm_model.blocks.{layer}.attn", (4, 4)) for layer in range(2)
    ]


def test_an_attention_sink_keeps_its_share_of_the_row() -> None:
    shape = {**LLAMA, "num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 4, "attention_dropout": 0.0}
    model: Any = build_model(tf.GptOssModel, tf.GptOssConfig, "eager", **shape)
    with torch.no_grad():
        for layer in model.layers:
            layer.self_attn.sinks.fill_(1.0)
        plain = model(**tokens(), output_attentions=True).attentions[0]
        trained = drop(model).train()(**tokens(), output_attentions=True).attentions[0]
    assert (plain.sum(-1) < 0.9).all()
    assert ((trained == 0) & (plain > 0)).any()
    torch.testing.assert_close(trained.sum(-1), plain.sum(-1))


@pytest.mark.parametrize("kind", ["DebertaV2", "DeepseekV32", "Mixtral", "Qwen2Moe", "ConvBert", "GptOss"])
def test_the_sites_of_models_with_other_softmaxes_are_their_attention(kind: str) -> None:
    shape = {**LLAMA, "num_key_value_heads": 4, "n_routed_experts": 2, "num_experts_per_tok": 1, "n_group": 1}
    shape |= {"topk_group": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4}
    shape |= {"v_head_dim": 8, "index_n_heads": 2, "index_head_dim": 8, "moe_intermediate_size": 8, "num_experts": 2}
    options = BERT if kind in ("DebertaV2", "ConvBert") else shape
    model = build_model(getattr(tf, f"{kind}Model"), getattr(tf, f"{kind}Config"), "eager", **options)
    drop(model).train()
    kinds = {type(model.get_submodule(site.name)).__name__ for site in sites(model) if site.kind in ATTENTION_KINDS}
    assert kinds == {"DisentangledSelfAttention" if kind == "DebertaV2" else OWN_NAMES.get(kind, f"{kind}Attention")}
    with torch.no_grad():
        first, second = (model(**tokens()).last_hidden_state for _ in range(2))
    assert not torch.equal(first, second)


def test_other_implementations_are_refused_with_a_remedy() -> None:
    model: Any = bert()
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(InputError, match=r"'flex_attention': expected sdpa or eager \(`model.set_attn_implementation`"):
        drop(model)


def test_probes_receive_masked_weights() -> None:
    model = drop(FAMILY["gpt2"].model())
    recorded: list[Tensor] = []

    def record(site: Site, weights: Tensor) -> None:
        recorded.append(weights)

    with watch(model, record), torch.no_grad():
        model(**tokens())
    assert len(recorded) == 2
    assert all(torch.all(weights.triu(1) == 0) for weights in recorded)
    assert all(torch.all(weights[0, :, :, 4:][..., :4, :] == 0) for weights in recorded)
    assert all(torch.allclose(weights[1].sum(-1), torch.ones(())) for weights in recorded)


@pytest.mark.parametrize("name", ["gpt2", "gpt2-eager", "llama", "t5"])
def test_queries_without_keys_have_finite_gradients(name: str) -> None:
    family = FAMILY[name]
    model = drop(family.model()).train()
    inputs = family.inputs()
    inputs["attention_mask"] = inputs["attention_mask"].flip(-1)  # padded on the left: causal rows are empty there
    out = family.run(model, inputs)
    out[:, 2:].square().mean().backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_heads_of_longformer_are_dropped_whole() -> None:
    shape = {**BERT, "hidden_dropout_prob": 0.0, "attention_window": 4, "max_position_embeddings": 64}
    model = drop(build_model(tf.LongformerModel, tf.LongformerConfig, "eager", **shape), regularizer="drophead").train()
    outputs: list[Tensor] = []
    attention = model.encoder.layer[0].attention.self
    attention.register_forward_hook(lambda module, inputs, output: outputs.append(output[0]))
    for seed in range(4):
        torch.manual_seed(seed)
        model(torch.arange(1, 17)[None] % 10)
    zero = torch.stack(outputs).unflatten(-1, (attention.num_heads, -1)).abs().amax(-1) == 0  # (draws, B, T, H)
    assert zero.any()
    assert (zero == zero[:, :, :1]).all()
