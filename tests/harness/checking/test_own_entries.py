"""Each mistake in a plug-in is refused before anything is queued, by one line with the entry and its file."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from dropbench.harness.checking import contract, own_entries
from dropbench.harness.cli.main import run
from dropbench.jobs.cli.check_command import ON_DIGITS
from tests.harness.checking.own_task import DEFINE, ENQUEUE, write

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
        "two readings of the data give other rows of train: split and draw with a fixed seed",
    ),
    "generator without a seed": (
        SPLITS,
        "    import numpy\n    pairs = [pairs[i] for i in numpy.random.default_rng().permutation(len(pairs))]\n"
        + SPLITS,
        DATA,
        "two readings of the data give other rows of train",
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
        LOSS + "\n    def num_loss_terms(self, batch):\n        return None\n",
        TASK,
        "num_loss_terms returned None",
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


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_before_anything_is_queued(
    mistake: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced, by, entry, message = MISTAKES[mistake]
    write(folder, (replaced, by))
    code = run([*ENQUEUE])
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert printed.err.count("\n") == 1
    assert entry in printed.err
    assert message in printed.err
    assert "own.py" in printed.err
    assert not (folder / "runs").exists()


REGULARIZER_MISTAKES = {
    "no effect": (AROUND.replace(" * (1 - site.ratio)", ""), "it changes neither the loss nor the gradients"),
    "NaN": (AROUND.replace("(1 - site.ratio)", "float('nan')"), "a training step makes embed.weight, "),
    "shape": (
        AROUND.replace("inner(call)", "inner(call)[:, :1]"),
        "Shrink returned (7, 1, 5, 4): expected a tensor of shape (7, 2, 5, 4)",
    ),
    "error": (AROUND.replace("site.ratio", "site.rate"), "own.py:75: AttributeError: "),
}


@pytest.mark.parametrize("mistake", REGULARIZER_MISTAKES)
def test_a_mistake_in_a_regularizer_is_refused(mistake: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by, message = REGULARIZER_MISTAKES[mistake]
    write(folder, (AROUND, by))
    assert run([*ENQUEUE, "--regularizer", "shrink"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"dropbench: {SHRINK}")
    assert (message in error, "own.py" in error, error.count("\n")) == (True, True, 1)
    assert not (folder / "runs").exists()


def test_a_regularizer_is_tried_with_shipped_tasks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, (AROUND, REGULARIZER_MISTAKES["no effect"][0]))
    assert run(["enqueue", "quickstart", "--seeds", "1", "--plugin", "own.py"]) == 2
    assert SHRINK in capsys.readouterr().err


def test_what_passes_is_tried_once_for_each_version(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    check = contract.check_contract
    monkeypatch.setattr(contract, "check_contract", lambda trial, *rest: tried.append(trial.id) or check(trial, *rest))
    write(folder, ("NAMES = (", "print('hello')\nNAMES = ("))
    for _ in range(2):
        monkeypatch.setattr(own_entries, "_passed", set())  # as in another process
        assert run([*ENQUEUE, "--regularizer", "shrink"]) == 0
    assert run([*ENQUEUE, "--regularizer", "none"]) == 0
    assert len(tried) == 2  # with the regularizer, and without
    assert run(["check", "--plugin", "own.py", "--json"]) == 0
    assert len(tried) == 4
    printed = capsys.readouterr().out
    items = json.loads(printed[printed.index("[") :])
    assert [item["state"] for item in items] == ["ok", "ok"]
    assert items[0]["regularizer"] == "none"
    assert items[1] | {"detail": ""} == {
        **ON_DIGITS, "regularizer": "shrink", "state": "ok", "detail": ""
    }  # fmt: skip


def test_shipped_entries_are_not_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "check_contract", None)
    words = ["enqueue", "--task", "image-classification", "--data", "digits", "--model", "vit-digits"]
    assert run([*words, "--regularizer", "dropkey"]) == 0


def test_the_command_lists_all_faults(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, (LOSS, LOSS.replace("[0]", "[0] * 2")), (AROUND, REGULARIZER_MISTAKES["error"][0]))
    assert run(["check", "--plugin", "own.py"]) == 2
    printed = capsys.readouterr().out
    assert "but that of loss_and_logits" in printed
    assert "AttributeError" in printed


def test_attention_outside_of_sites_may_be_intended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replaced, by, _, message = MISTAKES["unregularized attention"]
    register = '@MODELS.register("attending", tasks=["points"]'
    write(folder, (replaced, by), (register, f'{register}, unreached="ignore"'))
    assert run([*ENQUEUE]) == 0, message


def test_random_states_stay_and_small_domains_may_repeat_rows(folder: Path) -> None:
    file = folder / "data/points/points.csv"
    file.write_text("\n".join("0.2,0.4" if number % 2 else "0.7,0.1" for number in range(100)))
    write(folder)
    random.seed(7)
    torch.manual_seed(7)
    before = random.getstate(), torch.get_rng_state().tolist()
    assert run([*ENQUEUE]) == 0
    assert (random.getstate(), torch.get_rng_state().tolist()) == before
