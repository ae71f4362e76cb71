"""A decoder-only language model with a mixture of experts in every block: transformers' Mixtral.

Learned Dropout proposes the comparison with such a model ("Next steps"). The shape is chosen so that the number of
active parameters per token equals that of the source's model: 15,335,424 of 30,105,504.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn
from transformers import MixtralConfig, MixtralForCausalLM
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from dropbench.adapters.text.decoder import check_length
from dropbench.adapters.text.options import ExpertsOptions
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.auxiliary_loss import AuxLoss
from dropbench.harness.validation import model_options


class MixtureOfExperts(AuxLoss):
    """A decoder-only language model with experts, and a load-balancing loss in training.

    Attributes:
        inactive_parameters: number of parameters of the inactive experts of a token.
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
        # Other implementations need widths that are multiples of 16 bytes.
        self.decoder.set_experts_implementation("eager")
        inactive_experts = options.layers * (options.experts - options.active)
        self.inactive_parameters = inactive_experts * 3 * options.dim * options.feedforward
        self.balance_loss: Tensor | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        """Predict the next tokens: token ids (B, T) → logits (B, T, vocabulary); raises as `check_length`."""
        check_length(tokens.shape[1], self.context)
        out = self.decoder.model(input_ids=tokens, output_router_logits=self.training)
        if self.training:
            config = self.decoder.config
            # Empty if a regularizer skipped every layer.
            routed = (out.router_logits, config.num_local_experts, config.num_experts_per_tok)
            self.balance_loss = cast(Tensor, load_balancing_loss_func(*routed)) if out.router_logits else None
        return cast(Tensor, self.decoder.lm_head(out.last_hidden_state))

    def aux_loss(self) -> Tensor | None:
        """Return the weighted load-balancing loss of the last training forward (Fedus et al. 2022, Eqs. 4 to 6)."""
        balance_loss, self.balance_loss = self.balance_loss, None
        return None if balance_loss is None else self.balance * balance_loss

    def __getstate__(self) -> dict[str, Any]:
        # The loss of a forward pass is not copied: torch refuses to copy tensors with a graph.
        return {**self.__dict__, "balance_loss": None}


def build_mixture(name: str, options: Mapping[str, Any], *, vocabulary: int, context: int) -> nn.Module:
    """Build a model from fields of `ExpertsOptions`, with random weights; the rest is as in `build_decoder`."""
    checked = model_options(ExpertsOptions, name, options)
    if checked.dim % (2 * checked.heads):
        raise InputError(f"model {name}: dim={checked.dim} is no even multiple of heads={checked.heads}")
    if checked.active > checked.experts:
        raise InputError(f"model {name}: active={checked.active} of experts={checked.experts}")
    return MixtureOfExperts(checked, vocabulary, context)
