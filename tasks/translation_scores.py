"""BLEU, on tokens and on text, by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU
from sacremoses import MosesDetokenizer, MosesTokenizer


class Scorer:
    """Both scores of translations, case-sensitive.

    ``bleu`` is that of the papers: on Moses tokens, as they are, without splitting compounds (DropAttention, Section
    5.4). ``sacrebleu`` is on text, which sacrebleu itself tokenises, and does not depend on anybody's tokens. A set of
    raw text is tokenised for the first one, a set of tokens is made text for the second.

    Args:
        language: code of the translations' language.
        tokenised: whether translations and references are Moses tokens with spaces between; else they are raw text.
    """

    def __init__(self, language: str, *, tokenised: bool) -> None:
        self.language, self.tokenised = language, tokenised
        self.tokenizer, self.detokenizer = MosesTokenizer(language), MosesDetokenizer(language)

    def __call__(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Both for a whole corpus, 0 to 100."""
        found = {}
        for name, change in (("bleu", self.tokens), ("sacrebleu", self.text)):
            hypotheses, goals = [change(line) for line in translations], [change(line) for line in references]
            found[name] = float(self._metric(name).corpus_score(hypotheses, [goals]).score)
        return found

    def notes(self) -> tuple[str, str]:
        """What the two numbers are, with sacrebleu's signatures."""
        told = "as they come" if self.tokenised else "by sacremoses"
        text = "by sacremoses from tokens" if self.tokenised else "as it comes"
        return (
            f"bleu: case-sensitive, on Moses tokens {told}: {self._signature('bleu')}",
            f"sacrebleu: on text {text}: {self._signature('sacrebleu')}",
        )

    def tokens(self, line: str) -> str:
        """Moses tokens with spaces between."""
        if self.tokenised:
            return line
        tokens: str = self.tokenizer.tokenize(line, return_str=True, escape=False)
        return tokens

    def text(self, line: str) -> str:
        """As people write."""
        if not self.tokenised:
            return line
        # The mark of a hyphen inside a word, as Moses has it and as the files of WMT'16 have it.
        words = line.replace("##AT##-##AT##", "@-@").split()
        text: str = self.detokenizer.detokenize(words, return_str=True)
        return text

    def _metric(self, name: str, references: Sequence[Sequence[str]] | None = None) -> BLEU:
        # `force`: sacrebleu would advise against tokens, which are wanted here.
        return BLEU(tokenize="none" if name == "bleu" else "13a", force=name == "bleu", references=references)

    def _signature(self, name: str) -> str:
        return str(self._metric(name, references=[["any"]]).get_signature())
