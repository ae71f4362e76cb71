"""Descriptions of published data sets, known before any of their files is read, and the registry of them.

Each card in `tasks/data/cards/` describes one; the file name is the name of the set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from dropbench.harness.errors import InputError
from dropbench.harness.files import read_yaml
from dropbench.harness.registry import Entry, Registry
from dropbench.harness.trials.trial import SYNTHETIC
from dropbench.harness.validation import StrictModel, validated

SPLIT_SEED = 2019
"""The seed of splits that a data set does not have, unless the recipe has another, `seed_splits`."""
LABELED = re.compile(rf"([^:]+):(\w[\w.-]*)(?<!{SYNTHETIC})")
"""A set of the user's with a label: the name of the set whose format it has, a colon, the label."""
Unit = Literal["rows", "tokens"]
ClassMetric = Literal["accuracy", "f1", "f1-macro", "matthews"]
"""Metrics of classes that a data set may have."""


def _function(target: str) -> str:
    module, separator, function = target.partition(":")
    if not separator or not all(part.isidentifier() for part in (*module.split("."), function)):
        raise ValueError("expected 'module:function'")
    return target


Function = Annotated[str, AfterValidator(_function)]
"""Dotted module name and function name, joined by a colon."""


class Layout(StrictModel):
    """One published file layout of a set, and the function that reads it.

    Attributes:
        files: names relative to the set's folder. A name that ends in "/" is a folder of files. A name with a star
            stands for all files that match it, at least one.
        reader: "module:function", called with the `Source`.
        optional: names of files that the reader uses if they are present.
        subfolders: folders of the official archives, searched in addition to the set's folder.
    """

    files: tuple[str, ...] = Field(min_length=1)
    reader: Function
    optional: tuple[str, ...] = ()
    subfolders: tuple[str, ...] = ()


class Published(StrictModel):
    """A size stated by a paper or a project page.

    Attributes:
        split: the split that is counted, or "all".
        where: the source of the number.
        with_left_out: True if the count includes rows that the reader leaves out, such as rows without a label.
    """

    split: Literal["train", "dev", "test", "all"]
    count: int = Field(ge=1)
    where: str
    unit: Unit = "rows"
    with_left_out: bool = False


class Dataset(StrictModel):
    """A data set by name: its folder, its files, and how to obtain them. Built from a card of `tasks/data/cards/`.

    Attributes:
        kind: the kind of data that the reader returns: "text-classification", "sequence-labelling", …
        folder: below the data root.
        layouts: the accepted layouts, the preferred one first.
        classes: number of classes of the full set; 0 for a set without classes.
        class_names: class names in the order of their numbers, if no file of the set has them.
        columns: annotations that a tagged set gives for each word in addition to its tag.
        texts: columns of a table that hold the text, or both texts of a pair.
        label: column of a table that holds the class, or the score of a regression.
        header: names of the columns of a table whose files do not name them.
        metrics: metrics of the set besides the task's, the one that selects the model first; (): the task's alone.
        origin: the authors, and the copy that has this layout, in words.
        home: URL to obtain the set from.
        splits: how train, dev and test are made, in words.
        synthetic: "module:function" that writes a small set in the first layout (folder, dataset, seed); "" for none.
        package: "package/sub/folder" of an installed package that includes the files; "" if the user provides them.
        card: for a user's own files, the keys of their card (`dropbench.tasks.data.card`); the layout has one pattern.
    """

    name: str
    help: str
    kind: str
    folder: str
    layouts: tuple[Layout, ...] = Field(min_length=1)
    classes: int = Field(default=0, ge=0)
    origin: str = ""
    home: str = ""
    licence: str = ""
    splits: str = ""
    published: tuple[Published, ...] = ()
    class_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    label: str = ""
    header: tuple[str, ...] = ()
    metrics: tuple[ClassMetric, ...] = ()
    synthetic: Function = ""
    package: str = ""
    card: tuple[str, ...] = ()


