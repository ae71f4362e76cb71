"""Regularizers of attention and of outputs, and their registry; importing this package loads no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.registry import Registry

if TYPE_CHECKING:
    from harness.regularizers.base import Regularizer

REGULARIZERS: Registry[Callable[..., Regularizer]] = Registry("regularizer", "a Regularizer", callable, "regularizers")
"""The fact `parts` of an entry makes it a composition, with that text as on the command line."""

for _name, _help in {
    "none": "nothing is dropped",
    "dropout": "attention weights dropped after the softmax, divided by 1 - ratio (Vaswani et al. 2017)",
    "dropkey": "keys dropped before the softmax, for each query (DropKey, Section 3.2)",
    "dropkey-block": "square windows of keys dropped before the softmax (DropKey, Section 3.2)",
    "dropkey-cross": "rows and columns of keys dropped before the softmax (DropKey, Section 3.2)",
    "dropattention-c": "whole key columns dropped in windows, rows normalized (DropAttention, Section 4)",
    "dropattention-e": "elements dropped in windows, rows normalized (DropAttention, Algorithm 1)",
    "dropattention-detached": "DropAttention without the gradient through the sum of a row (Wang et al. 2024)",
}.items():
    REGULARIZERS.add(_name, f"harness.regularizers.presets:{_name.replace('-', '_')}", help=_help)

REGULARIZERS.add(
    "learned-dropout",
    "harness.regularizers.learned_dropout.regularizer:LearnedDropout",
    help="feed-forward outputs masked as the model learns to, in evaluation too (Yan 2024)",
)

for _name, _target, _help in (
    ("ad-drop", "attribution:ADDrop", "keys dropped that the predictions depend on most (Yang et al. 2022)"),
    ("attendout", "attribution:AttendOut", "keys dropped that a module learns to choose (Wu et al. 2021)"),
    ("attention-entropy", "penalties:AttentionEntropy", "penalty on the entropy of attention (Zhai et al. 2023)"),
    ("attentiondrop-blur", "logits:AttentionDropBlur", "logits blurred by a random Gaussian (Baig et al. 2025)"),
    ("attentiondrop-consistency", "consistency:AttentionDropConsistency",
     "KL divergence of one pass from another added to the loss (Baig et al. 2025)"),
    ("attentiondrop-topk", "logits:AttentionDropTopK", "some of the largest logits set to 0 (Baig et al. 2025)"),
    ("disagreement", "penalties:Disagreement", "penalty on the similarity of heads (Li et al. 2018)"),
    ("diverse-attention", "penalties:DiverseAttention", "penalty on the cosine of heads or tokens (Chen et al. 2022)"),
    ("dropdim", "outputs:DropDim", "whole embedding dimensions dropped, for each sample (Zhang et al. 2022)"),
    ("drophead", "heads:DropHead", "whole heads dropped, for each batch or sample (Zhou et al. 2020)"),
    ("headmask", "heads:HeadMask", "a number of random heads masked (Sun et al. 2022)"),
    (
        "headmask-important",
        "attribution:HeadMaskImportant",
        "the heads masked that the loss depends on most (Sun et al. 2022)",
    ),
    ("hiddencut", "outputs:HiddenCut", "a span of tokens dropped after the feed-forward network (Chen et al. 2021)"),
    ("layerdrop", "layers:LayerDrop", "whole layers skipped, for each batch (Fan et al. 2020)"),
    ("logit-noise", "logits:LogitNoise", "Gaussian noise added to the logits"),
    ("masksub", "consistency:MaskSub", "a second pass with half of the patches, taught by the first (Heo et al. 2025)"),
    ("mixout", "weights:Mixout", "weights of random inputs replaced by their initial values (Lee et al. 2020)"),
    ("patchdropout", "tokens:PatchDropout", "patches of images left out before the first layer (Liu et al. 2022)"),
    (
        "sigma-reparam",
        "weights:SigmaReparam",
        "weights divided by their spectral norm, in evaluation too (Zhai et al. 2023)",
    ),
    ("stochastic-depth", "outputs:StochasticDepth", "residual branches dropped, for each sample (Huang et al. 2016)"),
    ("token-dropout", "outputs:TokenDropout", "embeddings of tokens dropped: UniDrop's data dropout (Wu et al. 2021)"),
    (
        "weight-orthogonality",
        "weights:WeightOrthogonality",
        "a penalty for weights that are not orthonormal (Chen et al. 2022)",
    ),
    ("r-drop", "consistency:RDrop", "KL divergence between two passes added to the loss (Liang et al. 2021)"),
    ("temperature", "logits:Temperature", "logits divided by a temperature above 1"),
    ("value-dropout", "values:ValueDropout", "dropout of the values that attention reads"),
):  # fmt: skip
    REGULARIZERS.add(_name, f"harness.regularizers.methods.{_target}", help=_help)

for _name, _parts, _help in (
    (
        "hiddenkey",
        "dropkey:unit=column,ratio=0.1 + hiddencut:unit=element,ratio=0.1 + r-drop:alpha=1.0",
        "key columns and elements of feed-forward outputs dropped, two passes compared (Wang et al. 2024)",
    ),
    (
        "unidrop",
        "dropout:ratio=0.1 + layerdrop:ratio=0.1 + token-dropout:ratio=0.1,unchanged=0.5",
        "dropout of features, layers and tokens (Wu et al. 2021)",
    ),
):
    REGULARIZERS.add(_name, "harness.regularizers.composition:Composition", help=_help, parts=_parts)
