"""Writer of synthetic sentence pairs in SNLI's format: a hypothesis repeats, denies or extends words of its premise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tasks.data.dataset import Dataset
from tasks.data.synthetic.text import invented_words

PAIRS = {0: 600, 1: 90, 2: 90}
"""Number of pairs of train, dev and test."""
WORDS, DENYING, ADDING = 40, 6, 12
UNLABELED_ONE_IN = 30
"""One of this number of pairs has no gold label."""


def snli(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write three files; some pairs have the gold label "-", as in the published files."""
    words = list(invented_words(WORDS + DENYING + ADDING))
    plain, denying, adding = words[:WORDS], words[WORDS : WORDS + DENYING], words[WORDS + DENYING :]
    marker_words = {"contradiction": denying, "entailment": [], "neutral": adding}
    for part, name in enumerate(dataset.layouts[0].files):
        random = np.random.RandomState([seed, part])
        lines = []
        for number in range(PAIRS[part]):
            label = dataset.class_names[number % dataset.classes]
            premise = [str(word) for word in random.choice(plain, random.randint(5, 10), replace=False)]
            hypothesis = [str(word) for word in random.choice(premise, 3, replace=False)]
            # One of ten pairs has no marker word.
            if marker_words[label] and random.random_sample() < 0.9:
                hypothesis.insert(random.randint(4), str(random.choice(marker_words[label])))
            row = {
                "gold_label": "-" if random.randint(UNLABELED_ONE_IN) == 0 else label,
                "sentence1": f"{' '.join(premise)} .",
                "sentence2": f"{' '.join(hypothesis)} .",
                "pairID": f"{part}.{number}",
            }
            lines.append(f"{json.dumps(row)}\n")
        (folder / name).write_text("".join(lines), encoding="utf-8")
