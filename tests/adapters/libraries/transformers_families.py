"""Small models of transformers with random weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers as tf
from torch import Tensor, nn

from dropbench.adapters.text.mixture_of_experts import build_mixture
from tests.adapters.families import (
    SAMPLES,
    TOKENS,
    VOCABULARY,
    Family,
    Inputs,
    Leak,
    changed,
    future,
    padding,
    source_padding,
    tokens,
    vectors,
)

BERT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "pad_token_id": 0,
}
BART: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 8,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 16,
    "dropout": 0.0,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
}
LLAMA: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
}
VIT: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def build_model(model: Any, config: Any, implementation: str = "sdpa", **options: Any) -> Any:
    """Return a model from a config that it does not share."""
    own_config = config(**options)
    own_config._attn_implementation = {"": implementation}
    return model(own_config).eval()


def hidden(out: Any) -> Tensor:
    return torch.as_tensor(out.last_hidden_state)


def seq2seq_inputs() -> Inputs:
    return {**tokens(), "decoder_input_ids": tokens(seed=9)["input_ids"]}


class Detr(nn.Module):
    """A DETR with changeable features, because changed pixels of padding would affect features of real pixels."""

    def __init__(self, implementation: str) -> None:
        super().__init__()
        small: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "layer_type": "basic"}
        backbone = tf.ResNetConfig(**small, out_features=["stage2"])
        self.detr = build_model(
            tf.DetrModel,
            tf.DetrConfig,
            implementation,
            use_timm_backbone=False,
            use_pretrained_backbone=False,
            backbone=None,
            backbone_config=backbone,
            d_model=8,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            num_queries=4,
            dropout=0.0,
        )

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor, features: Tensor) -> Any:
        hook = self.detr.input_projection.register_forward_hook(lambda _module, _inputs, out: out + features)
        try:
            return self.detr(pixel_values=pixel_values, pixel_mask=pixel_mask)
        finally:
            hook.remove()


def detr_inputs() -> Inputs:
    mask = torch.ones(SAMPLES, 32, 32, dtype=torch.long)
    mask[0, :, 16:] = 0
    return {"pixel_values": vectors(SAMPLES, 3, 32, 32), "pixel_mask": mask, "features": torch.zeros(SAMPLES, 8, 4, 4)}


def encoders() -> list[Family]:
    models: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("bert", tf.BertModel, tf.BertConfig, BERT),
        ("roberta", tf.RobertaModel, tf.RobertaConfig, BERT),
        ("electra", tf.ElectraModel, tf.ElectraConfig, {**BERT, "embedding_size": 8}),
        (
            "distilbert",
            tf.DistilBertModel,
            tf.DistilBertConfig,
            {"vocab_size": VOCABULARY, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 16, "dropout": 0.0}
            | {"attention_dropout": 0.0, "max_position_embeddings": 16},
        ),
    ]
    albert = {**BERT, "embedding_size": 8, "classifier_dropout_prob": 0.0}
    leaks = (padding("input_ids"),)
    return [
        *(
            Family(
                f"transformers-{name}",
                partial(build_model, model, config, **options),
                tokens,
                {"encoder-self": 2},
                hidden,
                leaks,
            )
            for name, model, config, options in models
        ),
        Family(
            "transformers-albert",
            partial(build_model, tf.AlbertModel, tf.AlbertConfig, **albert),
            tokens,
            {"encoder-self": 1},
            hidden,
            leaks,
            calls=2,
        ),
        Family(
            "transformers-bert-eager",
            partial(build_model, tf.BertModel, tf.BertConfig, "eager", **BERT),
            tokens,
            {"encoder-self": 2},
            hidden,
            leaks,
        ),
    ]


def decoders() -> list[Family]:
    gpt2: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16}
    gpt2 |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 1}
    gemma = {**LLAMA, "head_dim": 4, "attn_logit_softcapping": 2.0, "sliding_window": 4, "query_pre_attn_scalar": 4}
    leaks = (padding("input_ids"), future("input_ids"))
    choices: list[tuple[str, Any, Any, str, dict[str, Any]]] = [
        ("gpt2", tf.GPT2Model, tf.GPT2Config, "sdpa", gpt2),
        ("gpt2-eager", tf.GPT2Model, tf.GPT2Config, "eager", gpt2),
        ("llama", tf.LlamaModel, tf.LlamaConfig, "sdpa", LLAMA),
        ("llama-eager", tf.LlamaModel, tf.LlamaConfig, "eager", LLAMA),
        ("gemma2", tf.Gemma2Model, tf.Gemma2Config, "eager", gemma),
    ]
    experts = {"layers": 2, "dim": 12, "heads": 3, "experts": 4, "feedforward": 10}
    mixture = Family(
        "mixture-of-experts",
        partial(build_mixture, "learned-dropout-lm-moe", experts, vocabulary=VOCABULARY, context=TOKENS),
        partial(tokens, "tokens", None),
        {"decoder-self": 2},
        leaks=(future("tokens"),),
    )
    return [mixture] + [
        Family(
            f"transformers-{name}",
            partial(build_model, model, config, implementation, **options),
            tokens,
            {"decoder-self": 2},
            hidden,
            leaks,
        )
        for name, model, config, implementation, options in choices
    ]


def seq2seq() -> list[Family]:
    t5: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "d_model": 8,
        "d_kv": 4,
        "d_ff": 16,
        "num_layers": 2,
        "num_decoder_layers": 3,
    }
    t5 |= {"num_heads": 2, "dropout_rate": 0.0, "pad_token_id": 0, "decoder_start_token_id": 0}
    leaks = (source_padding("input_ids"), future("decoder_input_ids"))
    kinds = {"encoder-self": 2, "decoder-self": 3, "cross": 3}
    choices: list[tuple[str, Any, Any, str, dict[str, Any]]] = [
        ("bart", tf.BartModel, tf.BartConfig, "sdpa", BART),
        ("marian", tf.MarianModel, tf.MarianConfig, "sdpa", BART),
        ("t5", tf.T5Model, tf.T5Config, "sdpa", t5),
        ("t5-eager", tf.T5Model, tf.T5Config, "eager", t5),
    ]
    return [
        Family(
            f"transformers-{name}",
            partial(build_model, model, config, implementation, **options),
            seq2seq_inputs,
            kinds,
            hidden,
            leaks,
        )
        for name, model, config, implementation, options in choices
    ]


def images() -> list[Family]:
    pixels: Callable[[], Inputs] = lambda: {"pixel_values": vectors(SAMPLES, 3, 32, 32)}  # noqa: E731
    swin: dict[str, Any] = {
        "image_size": 32,
        "patch_size": 4,
        "embed_dim": 8,
        "depths": [2, 2],
        "num_heads": [2, 2],
        "window_size": 4,
    }
    right = (slice(None), slice(None), slice(2, None))
    outside = Leak(
        "padding",
        changed((0, *right), "features"),
        lambda out: out[0],
        changed((1, *right), "features"),
        lambda out: out[1],
    )
    return [
        Family(
            "transformers-vit",
            partial(build_model, tf.ViTModel, tf.ViTConfig, **VIT),
            pixels,
            {"encoder-self": 2},
            hidden,
            grid=True,
        ),
        Family(
            "transformers-deit",
            partial(build_model, tf.DeiTModel, tf.DeiTConfig, **VIT),
            pixels,
            {"encoder-self": 2},
            hidden,
            grid=True,
        ),
        Family(
            "transformers-swin",
            partial(build_model, tf.SwinModel, tf.SwinConfig, **swin, drop_path_rate=0.0),
            pixels,
            {"encoder-self": 4},
            hidden,
            grid=True,
        ),
        *(
            Family(
                f"transformers-detr-{implementation}",
                partial(Detr, implementation),
                detr_inputs,
                {"encoder-self": 2, "decoder-self": 2, "cross": 2},
                hidden,
                (outside,),
            )
            for implementation in ("sdpa", "eager")
        ),
    ]


FAMILIES = [*encoders(), *decoders(), *seq2seq(), *images()]
