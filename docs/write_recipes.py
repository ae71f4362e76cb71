"""Write ``recipes.md`` and ``generated/recipe-keys.md``: `python docs/write_recipes.py`.

The first has the sources' hyper-parameters beside those of `paper`, the second all keys of recipes. The sources' values
are in ``source_recipes.yaml``, ours are read from the recipes and suites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dropbench.harness.files import read_yaml
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.optimization.options import Lora
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite
from dropbench.harness.trials.recipe import Recipe
from dropbench.harness.trials.recipe_diff import PAPER
from dropbench.harness.trials.task import TASKS, spec_of
from dropbench.harness.trials.trial import TrialRequest
from dropbench.tasks.preset_task import PresetTask
from dropbench.tasks.recipe_keys import recipe_keys

SOURCES = Path(__file__).with_name("source_recipes.yaml")
NOT_OF_THE_SOURCE = {"finetune_epochs"}
"""Keys that a preset sets without a counterpart in the source: of a phase that its suite does not have."""
ROW_KEYS = {"key", "name", "source", "ours", "shown", "where", "differs", "of_epochs"}
"""Keys that a row may have; another one is a comma in a text without quotes."""
INTRODUCTION = """# Recipes of the sources

<!-- Written by docs/write_recipes.py from docs/source_recipes.yaml, the recipes and the suites. -->

Every hyper-parameter of the preset `paper`, beside the value in the source's code and its place there. `=` means that
both are equal. Every other line has its reason, which is also a note under the table that it touches
([reading-tables.md](reading-tables.md)). [Keys of recipes](generated/recipe-keys.md) says what each key
means, as `dropbench list recipe TASK` does.

`tests/tasks/test_learning_rates.py` compares the learning rates with those of the sources' own schedulers, step by
step, and `tests/tasks/images/test_augmentation.py` RandAugment with timm's on the same random draws, pixel by pixel.
`tests/tasks/detection/test_published_batches.py` compares the batches of an epoch with those of torch's
DistributedSampler and BatchSampler, which most sources use: steps per epoch, images that occur, and padding. The
sampler repeats up to one image per GPU so that all have equally many; here no image occurs twice.

`tests/tasks/translation/test_published_batches.py` compares the micro-batches of each step with those of fairseq 0.12.2
on 1, 2 and 8 processes, from the same seed (`order: fairseq`; the default draws from another). With fairseq's compiled
batching, two epochs of 10,000 pairs of WMT'14 (4,096 tokens, 22 steps) and of Multi30k (29,000 pairs, 3,584 tokens, 38
steps) had the same micro-batches in every step. Each was on the same process, too, except in the last step of an epoch:
there fairseq leaves processes without a micro-batch idle, and here they share the rest. Since December 2022 fairseq
leaves out the batch of the longest sentences if their number is no multiple of 8; here it is kept, as in 0.12.2.

Some recipes have no source that could be followed line by line, as the notes under their tables say:

- `dropattention/*` but for translation, and CIFAR in `dropkey/*`: DropAttention's and DropKey's recipes are in
  appendices that are not public.
- `masksub/imagenet` and `patchdropout/imagenet`: the recipe is that of T2T-ViT, for MaskSub with its number of epochs.
  MaskSub's own is DeiT-III's, which has another optimizer, loss and augmentation.
- `r-drop/translation` and `drophead/translation`: R-Drop's repository has a command for IWSLT'14 alone, and DropHead
  prints none. The recipes are those of fairseq below.
- The other suites of `learned-dropout/*`: the recipe below; what differs is in their rows.
- `drophead/text` and `unidrop/text`: the papers' texts could not be opened; the recipes are ours.
- `hiddenkey/glue`: no code was found; the values of each column are those of the paper's text.
- `finetuning/*`, `field/*` and `quickstart*` are ours, without a source. The tasks `text-regression`, `multiple-choice`
  and `question-answering` occur in the suites of fine-tuning alone, or in none.
"""


KEYS = "generated/recipe-keys.md"
KEYS_INTRODUCTION = """# Keys of recipes

<!-- Written by docs/write_recipes.py from the recipes' classes. -->

