"""The detection set of DropKey, section 4.2."""

from __future__ import annotations

from tasks.data.dataset import Dataset, Layout, Published

KIND = "object-detection"
AUTHOR = "Lin et al. (2014), the project's page"

SETS = (
    Dataset(
        name="coco",
        help="COCO 2017: photographs with boxes, 80 classes",
        kind=KIND,
        folder="coco",
        layouts=(
            Layout(
                (
                    "annotations/instances_train2017.json",
                    "annotations/instances_val2017.json",
                    "train2017/",
                    "val2017/",
                ),
                "tasks.data.coco:read",
            ),
        ),
        classes=80,
        origin="Lin et al. (2014), Microsoft COCO: Common Objects in Context; the 2017 split",
        home="https://cocodataset.org/#download",
        licence="annotations CC BY 4.0; the images have licences of their own",
        splits="val2017 is the test split; dev is a tenth of train2017, 5,000 images at most",
        published=(Published("train", 118_287, AUTHOR), Published("test", 5_000, AUTHOR)),
        synthetic="tasks.data.synthetic_boxes:coco",
    ),
)
