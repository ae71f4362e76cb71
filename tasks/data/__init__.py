"""Data sets: their names, where they lie, and their rows. Nothing here imports NumPy before a set is read."""

from tasks.data.catalog import DATASETS
from tasks.data.dataset import SYNTHETIC, Dataset, Layout, Published
from tasks.data.locate import Source, locate, parse_folders
from tasks.data.read import Data, read, read_any

__all__ = [
    "DATASETS",
    "SYNTHETIC",
    "Data",
    "Dataset",
    "Layout",
    "Published",
    "Source",
    "locate",
    "parse_folders",
    "read",
    "read_any",
]
