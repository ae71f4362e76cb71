"""The image classification sets of DropKey, section 4.1, and the small ones for a first run."""

from __future__ import annotations

from tasks.data.dataset import Dataset, Layout, Published

KIND = "image-classification"
CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR_AUTHOR = "Krizhevsky (2009)"
CIFAR_ORIGIN = f"{CIFAR_AUTHOR}, Learning Multiple Layers of Features from Tiny Images; binary or Python version"
DEV_FROM_TRAIN = "test as published; dev is 10 % of the published train"
DEV_FROM_FOLDERS = "val is the test split; dev is 10 % of train"
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
FOLDERS = "tasks.data.image_folder:read"

SETS = (
    Dataset(
        name="digits",
        help="handwritten digits of 8x8 pixels; comes with scikit-learn",
        kind=KIND,
        folder="digits",
        layouts=(Layout(("digits.csv.gz",), "tasks.data.digits:read"),),
        classes=10,
        class_names=tuple("0123456789"),
        origin="Alpaydin and Kaynak (1998), the test part; installed with scikit-learn",
        home="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
        licence="CC BY 4.0",
        splits="one file, so 70 % train, 10 % dev, 20 % test",
        published=(Published("all", 1797, "scikit-learn"),),
        package="sklearn/datasets/data",
    ),
    Dataset(
        name="cifar10",
        help="photographs of 32x32 pixels, 10 classes",
        kind=KIND,
        folder="cifar10",
        layouts=(
            Layout(
                (*(f"{batch}.bin" for batch in BATCHES), "test_batch.bin", "batches.meta.txt"),
                "tasks.data.cifar_binary:read_cifar10",
                ("cifar-10-batches-bin",),
            ),
            Layout(
                (*BATCHES, "test_batch", "batches.meta"),
                "tasks.data.cifar_python:read_cifar10",
                ("cifar-10-batches-py",),
            ),
        ),
        classes=10,
        origin=CIFAR_ORIGIN,
        home=CIFAR_PAGE,
        licence="not stated",
        splits=DEV_FROM_TRAIN,
        published=(Published("train", 50000, CIFAR_AUTHOR), Published("test", 10000, CIFAR_AUTHOR)),
        synthetic="tasks.data.synthetic_images:cifar10",
    ),
    Dataset(
        name="cifar100",
        help="photographs of 32x32 pixels, 100 classes",
        kind=KIND,
        folder="cifar100",
        layouts=(
            Layout(
                ("train.bin", "test.bin", "fine_label_names.txt"),
                "tasks.data.cifar_binary:read_cifar100",
                ("cifar-100-binary",),
            ),
            Layout(("train", "test", "meta"), "tasks.data.cifar_python:read_cifar100", ("cifar-100-python",)),
        ),
        classes=100,
        origin=CIFAR_ORIGIN,
        home=CIFAR_PAGE,
        licence="not stated",
        splits=DEV_FROM_TRAIN,
        published=(Published("train", 50000, CIFAR_AUTHOR), Published("test", 10000, CIFAR_AUTHOR)),
        synthetic="tasks.data.synthetic_images:cifar100",
    ),
    Dataset(
        name="imagenet",
        help="ImageNet-1k (ILSVRC 2012), a folder a class",
        kind=KIND,
        folder="imagenet",
        layouts=(Layout(("train/", "val/"), FOLDERS), Layout(("train/", "test/"), FOLDERS)),
        classes=1000,
        origin="Deng et al. (2009), Russakovsky et al. (2015); validation images sorted into class folders",
        home="https://www.image-net.org/download.php",
        licence="non-commercial research, after registration",
        splits=DEV_FROM_FOLDERS,
        published=(
            Published("train", 1281167, "Russakovsky et al. (2015)"),
            Published("test", 50000, "Russakovsky et al. (2015), its validation set"),
        ),
        synthetic="tasks.data.synthetic_images:image_folders",
    ),
    Dataset(
        name="tiny-imagenet",
        help="200 classes of ImageNet at 64x64 pixels",
        kind=KIND,
        folder="tiny-imagenet",
        layouts=(Layout(("train/", "val/"), FOLDERS, ("tiny-imagenet-200",)),),
        classes=200,
        origin="Stanford CS231n; archive tiny-imagenet-200",
        home="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        licence="that of ImageNet",
        splits=DEV_FROM_FOLDERS,
        published=(
            Published("train", 100000, "Stanford CS231n"),
            Published("test", 10000, "Stanford CS231n, its val folder"),
        ),
        synthetic="tasks.data.synthetic_images:tiny_imagenet",
    ),
)
