"""Both BLEU scores: on tokens as fairseq counts them, on text as sacrebleu does."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import sacrebleu
from fairseq.data import Dictionary
from fairseq.scoring.bleu import BleuConfig
from fairseq.scoring.bleu import Scorer as FairseqScorer

from tasks.translation_scores import Scorer

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


def test_bleu_on_tokens_is_what_fairseq_counted() -> None:
    # By its scorer, which is one of the C++ extensions that are not installed everywhere; the test below calls it.
    assert Scorer("de", tokenised=False)(TRANSLATIONS, REFERENCES)["bleu"] == pytest.approx(FAIRSEQ, rel=1e-9)


@pytest.mark.skipif(find_spec("fairseq.libbleu") is None, reason="fairseq was installed without its C++ extensions")
def test_bleu_on_tokens_is_what_fairseq_counts() -> None:
    scorer = Scorer("de", tokenised=False)
    dictionary = Dictionary()
    theirs = FairseqScorer(BleuConfig(pad=dictionary.pad(), eos=dictionary.eos(), unk=dictionary.unk()))
    for translation, reference in zip(TRANSLATIONS, REFERENCES, strict=True):
        theirs.add(*(dictionary.encode_line(scorer.tokens(line)) for line in (reference, translation)))
    assert scorer(TRANSLATIONS, REFERENCES)["bleu"] == pytest.approx(theirs.score(), rel=1e-9)
    assert theirs.score() == pytest.approx(FAIRSEQ, rel=1e-9)


def test_tokens_are_scored_as_they_come() -> None:
    plain = Scorer("de", tokenised=False)
    tokens = [[plain.tokens(line) for line in lines] for lines in (TRANSLATIONS, REFERENCES)]
    assert Scorer("de", tokenised=True)(*tokens)["bleu"] == plain(TRANSLATIONS, REFERENCES)["bleu"]
    assert tokens[1][1] == "Zwei Kinder spielen im Schnee , z.B. mit einem Ball ."


def test_text_is_scored_as_it_comes() -> None:
    found = Scorer("de", tokenised=False)(TRANSLATIONS, REFERENCES)["sacrebleu"]
    assert found == sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES]).score
    assert found != sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES], lowercase=True).score


def test_tokens_become_text() -> None:
    scorer = Scorer("de", tokenised=True)
    assert scorer.text("Die Köln @-@ Bonner Bahn fährt , &quot; heute &quot; , nicht .") == (
        'Die Köln-Bonner Bahn fährt, "heute", nicht.'
    )
    assert scorer.text("Köln ##AT##-##AT## Bonn &amp; mehr") == "Köln-Bonn & mehr"
    assert scorer(["Ein Mann , ja ."], ["Ein Mann , ja ."]) == {
        "bleu": pytest.approx(100),
        "sacrebleu": pytest.approx(100),
    }


def test_an_empty_translation_is_scored() -> None:
    scorer = Scorer("de", tokenised=False)
    assert scorer([*TRANSLATIONS[:2], ""], REFERENCES)["sacrebleu"] < scorer(TRANSLATIONS, REFERENCES)["sacrebleu"]


@pytest.mark.parametrize("tokenised", [True, False])
def test_the_signatures_say_what_was_scored(tokenised: bool) -> None:
    bleu, text = Scorer("de", tokenised=tokenised).notes()
    version = sacrebleu.__version__
    assert bleu.endswith(f"nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:{version}")
    assert text.endswith(f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}")
    assert ("by sacremoses" in bleu) != tokenised
    assert ("by sacremoses" in text) == tokenised
