"""Shell completion of the names of data sets."""

from __future__ import annotations

from collections.abc import Iterator

from dropbench.harness.cli.completion import Item, completer


def _data(word: str) -> Iterator[Item]:
    """Yield the sets whose names begin like the word, and their synthetic twins; the cards of others are not read."""
    from dropbench.harness.trials.trial import SYNTHETIC
    from dropbench.tasks.data.dataset import DATASETS

    for name in DATASETS:
        if name.startswith(word) or word.startswith(name):
            dataset = DATASETS.get(name)
            yield name, dataset.help
            if dataset.synthetic:
                yield name + SYNTHETIC, "a small generated set in the same format"


complete_data = completer(_data)
