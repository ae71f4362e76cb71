"""A decoder-only language model with a mixture of experts in every block: transformers' Mixtral.

Learned Dropout's author wished to see it beside his model ("Next steps"). The shape is chosen so that exactly as many
parameters take part in a token as his model has: 15,335,424, of 30,105,504.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from transformers import MixtralConfig, MixtralForCausalLM

from harness.errors import InputError
from harness.penalty import OwnLoss
from harness.validation import model_options


class ExpertsOptions(BaseModel):
    """Shape of the model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: int = Field(default=26, ge=1)
    dim: int = Field(default=144, ge=1)
    heads: int = Field(default=9, ge=1)
    experts: int = Field(default=7, ge=2)
    active: int = Field(default=2, ge=1, description="experts that a token goes through")
    feedforward: int = Field(default=263, ge=1, description="width of an expert, which has three matrices (SwiGLU)")
    balance: float = Field(default=0.01, ge=0, description="weight of the load-balancing loss")


class MixtureOfExperts(OwnLoss):
    """Token ids to the logits of the token after each; in training the load of the experts is to be balanced.

    Attributes:
        inactive_parameters: those of the experts that a token does not go through.
    """

    def __init__(self, options: ExpertsOptions, vocabulary: int, context: int) -> None:
        super().__init__()
        self.context, self.balance = context, options.balance
        config = MixtralConfig(
            vocab_size=vocabulary,
            hidden_size=options.dim,
            intermediate_size=options.feedforward,
            num_hidden_layers=options.layers,
            num_attention_heads=options.heads,
            num_key_value_heads=options.heads,
            num_local_experts=options.experts,
            num_experts_per_tok=options.active,
            max_position_embeddings=context,
            tie_word_embeddings=True,
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
        )
        self.decoder = MixtralForCausalLM(config)
        self.decoder.set_experts_implementation("eager")  # the others want widths that are multiples of 16 bytes
        expert = 3 * options.dim * options.feedforward
        self.inactive_parameters = options.layers * (options.experts - options.active) * expert
        self.unbalanced: Tensor | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) token ids → logits (B, T, vocabulary).

        Raises:
            InputError: more tokens than the context has.
        """
        if tokens.shape[1] > self.context:
            raise InputError(
                f"a text of {tokens.shape[1]} tokens: expected at most {self.context}, the model's context"
            )
        out = self.decoder(input_ids=tokens, output_router_logits=self.training)
        if self.training:
            self.unbalanced = out.aux_loss
        logits: Tensor = out.logits
        return logits

    def own_loss(self) -> Tensor | None:
        """The load-balancing loss of the last forward pass in training (Fedus et al. 2022, Eqs. 4 to 6), weighted."""
        unbalanced, self.unbalanced = self.unbalanced, None
        return None if unbalanced is None else self.balance * unbalanced

    def __getstate__(self) -> dict[str, Any]:
        # What belongs to a forward pass is not copied: torch refuses to copy tensors that have a graph.
        return {**self.__dict__, "unbalanced": None}


def build_mixture(name: str, options: Mapping[str, Any], *, vocabulary: int, context: int) -> nn.Module:
    """The language model with random weights.

    Args:
        name: as registered in MODELS.
        options: fields of `ExpertsOptions` that differ from their defaults.
        vocabulary: number of token ids.
        context: longest input, in tokens.

    Returns:
        (B, T) token ids → logits (B, T, vocabulary).

    Raises:
        InputError: an unknown or impossible option.
    """
    checked = model_options(ExpertsOptions, name, options)
    if checked.dim % (2 * checked.heads):
        raise InputError(f"model {name}: dim={checked.dim} is no even multiple of heads={checked.heads}")
    if checked.active > checked.experts:
        raise InputError(f"model {name}: active={checked.active} of experts={checked.experts}")
    return MixtureOfExperts(checked, vocabulary, context)
