"""What is known of a published data set before any of its files is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SYNTHETIC = "-synthetic"
Unit = Literal["rows", "tokens"]


@dataclass(frozen=True)
class Layout:
    """One published file layout of a set, and what reads it.

    Attributes:
        files: names relative to the set's folder; a name that ends in "/" is a folder of files, and one with a star
            stands for all files that match it, one at least.
        reader: "module:function", called with the `Source`.
        subfolders: folders of the official archives, tried besides the set's folder itself.
    """

    files: tuple[str, ...]
    reader: str
    subfolders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Published:
    """A size that a paper or a project page states.

    Attributes:
        split: "train", "dev", "test" or "all".
        count: how many there are.
        where: who states it.
        unit: of what.
        with_left_out: whether it counts what the files have but the reader leaves out, such as rows without a label.
    """

    split: str
    count: int
    where: str
    unit: Unit = "rows"
    with_left_out: bool = False


@dataclass(frozen=True)
class Dataset:
    """A data set by name: where it lies, what it is made of, and where to get it.

    Attributes:
        kind: what the reader returns: "text-classification", "sequence-labelling", …
        folder: below the data root.
        layouts: the accepted layouts, the preferred one first.
        classes: number of classes of the full set; 0 where there are none.
        class_names: in the order of their numbers, where no file of the set names them.
        columns: what a tagged set gives for every word beside its tag.
        origin: who made it, and which copy has this layout, in words.
        home: where to get it.
        splits: how train, dev and test come about, in words.
        synthetic: "module:function" that writes a small set of the first layout (folder, dataset, seed); "" for none.
        package: "package/sub/folder" of an installed package that has the files; "" for a set of the user's.
    """

    name: str
    help: str
    kind: str
    folder: str
    layouts: tuple[Layout, ...]
    classes: int
    origin: str
    home: str
    licence: str
    splits: str
    published: tuple[Published, ...] = ()
    class_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    synthetic: str = ""
    package: str = ""
