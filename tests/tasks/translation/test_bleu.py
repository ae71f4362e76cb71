"""Test both BLEU scores: on tokens as in fairseq, on text as in sacrebleu."""

from __future__ import annotations

import pytest
import sacrebleu

from dropbench.tasks.translation.bleu import Scorer

REFERENCES = [
    "Ein Mann geht am Freitag mit drei Hunden über die Straße.",
    "Zwei Kinder spielen im Schnee, z.B. mit einem Ball.",
    "Die Köln-Bonner Bahn fährt heute nicht.",
]
TRANSLATIONS = [
    "Ein Mann geht am Freitag mit vier Hunden über eine Straße.",
    "Zwei Kinder spielen im schnee, z.B. mit dem Ball.",
    "Die Köln-Bonner Bahn fährt heute nicht.",
]
FAIRSEQ = 58.380882641725776


def test_bleu_on_tokens_equals_a_recorded_score_of_fairseq() -> None:
    # Recorded from fairseq's C++ extension, which is not installed everywhere.
    assert Scorer("de", tokenized=False)(TRANSLATIONS, REFERENCES)["bleu"] == pytest.approx(FAIRSEQ, rel=1e-9)


def test_tokens_are_scored_without_tokenization() -> None:
    plain = Scorer("de", tokenized=False)
    tokens = [[plain.tokenize(line) for line in lines] for lines in (TRANSLATIONS, REFERENCES)]
    assert Scorer("de", tokenized=True)(*tokens)["bleu"] == plain(TRANSLATIONS, REFERENCES)["bleu"]
    assert tokens[1][1] == "Zwei Kinder spielen im Schnee , z.B. mit einem Ball ."


def test_text_is_scored_as_by_sacrebleu() -> None:
    for translations in (TRANSLATIONS, [*TRANSLATIONS[:2], ""]):
        score = Scorer("de", tokenized=False)(translations, REFERENCES)["sacrebleu"]
        assert score == sacrebleu.corpus_bleu(translations, [REFERENCES]).score
        assert score != sacrebleu.corpus_bleu(translations, [REFERENCES], lowercase=True).score


def test_tokens_are_detokenized() -> None:
    scorer = Scorer("de", tokenized=True)
    assert scorer.detokenize("Die Köln @-@ Bonner Bahn fährt , &quot; heute &quot; , nicht .") == (
        'Die Köln-Bonner Bahn fährt, "heute", nicht.'
    )
    assert scorer.detokenize("Köln ##AT##-##AT## Bonn &amp; mehr") == "Köln-Bonn & mehr"
    assert scorer(["Ein Mann , ja ."], ["Ein Mann , ja ."]) == {
        "bleu": pytest.approx(100),
        "sacrebleu": pytest.approx(100),
    }


@pytest.mark.parametrize("tokenized", [True, False])
def test_the_notes_have_the_signatures(tokenized: bool) -> None:
    bleu, text = Scorer("de", tokenized=tokenized).notes()
    version = sacrebleu.__version__
    assert bleu.endswith(f"nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:{version}")
    assert text.endswith(f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}")
    assert ("by sacremoses" in bleu) != tokenized
    assert ("by sacremoses" in text) == tokenized
