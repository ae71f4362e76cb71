"""Readers of a user's own data. All raise InputError, which names file and line, for what does not parse or fit."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.files import read_bytes
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.card import CARD, Card
from dropbench.tasks.data.classification import ImageClassificationData
from dropbench.tasks.data.detection.annotations import AnnotatedSplit
from dropbench.tasks.data.detection.coco import BoxedImage, DetectionData, read_annotations
from dropbench.tasks.data.images.image_folder import (
    ANNOTATIONS,
    annotated_images,
    class_folders,
    class_names,
    file_split,
)
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.own.tables import FILES, open_files
from dropbench.tasks.data.splits import SPLITS, overlap_notes, three_splits
from dropbench.tasks.data.text.conll import read_columns
from dropbench.tasks.data.text.tagged import TaggedData, tagged_data
from dropbench.tasks.data.translation.parallel import PairFiles, ParallelText


def read_conll(source: Source) -> TaggedData:
    """Read tagged sentences; the group of a sentence is that of its first word."""
    card, files = open_files(source)
    given = {split: read_columns(path, card.columns, card.scored)[0] for split, [path] in files.items()}
    groups = {split: [row[0] for row in rows.columns[card.group]] for split, rows in given.items() if card.group}
    splits, split_note = three_splits(given, card.percent, groups, "your files", source.split_seed)
    notes = (split_note or FILES, *overlap_notes(rows.words for rows in splits))
    return tagged_data(source, splits, notes, card.scored)


def _split_images(card: Card, given: Mapping[Split, Any], seed: int) -> tuple[tuple[Any, Any, Any], list[str]]:
    """Return train, dev and test, and notes. A file is read only if one of another split has its size."""

    def paths(rows: Any) -> list[Path]:
        files = rows.files() if isinstance(rows, AnnotatedSplit) else rows.images
        return [files.path(row) for row in range(len(files))]

    given_paths = {split: paths(rows) for split, rows in given.items() if card.group}
    groups = {split: [path.name.partition(card.group)[0] for path in files] for split, files in given_paths.items()}
    if card.group and not any(card.group in path.name for files in given_paths.values() for path in files):
        raise InputError(f"{CARD}: group '{card.group}' is in no file's name: correct or drop it")
    splits, note = three_splits(given, card.percent, groups, "your files", seed)
    sizes = [{path: _size(path) for path in paths(rows)} for rows in splits]
    common = {size for one, other in combinations(sizes, 2) for size in {*one.values()} & {*other.values()}}
    keys = ([sha256(read_bytes(path)).digest() for path in part if part[path] in common] for part in sizes)
    return splits, [note or FILES, *overlap_notes(keys)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def read_image_folder(source: Source) -> ImageClassificationData:
    """Read images in a folder per class, or in Tiny-ImageNet's published layout; dev and test may lack classes."""
    card, folders = open_files(source)
    skipped, left_out = list[Path](), list[str]()
    # As in Tiny-ImageNet's archive, whose test images have no classes.
    annotated = {split for split, [folder] in folders.items() if (folder / ANNOTATIONS).is_file()} - {"train"}
    names = {split: class_names(folder, skipped) for split, [folder] in folders.items() if split not in annotated}
    if annotated and names.get("test") == ("images",):
        del names["test"], folders["test"]
        left_out = ["the folder test left out, as its images have no classes"]
    classes = card.classes or names["train"]
    if len(classes) < 2:
        raise InputError(f"{source.folder}: {len(classes)} class: expected two or more, with a folder for each")
    for split, present in names.items():
        if unknown := {*present} - {*classes} or ({*classes} - {*present} if split == "train" else ()):
            where = CARD if card.classes else "train"
            raise InputError(
                f"{folders[split][0]}: class '{min(unknown)}' is in the folder or in {where}, but not in both"
            )
    given = {
        split: file_split(folder, (annotated_images if split in annotated else class_folders)(folder, classes, skipped))
        for split, [folder] in folders.items()
    }
    splits, notes = _split_images(card, given, source.split_seed)
    notes += left_out
    if count := len({*skipped} - {source.folder / CARD}):
        notes.append(f"{count_of(count, 'file or folder', 'files or folders')} skipped, not images")
    return ImageClassificationData(source.name, classes, *splits, tuple(notes))


def read_coco_json(source: Source) -> DetectionData:
    """Read images with boxes in COCO's format."""
    card, files = open_files(source)
    given, notes, categories = dict[Split, AnnotatedSplit[BoxedImage]](), list[str](), dict[int, str]()
    for split, [path, folder] in files.items():
        names, images, left_out = read_annotations(path, folder)
        if names != (categories := categories or names):
            raise InputError(f"{path}: categories differ from those of another split: expected the same in all")
        given[split] = AnnotatedSplit(path, folder, images)
        if left_out:
            boxes = f"{count_of(left_out, 'box', 'boxes')} of {path.name}"
            notes.append(f"{boxes} outside of their image, or narrower than a pixel, left out")
    splits, split_notes = _split_images(card, given, source.split_seed)
    classes = tuple(categories.values())
    return DetectionData(source.name, classes, *splits, (*split_notes, *notes), category_ids=tuple(categories))


def read_parallel(source: Source) -> ParallelText:
    """Return raw parallel text, which is read on access, and here for its duplicates."""
    card, files = open_files(source)
    given = {split: PairFiles(first, second) for split, [first, second] in files.items()}
    splits, split_note = three_splits(given, card.percent, whole="your files")
    first, second = (path.name.removesuffix(".gz").rpartition(".")[2] for path in files["train"])
    notes = (split_note or FILES, *overlap_notes((pair for pair in files.pairs() if all(pair)) for files in splits))
    return ParallelText(source.name, first, second, dict(zip(SPLITS, splits, strict=True)), "raw", notes)