What `--set KEY=VALUE`, `overrides` of a suite and the presets may set. `dropbench list recipe TASK` prints the keys of
a task with the default of each preset, and `dropbench list recipe TASK MODEL` also those of a model and its own
options, which are set as `model.KEY`. An empty default means that a key is off, or that its meaning says what is used
instead.
"""


def write(folder: Path) -> None:
    """Write both pages."""
    (folder / "recipes.md").write_text(page(), encoding="utf-8")
    (folder / KEYS).write_text(keys_page(), encoding="utf-8")


def keys_page() -> str:
    """Return the text of the page of keys: those of all tasks, then those of each, with its defaults."""
    tasks = {task: recipe_keys(task) for task in TASKS}
    shared = {*Recipe.model_fields} | {f"lora.{key}" for key in Lora.model_fields}
    first = next(iter(tasks.values()))
    lines = [KEYS_INTRODUCTION, "## All tasks", "", "| key | type | unit | meaning |", "| --- | --- | --- | --- |"]
    lines += [key_row(row) for row in first if row["key"] in shared]
    for task, rows in tasks.items():
        presets = [*rows[0]["default"]]
        lines += ["", f"## {task}", "", f"| key | {' | '.join(presets)} | type | unit | meaning |"]
        lines.append(f"|{' --- |' * (len(presets) + 4)}")
        for row in rows:
            general = Recipe.model_fields.get(row["key"])
            differs = general is None or any(value != general.get_default() for value in row["default"].values())
            if row["key"] not in shared or (differs and not row["key"].startswith("lora.")):
                lines.append(key_row(row, presets))
    return "\n".join([*lines, ""])


def key_row(row: Mapping[str, Any], presets: Sequence[str] = ()) -> str:
    """Return the row of a key, with its defaults of some presets."""
    values = [row["default"][preset] for preset in presets]
    defaults = ["" if each is None else str(each).lower() if isinstance(each, bool) else text(each) for each in values]
    cells = [f"`{row['key']}`", *defaults, row["type"], row["unit"], row["meaning"].replace("|", "\\|")]
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """Return the text of the page.

    Raises:
        ValueError: a value differs from the source's without a note, or a key of a recipe has no row.
    """
    entries: dict[str, Mapping[str, Any]] = {entry["title"]: entry for entry in read_yaml(SOURCES)}
    return "\n".join([INTRODUCTION, *(line for entry in entries.values() for line in section(entry, entries))])


def section(entry: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a section: the table of one model on one data set."""
    title, (repository, commit) = entry["title"], entry["source"].split("@")
    recipe, notes, keys = published(entry["suite"], entry["model"])
    covered = {row["key"] for row in entry["rows"] if "key" in row}
    if (like := entry.get("like")) is not None:
        base, _, base_keys = published(entries[like]["suite"], entries[like]["model"])
        keys = {key for key in keys | base_keys if recipe.get(key) != base.get(key)}
    if left := keys - covered - NOT_OF_THE_SOURCE:
        raise ValueError(f"{title}: no row for {', '.join(sorted(left))}")
    yield f"## {title}\n"
    link = f"[{repository}](https://github.com/{repository}/tree/{commit})"
    lines = f", lines of `{entry['file']}`" if "file" in entry else ""
    yield f"Suite `{entry['suite']}`, model `{entry['model']}`. Source: {link}, commit `{commit[:8]}`{lines}."
    if like is not None:
        anchor = like.lower().replace(" ", "-").replace(",", "")
        yield f"As [{like}](#{anchor}), but for:"
    yield "\n| hyper-parameter | source | at | here | |\n| --- | --- | --- | --- | --- |"
    yield from (table_row(title, row, recipe, notes) for row in entry["rows"])
    yield ""


def published(suite: str, model: str) -> tuple[dict[str, Any], Sequence[str], set[str]]:
    """Return a model's flat `paper` recipe in a suite, the notes under its table, and the set keys that are read."""
    loaded = load_suite(suite)
    cells = loaded.cells(SuiteOptions(preset=PAPER))
    request: TrialRequest = next(cell.request for cell in cells if cell.request.model == model and cell.baseline)
    task = spec_of(request.task)
    resolved = task.resolved(request)
    assert resolved is not None
    assert issubclass(task, PresetTask)
    recipe = flat(resolved.recipe)
    layers = [*task.recipe_parts(request).values(), request.overrides]
    unread = task.recipe_type.model_validate(resolved.recipe).unread(MODELS.entry(model).facts)
    keys = {key for layer in layers for key in flat(layer) if key in recipe and key not in unread}
    return recipe, [*resolved.notes, *loaded.notes], keys


def flat(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe or a layer of one with the model's options as ``model.x``."""
    options = {f"model.{key}": value for key, value in layer.get("model", {}).items()}
    return {key: value for key, value in layer.items() if key != "model"} | options


def table_row(title: str, row: Mapping[str, Any], recipe: Mapping[str, Any], notes: Sequence[str]) -> str:
    """Return a row of the table, after checking that a difference has a note."""
    if other := row.keys() - ROW_KEYS:
        raise ValueError(f"{title}: {', '.join(sorted(other))}: a row has no such key")
    name, source = row.get("key", row.get("name")), row["source"]
    ours = recipe[row["key"]] if "key" in row else row["ours"]
    if row.get("of_epochs"):
        ours = round(ours * recipe["epochs"])
    note = row.get("differs", "")
    if note and not any(note in each for each in notes):
        raise ValueError(f"{title}: {name}: no table shows this note: {note}")
    if ours != source and not note:
        raise ValueError(f"{title}: {name} is {ours}, in the source {source}: expected the same value, or a note")
    unit = " epochs" if row.get("of_epochs") else ""
    shown = row.get("shown", f"{text(source)}{unit}")
    where = row["where"].removeprefix(":")
    where = f"line {where}" if where != row["where"] else where
    label = f"`{name}`" if "key" in row else name
    return f"| {label} | {shown} | {where} | {text(ours)}{unit} | {note or '='} |"


def text(value: Any) -> str:
    """Return a value as the recipes write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    write(Path(__file__).parent)
