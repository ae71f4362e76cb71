"""The textual entailment set of DropAttention, section 5.3."""

from __future__ import annotations

from tasks.data.dataset import Dataset, Layout, Published

BOWMAN = "Bowman et al. (2015)"
LABELLED = "SNLI 1.0, pairs with a gold label"


def _files(suffix: str) -> tuple[str, ...]:
    return tuple(f"snli_1.0_{split}.{suffix}" for split in ("train", "dev", "test"))


SETS = (
    Dataset(
        name="snli",
        help="pairs of sentences: does the one follow from the other?",
        kind="textual-entailment",
        folder="snli",
        layouts=(
            Layout(_files("jsonl"), "tasks.data.pairs:read_jsonl", ("snli_1.0",)),
            Layout(_files("txt"), "tasks.data.pairs:read_table", ("snli_1.0",)),
        ),
        classes=3,
        class_names=("contradiction", "entailment", "neutral"),
        origin="Bowman et al. (2015), A Large Annotated Corpus for Learning Natural Language Inference",
        home="https://nlp.stanford.edu/projects/snli/",
        licence="CC BY-SA 4.0",
        splits="as published",
        published=(
            Published("train", 550152, BOWMAN, with_left_out=True),
            Published("dev", 10000, BOWMAN, with_left_out=True),
            Published("test", 10000, BOWMAN, with_left_out=True),
            Published("train", 549367, LABELLED),
            Published("dev", 9842, LABELLED),
            Published("test", 9824, LABELLED),
        ),
        synthetic="tasks.data.synthetic_entailment:snli",
    ),
)