class Catalog(Registry[Dataset]):
    """The data sets of a folder of cards, then those of plug-ins. A card is parsed when its set is first looked up."""

    own = "csv:NAME, jsonl:NAME, conll:NAME, image-folder:NAME, coco-json:NAME, parallel:NAME or `--plugin FILE`"

    def __init__(self, folder: Path) -> None:
        super().__init__("data", "a dropbench.tasks.data.Dataset", lambda item: isinstance(item, Dataset), "data")
        self._cards = {card.stem: card for card in sorted(folder.glob("*.yaml"))}

    def add(self, name: str, target: Dataset | str, *aliases: str, help: str = "", **facts: Any) -> None:
        """Register a set, and its synthetic twin as an alias, with the facts of a card."""
        if isinstance(target, Dataset):
            target = target.model_copy(update={"name": name})
            facts = {"kind": target.kind, "classes": target.classes, **facts}
            aliases = tuple({*aliases, *([name + SYNTHETIC] if target.synthetic else [])})
            help = help or target.help
        super().add(name, target, *aliases, help=help, **facts)

    def register(self, name: str, *aliases: str, help: str = "", **facts: Any) -> Callable[[Any], Any]:
        """Return a decorator of a reader, which registers a set with one layout.

        Args:
            name: the set, and the folder of its files.
            aliases: other names.
            help: default: the first line of the docstring.
            facts: `kind` (the task that reads the set), `files` (of the layout), and other fields of `Dataset`.
        """

        def decorate(reader: Any) -> Any:
            text = help or (reader.__doc__ or "").strip().split("\n")[0]
            files = facts.pop("files", ())
            layout = Layout(files=files, reader=f"{reader.__module__}:{reader.__qualname__}")
            fields = {"name": name, "folder": name, "help": text, "layouts": (layout,), **facts}
            self.add(name, validated(Dataset, fields, f"data '{name}'"), *aliases)
            return reader

        return decorate

    def entry(self, name: str) -> Entry:
        """Return the entry of a set or its synthetic twin; raise InputError if it is unknown or its card is invalid."""
        if name not in self:
            for card in self._cards:
                self._parse(card)  # the error suggests synthetic twins, too
        return super().entry(name)

    def _parse(self, name: str) -> None:
        """Register the set of a card unless it is registered, and its synthetic twin as an alias."""
        if name not in self._cards or name in self._entries:
            return
        dataset = read_card(self._cards[name])
        facts = {"kind": dataset.kind, "classes": dataset.classes}
        # Bypass `add`: a card belongs to no plug-in, even if a plug-in that is being loaded looks it up first.
        self._entries[name] = Entry(name, dataset.help, dataset, facts, plugin=None)
        if dataset.synthetic:
            self._aliases[name + SYNTHETIC] = name

    def __contains__(self, name: object) -> bool:
        """Return whether a set is registered; a package's set gets its synthetic twin when that is looked up."""
        if not super().__contains__(name) and isinstance(name, str) and name.endswith(SYNTHETIC):
            base = name.removesuffix(SYNTHETIC)
            self._aliases |= {name: base} if base in self and self.get(base).synthetic else {}
        return self._has(name)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._cards, *(name for name in super().__iter__() if name not in self._cards)])

    def _has(self, name: object) -> bool:
        if isinstance(name, str):
            labeled = LABELED.fullmatch(name)
            self._parse(labeled[1] if labeled else name.removesuffix(SYNTHETIC))
            if labeled and labeled[1] in self._entries:
                self._aliases[name] = labeled[1]
        return super()._has(name)


def read_card(file: Path) -> Dataset:
    """Read the card of a data set; raise InputError if it is not valid YAML, or a key or a value is wrong."""
    content = read_yaml(file)
    if not isinstance(content, dict) or "name" in content:
        raise InputError(f"{file}: expected a mapping without the key name; the set is named after the file")
    dataset = validated(Dataset, {**content, "name": file.stem}, file)
    if missing := [key for key in ("origin", "home", "licence", "splits") if not getattr(dataset, key)]:
        raise InputError(f"{file}: {', '.join(missing)}: fields required")
    return dataset


DATASETS = Catalog(Path(__file__).parent / "cards")
