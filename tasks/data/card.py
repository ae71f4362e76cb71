"""The card of a user's own data, `card.yaml`, and the files of its splits, by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field

from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.files import read_yaml, yaml_line
from dropbench.harness.trials.task import Split
from dropbench.harness.validation import StrictModel, validated
from dropbench.tasks.data.dataset import ClassMetric, Dataset, Layout

CARD = "card.yaml"
SPLIT_NAMES: dict[str, Split] = {
    "train": "train", "dev": "dev", "valid": "dev", "val": "dev", "validation": "dev", "test": "test",
}  # fmt: skip
"""Names up to the first dot, in lower case → split."""
Percent = Annotated[int, Field(ge=1, le=49)]
OneOrMore = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)


class Card(StrictModel):
    """A card, as docs/data.md describes; `Dataset.card` lists the keys of a set."""

    model_config = ConfigDict(coerce_numbers_to_str=True)
    percent: Annotated[dict[Literal["dev", "test"], Percent], "1 to 49, as in {dev: 20, test: 20}"] = Field(default={})
    text: Annotated[tuple[str, ...], OneOrMore, Field(min_length=1, max_length=2), "one column or two"] = ("text",)
    label: str = "label"
    choices: Annotated[tuple[str, ...], Field(min_length=2), "two or more columns, such as [a, b]"] = ()
    answers: str = ""
    score: str = ""
    metrics: Annotated[tuple[ClassMetric, ...], OneOrMore, f"some of {', '.join(get_args(ClassMetric))}"] = ()
    group: str = ""
    classes: Annotated[tuple[str, ...], "a list of texts or whole numbers, such as [bad, good]"] = ()
    separator: Annotated[str, Field(min_length=1, max_length=1), "one character"] = ","
    columns: Annotated[tuple[str, ...], "a list of names, such as [word, pos, tag]"] = ("word", "tag")
    scored: Literal["spans", "tokens"] = "spans"
    languages: Annotated[tuple[str, ...], Field(min_length=2, max_length=2), "two suffixes, such as [de, en]"] = ()


def describe(dataset: Dataset, folder: Path) -> tuple[Dataset, Card, dict[Split, list[str]]]:
    """Return a set as it is in a user's folder, its card, and the files of each split.

    Raises:
        InputError: the card is not valid, or the names do not give the splits.
    """
    file = folder / CARD
    if misnamed := [path for path in folder.glob("[Cc]ard.y*ml") if path.name != CARD]:
        raise InputError(f"{misnamed[0]}: rename the file to {CARD}")
    content = (read_yaml(file) if file.is_file() else None) or {}
    if not isinstance(content, dict):
        raise InputError(f"{file}: expected a mapping, such as `group: author`")
    for key in content:
        if key not in dataset.card:
            raise unknown_name(f"key in {file}:{yaml_line(file, [key])}", str(key), dataset.card)
    card = validated(Card, content, file)
    if card.answers and (len(card.text) < 2 or len({*content} & {"score", "classes", "metrics", "choices", "label"})):
        raise InputError(f"{file}: answers: expected `text: [question, context]`, and no label, score or choices")
    if card.choices and (others := [key for key in ("score", "classes", "metrics") if key in content]):
        raise InputError(f"{file}: {others[0]}: not for choices, whose metric is accuracy: remove it, or `choices`")
    features = tuple(name for name in card.columns if name not in ("word", "tag"))
    group_fits = "columns" not in dataset.card or card.group in ("", *features)
    if len({"word", "tag", *features}) != len(card.columns) or not group_fits:
        columns = ", ".join(card.columns)
        raise InputError(f"{file}: columns {columns}: expected word and tag once, and others, one of them the group")
    [pattern], number = dataset.layouts[0].files, 2 if "languages" in dataset.card else 1
    splits = _by_name(folder, pattern, card)
    if splits and ("train" not in splits or any(len(names) != number for names in splits.values())):
        names = ", ".join(name for names in splits.values() for name in names)[:200]
        rule = f"expected {number} for train, {number} or none each for dev and test, named train.*, dev.*, test.*"
        raise InputError(f"{folder}: {names}: {rule}{f', or `languages` in {CARD}' * (number > 1)}")
    suffixes = {tuple(name.removesuffix(".gz").rpartition(".")[2] for name in names) for names in splits.values()}
    if number > 1 and len(suffixes) > 1:
        raise InputError(f"{folder}: the languages differ between splits: expected the same suffixes")
    if dataset.kind == "object-detection":
        for parts in splits.values():  # images: in a folder with the same name, or in images/, or next to the file
            near = (f"{Path(parts[0]).stem}/", "images/", "./")
            parts.append(next(name for name in near if (folder / name).is_dir()))
    files = tuple(dict.fromkeys(name for names in splits.values() for name in names)) or (pattern,)
    facts = {
        "layouts": (Layout(files=files, optional=(CARD,), reader=dataset.layouts[0].reader),),
        "kind": _kind(dataset, card),
        "columns": features,
        "metrics": card.metrics,
    }
    return dataset.model_copy(update=facts), card, splits


def _kind(dataset: Dataset, card: Card) -> str:
    if card.answers:
        return "question-answering"
    if card.score:
        return "text-regression"
    if card.choices:
        return "multiple-choice"
    return "textual-entailment" if len(card.text) > 1 else dataset.kind


def _by_name(folder: Path, pattern: str, card: Card) -> dict[Split, list[str]]:
    """Return the names that match the pattern by split; the other names belong to train.

    For the pattern "*/" the only split is the folder itself if no folder in it has a split's name.
    """
    end, suffixes = "/" * pattern.endswith("/"), [f".{language}" for language in card.languages] or [""]
    paths = [path for path in folder.glob("[!.]*") if path.name != CARD and path.is_dir() == bool(end)]
    ending = pattern.strip("*/")  # as lower case, like the names: some programs write .CSV
    names = sorted(path.name for path in paths if path.name.lower().removesuffix(".gz").endswith(ending))
    if end and names and not SPLIT_NAMES.keys() & {*map(str.lower, names)}:
        return {"train": ["./"]}
    splits: dict[Split, list[str]] = {"train": [], "dev": [], "test": []}
    for name in (name for suffix in suffixes for name in names if name.removesuffix(".gz").endswith(suffix)):
        splits[SPLIT_NAMES.get(name.partition(".")[0].lower(), "train")].append(name + end)
    return {split: names for split, names in splits.items() if names}
