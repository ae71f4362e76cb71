"""Data sets: their names, their files and their rows. NumPy is not imported before a set is read."""

from dropbench.harness.trials.trial import SYNTHETIC
from dropbench.tasks.data.dataset import DATASETS, Dataset, Layout, Published
from dropbench.tasks.data.locate import Source, locate, parse_folders
from dropbench.tasks.data.read import Data, read, read_any

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
