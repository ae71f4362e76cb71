"""Generated pairs of sentences as lines of JSON: a hypothesis repeats words of its premise, denies, or adds to them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tasks.data.dataset import Dataset
from tasks.data.synthetic_text import invented_words

PAIRS = {0: 600, 1: 90, 2: 90}
"""Number of pairs of train, dev and test."""
WORDS, DENYING, ADDING = 40, 6, 12
UNDECIDED = 30
"""One pair of so many has no gold label."""


def snli(folder: Path, dataset: Dataset, seed: int) -> None:
    """Three files; as in the published ones, some pairs have "-" for their gold label."""
    words = list(invented_words(WORDS + DENYING + ADDING))
    plain, denying, adding = words[:WORDS], words[WORDS : WORDS + DENYING], words[WORDS + DENYING :]
    marks = {"contradiction": denying, "entailment": [], "neutral": adding}
    for part, name in enumerate(dataset.layouts[0].files):
        random = np.random.RandomState([seed, part])
        lines = []
        for number in range(PAIRS[part]):
            label = dataset.class_names[number % dataset.classes]
            premise = [str(word) for word in random.choice(plain, random.randint(5, 10), replace=False)]
            hypothesis = [str(word) for word in random.choice(premise, 3, replace=False)]
            # One pair of ten does not tell.
            if marks[label] and random.random_sample() < 0.9:
                hypothesis.insert(random.randint(4), str(random.choice(marks[label])))
            row = {
                "gold_label": "-" if random.randint(UNDECIDED) == 0 else label,
                "sentence1": f"{' '.join(premise)} .",
                "sentence2": f"{' '.join(hypothesis)} .",
                "pairID": f"{part}.{number}",
            }
            lines.append(f"{json.dumps(row)}\n")
        (folder / name).write_text("".join(lines), encoding="utf-8")
