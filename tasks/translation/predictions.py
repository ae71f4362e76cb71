"""Predictions of translation: the losses of each pair, and the translations of the test sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.predictions.schema import Kind, Ratio, Row
from dropbench.tasks.translation.bleu import Scorer

if TYPE_CHECKING:
    from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
    from torch import Tensor

LOSSES: dict[str, Kind] = {"loss": "number", "nll": "number", "tokens": "count"}
RATIOS = {
    "loss": Ratio(sum="loss", over=("tokens",)),
    "perplexity": Ratio(sum="nll", over=("tokens",), exponential=True),
}


def record_losses(
    recorder: Recorder, criterion: LabelSmoothedCrossEntropyCriterion, logits: Tensor, batch: Mapping[str, Any]
) -> None:
    """Record the sums over the target tokens of each pair, with and without label smoothing.

    Args:
        recorder: takes the predictions.
        criterion: the criterion of the metrics, whose sums over the whole batch these sums add up to.
        logits: (B, T, vocabulary).
        batch: a batch of fairseq.
    """
    target = batch["target"]
    words = target != criterion.padding_idx
    log_probs = logits.float().log_softmax(dim=-1)
    nll = -log_probs.gather(2, target[..., None]).squeeze(2).double()
    # fairseq's label smoothing: ε / (V − 1) for each other token of the vocabulary.
    share = criterion.eps / (logits.shape[2] - 1)
    smoothed = (1.0 - criterion.eps - share) * nll - share * log_probs.sum(dim=2).double()
    columns = [batch["id"], *((values * words).sum(dim=1) for values in (smoothed, nll)), words.sum(dim=1)]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    recorder.define(LOSSES, RATIOS)
    recorder.add(dict(zip(("index", *LOSSES), row, strict=True)) for row in rows)


def record_translations(
    recorder: Recorder, translations: Mapping[int, str], references: Sequence[str], scorer: Scorer
) -> None:
    """Add the translation and the reference of each test sentence to its losses.

    Sentences that are too long for the model have no loss; their translation is empty.
    """
    losses: dict[int, Row] = {row["index"]: row for row in recorder.rows}
    unscored = {**dict.fromkeys(("loss", "nll")), "tokens": 0}
    recorder.rows = [
        {**losses.get(index, {"index": index, **unscored}), "target": reference, "prediction": translations[index]}
        for index, reference in enumerate(references)
    ]
    options: dict[str, str | bool] = {"language": scorer.language, "tokenized": scorer.tokenized}
    corpus = {name: {"scorer": name, **options} for name in ("bleu", "sacrebleu")}
    recorder.define({"target": "text", "prediction": "text", **LOSSES}, RATIOS, corpus=corpus)
