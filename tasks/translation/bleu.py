"""BLEU on tokens and on text, by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU, MAX_NGRAM_ORDER
from sacremoses import MosesDetokenizer, MosesTokenizer


class Scorer:
    """Two case-sensitive BLEU scores of translations.

    ``bleu`` is that of the papers: on Moses tokens, without splitting compounds (DropAttention, Section 5.4).
    ``sacrebleu`` is on text, which sacrebleu tokenizes, and so does not depend on the tokens of a data set. Raw text is
    tokenized for ``bleu``, and tokens are detokenized for ``sacrebleu``.

    Args:
        language: code of the target language.
        tokenized: whether translations and references are Moses tokens separated by spaces, and not raw text.
    """

    def __init__(self, language: str, *, tokenized: bool) -> None:
        self.language, self.tokenized = language, tokenized
        self.tokenizer, self.detokenizer = MosesTokenizer(language), MosesDetokenizer(language)

    def __call__(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Return both scores of a corpus, 0 to 100."""
        scores = {}
        for name, convert in (("bleu", self.tokenize), ("sacrebleu", self.detokenize)):
            corpus = [[convert(line) for line in lines] for lines in (translations, references)]
            scores[name] = float(_metric(name).corpus_score(corpus[0], [corpus[1]]).score)
        return scores

    def counts(self, name: str, translation: str, reference: str) -> list[int]:
        """Return what a sentence adds to the score `name`: matching n-grams, n-grams (n from 1 to 4), both lengths."""
        convert = self.tokenize if name == "bleu" else self.detokenize
        hypothesis, expected = convert(translation), convert(reference)
        score: Any = _sentence_metric(name).sentence_score(hypothesis, [expected])
        return [*score.counts, *score.totals, score.sys_len, score.ref_len]

    def notes(self) -> tuple[str, str]:
        """Return a description of each score, with sacrebleu's signature."""
        tokens = "of the data" if self.tokenized else "by sacremoses"
        text = "detokenized by sacremoses" if self.tokenized else "of the data"
        bleu, sacrebleu = (_metric(name, [["any"]]).get_signature() for name in ("bleu", "sacrebleu"))
        return (f"bleu: case-sensitive, on Moses tokens {tokens}: {bleu}", f"sacrebleu: on text {text}: {sacrebleu}")

    def tokenize(self, line: str) -> str:
        """Return a line as Moses tokens separated by spaces."""
        if self.tokenized:
            return line
        tokens: str = self.tokenizer.tokenize(line, return_str=True, escape=False)
        return tokens

    def detokenize(self, line: str) -> str:
        """Return a line as raw text."""
        if not self.tokenized:
            return line
        # WMT'16's marker of a hyphen inside a word becomes that of Moses.
        words = line.replace("##AT##-##AT##", "@-@").split()
        text: str = self.detokenizer.detokenize(words, return_str=True)
        return text


@cache
def _sentence_metric(name: str) -> BLEU:
    # `effective_order` silences sacrebleu's warning about sentences; it changes no counts.
    return BLEU(tokenize="none" if name == "bleu" else "13a", force=True, effective_order=True)


def _metric(name: str, references: Sequence[Sequence[str]] | None = None) -> BLEU:
    # `force` silences sacrebleu's warning about tokenized input, which is intended here.
    return BLEU(tokenize="none" if name == "bleu" else "13a", force=name == "bleu", references=references)


def corpus_bleu(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the BLEU (…) of corpora by their sums (…, 10) of `Scorer.counts`."""
    order = MAX_NGRAM_ORDER
    values = [
        BLEU.compute_bleu(row[:order], row[order : 2 * order], row[-2], row[-1], smooth_method="exp").score
        for row in counts.reshape(-1, 2 * order + 2).astype(int).tolist()
    ]
    return np.array(values).reshape(counts.shape[:-1])
