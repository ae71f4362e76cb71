"""Mistakes in the plug-in of `own_task`: a text, its replacement, the entry that the error names, and its words."""

from __future__ import annotations

from tests.harness.checking.own_task import DEFINE

LOSS = "        return self.loss_and_logits(model, batch)[0]\n"
PAIR = "        return cross_entropy(logits, labels), logits\n"
METRICS = '{"accuracy": 100 * sum(correct) / len(correct), "error": sum(errors) / len(errors)}'
SPLITS = "    train, dev, test = pairs[2 * part :], pairs[:part], pairs[part : 2 * part]\n"
FORWARD = "        return self.head((tokens + attended).mean(dim=1))\n"
AROUND = "        return inner(call) * (1 - site.ratio)\n"
BATCH = """
    def batch(self, split, indices):
        rows, labels = super().batch(split, indices)
        return {}

    def loss(self"""
TASK, DATA, MODEL, SHRINK = ("task 'points'", "data 'points'", "model 'attending'", "regularizer 'shrink'")

MISTAKES: dict[str, tuple[str, str, str, str]] = {
    # Of a reader and its rows.
    "random splits": (
        SPLITS,
        "    import random\n    random.shuffle(pairs)\n" + SPLITS,
        DATA,
        "a second reading of the data gives other rows of train: split and draw with a fixed seed",
    ),
    "generator without a seed": (
        SPLITS,
        "    import numpy\n    pairs = [pairs[i] for i in numpy.random.default_rng().permutation(len(pairs))]\n"
        + SPLITS,
        DATA,
        "a second reading of the data gives other rows of train",
    ),
    "test is dev": (
        SPLITS,
        SPLITS.replace("pairs[part : 2 * part]", "pairs[:part]"),
        DATA,
        "20 of 20 rows of test are also in dev",
    ),
    "dev is in train": (
        SPLITS,
        SPLITS.replace("pairs[2 * part :]", "pairs"),
        DATA,
        "20 of 20 rows of dev are also in train",
    ),
    "no classes": (
        "ThreeSplits(source.name, NAMES,",
        "ThreeSplits(source.name, (),",
        TASK,
        "The model returns 0 logits: expected data with their `classes`, and labels from 0",
    ),
    "error in a reader": ("lines = source", "lines = sauce", DATA, "own.py:13: NameError: name 'sauce' is not defined"),
    "exit in a reader": ("    rows = [torch", "    exit(3)\n    rows = [torch", DATA, "own.py:14: SystemExit: 3"),
    "nothing returned": (
        "    return ThreeSplits",
        "    ThreeSplits",
        DATA,
        "read returned NoneType: expected a dropbench",
    ),
    "a list returned": (
        "    return ThreeSplits(source.name, NAMES, train, dev, test)",
        "    return [train, dev, test]",
        DATA,
        "read returned list: expected a dropbench",
    ),
    "empty split": (SPLITS, SPLITS.replace("pairs[:part]", "[]"), DATA, "no rows for dev: too few"),
    "classes of a set": (
        "NAMES, train, dev, test)",
        "tuple({'low', 'middle', 'high', 'a', 'b', 'c'}), train, dev, test)",
        DATA,
        "another process gives other classes: sort what comes from a set",
    ),
    "order by hash": (
        SPLITS,
        "    pairs.sort(key=lambda pair: hash(str(pair)))\n" + SPLITS,
        DATA,
        "another process gives other rows of train: sort what comes from a set",
    ),
    # Of batches.
    "NumPy batch": ("\n    def loss(self", BATCH.format("rows.numpy(), labels"), TASK, "batch returned a NumPy array"),
    "lists in a batch": (
        "\n    def loss(self",
        BATCH.format("rows.tolist(), labels.tolist()"),
        TASK,
        "batch returned ([[",
    ),
    "batch of texts": ("\n    def loss(self", BATCH.format("'rows'"), TASK, "batch returned 'rows': expected tensors"),
    # Of the loss.
    "loss without gradient": (LOSS, LOSS.replace("[0]", "[0].detach()"), TASK, "loss has no gradient"),
    "loss is a number": (LOSS, LOSS.replace("[0]", "[0].item()"), TASK, "expected a tensor, without `.item()`"),
    "loss of each row": (
        PAIR,
        PAIR.replace("labels)", "labels, reduction='none')"),
        TASK,
        "loss returned a tensor of shape (7,): expected a scalar",
    ),
    "loss is NaN": (LOSS, LOSS.replace("[0]", "[0] * float('nan')"), TASK, "loss is nan: expected a finite number"),
    "loss of a constant": (LOSS, LOSS.replace("[0]", "[0] * 0"), TASK, "no parameter of the model has a gradient"),
    "another loss": (LOSS, LOSS.replace("[0]", "[0] * 2"), TASK, "but that of loss_and_logits"),
    "no logits": (PAIR, PAIR.replace(", logits", ""), TASK, "task 'points': "),
    "logits of each token": (PAIR, PAIR.replace(", logits", ", logits[:, None]"), TASK, "logits of shape (7, 1, 3)"),
    "broadcast by -": (
        PAIR,
        "        return ((logits[:, :1] - labels) ** 2).mean(), logits\n",
        TASK,
        "tensors (7, 1) and (7,) broadcast to all 7 × 7 pairs",
    ),
    "broadcast in mse_loss": (
        PAIR,
        "        return mse_loss(logits[:, :1], labels.float()), logits\n",
        TASK,
        "tensors (7, 1) and (7,) broadcast to all 7 × 7 pairs",
    ),
    "number of terms": (
        LOSS,
        LOSS + "\n    def num_loss_terms(self, batch):\n        return 0\n",
        TASK,
        "num_loss_terms returned 0",
    ),
    "exit in a loss": (LOSS, "        exit()\n", TASK, "SystemExit"),
    # Of the evaluation.
    "NaN metric": (
        METRICS,
        '{"accuracy": 1.0, "error": float("nan")}',
        TASK,
        "evaluate('dev'): error is nan: expected a finite number",
    ),
    "infinite metric": (METRICS, '{"accuracy": 1.0, "error": float("inf")}', TASK, "evaluate('dev'): error is inf"),
    "metric missing": (
        METRICS,
        '{"accuracy": 1.0}',
        TASK,
        "evaluate('dev') returned accuracy: expected error as well",
    ),
    "first metric missing": (
        METRICS,
        '{"error": 1.0}',
        TASK,
        "evaluate('dev') returned error: expected accuracy as well",
    ),
    "undeclared metric": (
        METRICS,
        METRICS.replace('"error"', '"eror"'),
        TASK,
        "evaluate('dev') returned eror: declare `Metric(\"eror\")`",
    ),
    "tensor metric": (
        METRICS,
        '{"accuracy": torch.ones(()), "error": 1.0}',
        TASK,
        "accuracy is a torch.Tensor: expected a number",
    ),
    "no dict": (METRICS, "3.0", TASK, "evaluate('dev') returned 3.0: expected a dict"),
    "percent": (METRICS, METRICS.replace("100", "500"), TASK, "expected 100 at most"),
    "broadcast in accuracy": (
        "(logits.argmax(1) == labels).tolist()",
        "(logits.argmax(1, keepdim=True) == labels).tolist()",
        TASK,
        "broadcast to all 20 × 20 pairs",
    ),
    "error in evaluation": ("errors += ", "erors += ", TASK, "own.py:43: UnboundLocalError"),
    # Of predictions.
    "wrong column": (
        'Ratio(sum="error")',
        'Ratio(sum="eror")',
        TASK,
        "metric error: column 'eror': expected a column of numbers",
    ),
    "missing column": ('"error": e}', '"err": e}', TASK, "expected an object with id, index, correct, error"),
    "too few rows": (
        "zip(correct, errors, strict=True)",
        "zip(correct[:5], errors[:5])",
        TASK,
        "5 rows for 20 samples of dev",
    ),
    "too many rows": (
        "zip(correct, errors, strict=True)",
        "zip(2 * correct, 2 * errors)",
        TASK,
        "40 rows for 20 samples of dev",
    ),
    "ratio over squares": ('"error": e}', '"error": e * e}', TASK, "from the rows, "),
    "wrong kind": (
        DEFINE,
        DEFINE.replace('"error": "number"', '"error": "float"'),
        TASK,
        "columns.error=float: input should be",
    ),
    "text as a number": ('"error": e}', '"error": str(e)}', TASK, "error="),
    "error while recording": (
        "self.recorder.add(",
        "self.recorder.append(",
        TASK,
        "AttributeError: 'Recorder' object has no attribute",
    ),
    # Of the model.
    "sizes": (
        "def build(name, options, *, classes)",
        "def build(name, options, *, labels)",
        MODEL,
        "TypeError: build() got an unexpected keyword argument 'classes'",
    ),
    "shapes": (
        "self.head = nn.Linear(8, classes)",
        "self.head = nn.Linear(9, classes)",
        MODEL.replace("model 'attending'", "points"),
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    ),
    "too few logits": (
        "return Attending(classes)",
        "return Attending(classes - 1)",
        TASK,
        "2 logits for 3 classes: expected the model to return (7, 3)",
    ),
    "no module": ("    return Attending(classes)", "    Attending(classes)", MODEL, "its function returned None"),
    "option": ("return Attending(classes)", "return Attending(classes, **{'width': 3})", MODEL, "own.py:"),
    "unregularized attention": (
        FORWARD,
        "        tokens = ATTEND(tokens, tokens, tokens)\n" + FORWARD,
        MODEL,
        "attention outside of every site, which nothing regularizes: ",
    ),
    "attention that is not reached": (
        "        attended, _ = self.attention(",
        "        attended, _ = (lambda x, *_, **__: (self.attention.out_proj(x), 0))(",
        MODEL,
        "1 of 1 regularized sites do not attend",
    ),
    # Of the file.
    "exit": ("NAMES = (", "exit()\nNAMES = (", "plug-in", "SystemExit"),
    "syntax": ("NAMES = (", "NAMES = ((", "plug-in", "SyntaxError"),
    "metric name": ('Metric("accuracy")', 'Metric("f1/macro")', "plug-in", "metric 'f1/macro': expected"),
    "metric without a name": ('Metric("accuracy")', 'Metric("")', "plug-in", "metric '': expected"),
    "reserved metric": ('Metric("accuracy")', 'Metric("seed")', "plug-in", "metric 'seed': it is a field of trials"),
    "metric twice": ('Metric("accuracy")', 'Metric("error")', TASK, "two metrics 'error'"),
    "recipes without presets": (
        '{"presets": {"mini": {"epochs": 1, "batch_size": 16}}}',
        '{"epochs": 1}',
        TASK,
        "`recipes` has no presets",
    ),
    "unknown key of a recipe": ('"epochs": 1', '"epoch": 1', TASK, "unknown recipe key 'epoch': did you mean epochs"),
}
