"""A plug-in with a task, data, a model and a regularizer, which tests change."""

from __future__ import annotations

from pathlib import Path

PLUGIN = """import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, scaled_dot_product_attention

from dropbench import DATASETS, MODELS, REGULARIZERS, TASKS, AroundAttention, Metric, PresetTask, Ratio, ThreeSplits

NAMES = ("low", "middle", "high")
ATTEND = scaled_dot_product_attention


@DATASETS.register("points", kind="points", files=("points.csv",))
def read(source):
    lines = source.files[0].read_text().splitlines()
    rows = [torch.tensor([float(value) for value in line.split(",")]) for line in lines]
    pairs = [(row, (row[0] * 3).long()) for row in rows]
    part = len(pairs) // 5
    train, dev, test = pairs[2 * part :], pairs[:part], pairs[part : 2 * part]
    return ThreeSplits(source.name, NAMES, train, dev, test)


@TASKS.register("points")
class Points(PresetTask):
    metrics = (Metric("accuracy"), Metric("error", higher_is_better=False, unit=""))
    recipes = {"presets": {"mini": {"epochs": 1, "batch_size": 16}}}

    @classmethod
    def sizes_for(cls, recipe, classes):
        return {"classes": classes}

    def loss(self, model, batch):
        return self.loss_and_logits(model, batch)[0]

    def loss_and_logits(self, model, batch):
        rows, labels = batch
        logits = model(rows)
        return cross_entropy(logits, labels), logits

    def evaluate(self, model, split, batches):
        correct, errors = [], []
        for rows, labels in batches:
            logits = model(rows)
            correct += (logits.argmax(1) == labels).tolist()
            errors += cross_entropy(logits, labels, reduction="none").tolist()
        if self.recorder is not None:
            ratios = {"accuracy": Ratio(sum="correct", scale=100), "error": Ratio(sum="error")}
            self.recorder.define({"correct": "number", "error": "number"}, ratios)
            self.recorder.add({"correct": int(c), "error": e} for c, e in zip(correct, errors, strict=True))
        return {"accuracy": 100 * sum(correct) / len(correct), "error": sum(errors) / len(errors)}


class Attending(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, classes)

    def forward(self, rows):
        tokens = self.embed(rows[..., None])
        attended, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return self.head((tokens + attended).mean(dim=1))


@MODELS.register("attending", tasks=["points"])
def build(name, options, *, classes):
    return Attending(classes)


@REGULARIZERS.register("shrink")
class Shrink(AroundAttention):
    stage = "output"
    ratio: float = 0.2

    def around(self, call, site, inner):
        return inner(call) * (1 - site.ratio)
"""
ENQUEUE = ["enqueue", "--task", "points", "--data", "points", "--model", "attending", "--plugin", "own.py"]
DEFINE = '            self.recorder.define({"correct": "number", "error": "number"}, ratios)\n'


def write(folder: Path, *changes: tuple[str, str]) -> None:
    """Write the plug-in with some texts replaced, as own.py."""
    content = PLUGIN
    for replaced, by in changes:
        assert content.count(replaced) == 1
        content = content.replace(replaced, by)
    (folder / "own.py").write_text(content)
