"""Compare the micro-batches of each step with those of fairseq's own iterators, on several numbers of processes."""

from __future__ import annotations

import pytest
from fairseq.data.iterators import EpochBatchIterator, GroupedIterator
from fairseq.utils import resolve_max_positions

from dropbench.harness.training.data_loading import deal
from dropbench.tasks.translation.translation import Translation
from tests.tasks.translation.test_translation import make

pytestmark = pytest.mark.usefixtures("cache")
MICRO_BATCHES = 8
MAX_TOKENS = 40


@pytest.fixture(scope="module")
def task() -> Translation:
    return make(order="fairseq", accumulate=MICRO_BATCHES, max_tokens=MAX_TOKENS)


def iterator(task: Translation, rank: int, ranks: int) -> EpochBatchIterator:
    """Return fairseq's iterator of one process, with the options of fairseq-train."""
    task.fairseq.dataset_to_epoch_iter.clear()
    return task.fairseq.get_batch_iterator(
        task.fairseq.dataset("train"),
        max_tokens=MAX_TOKENS,
        max_positions=resolve_max_positions(task.fairseq.max_positions(), MAX_TOKENS),
        ignore_invalid_inputs=True,
        required_batch_size_multiple=8,
        seed=task.seed_of("order"),
        num_shards=ranks,
        shard_id=rank,
    )


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_each_step_has_the_micro_batches_of_fairseq_on_the_same_processes(task: Translation, ranks: int) -> None:
    iterators = [iterator(task, rank, ranks) for rank in range(ranks)]
    for epoch in range(2):
        steps = list(task.epoch(1, task.epoch_seed(epoch)))
        batches = [each.ordered_batches(epoch + 1, fix_batches_to_gpus=False, shuffle=True) for each in iterators]
        shards = [[*GroupedIterator(each, MICRO_BATCHES // ranks)] for each in batches]
        assert [len(shard) for shard in shards] == [len(steps)] * ranks
        for number, indices in enumerate(steps):
            parts = task.micro_batches(indices, MICRO_BATCHES)
            theirs = [[list(batch) for batch in shard[number] if len(batch)] for shard in shards]
            assert sorted(parts) == sorted(batch for batches in theirs for batch in batches)
            if len(parts) % ranks == 0:
                assert [[part.indices for part in deal(parts, rank, ranks)] for rank in range(ranks)] == theirs
