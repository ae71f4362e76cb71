"""The set of persons and objects of DropKey, section 4.3."""

from __future__ import annotations

from tasks.data.dataset import Dataset, Layout, Published

KIND = "interaction-detection"
FILES = ("trainval_hico.json", "test_hico.json", "corre_hico.npy")
IMAGES = ("images/train2015/", "images/test2015/")
READER = "tasks.data.hico:read"

SETS = (
    Dataset(
        name="hico-det",
        help="HICO-DET: what persons do with objects, 117 verbs with 80 objects",
        kind=KIND,
        folder="hico_det",
        layouts=(
            Layout((*(f"annotations/{file}" for file in FILES), *IMAGES), READER),
            Layout((*FILES, *IMAGES), READER),
            Layout((*FILES[1:], "rare_split.json", "hico_list_vb.txt", "hico_list_hoi.txt"), READER),
        ),
        classes=600,
        origin="Chao et al. (2018), Learning to Detect Human-Object Interactions; annotations as QPIC reads them",
        home="https://github.com/hitachi-rd-cv/qpic#hico-det",
        licence="not stated",
        splits="test as published; dev is a tenth of trainval; the last layout has test annotations alone",
        published=(Published("test", 9_546, "test_hico.json, as QPIC reads it,"),),
        synthetic="tasks.data.synthetic_pairings:hico",
    ),
)
