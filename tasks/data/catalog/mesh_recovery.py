"""The set of bodies of DropKey, section 4.4."""

from __future__ import annotations

from tasks.data.dataset import Dataset, Layout

KIND = "mesh-recovery"

SETS = (
    Dataset(
        name="humbi",
        help="HUMBI: people in many cameras, with the mesh of their body",
        kind=KIND,
        folder="humbi",
        layouts=(
            Layout(
                ("subject_*/body/intrinsic.txt", "subject_*/body/extrinsic.txt", "./", "body_model/"),
                "tasks.data.humbi:read",
            ),
        ),
        classes=0,
        origin="Yu et al. (2020), HUMBI: A Large Multiview Dataset of Human Body Expressions; its bodies",
        home="https://humbi-data.net; body_model is SMPL's (https://smpl.is.tue.mpg.de), or a free mesh: docs/data.md",
        licence="for research, on request; SMPL has a licence of its own",
        splits="120 of 414 subjects are test, a twentieth of the others dev, by a fixed seed",
        synthetic="tasks.data.synthetic_bodies:humbi",
    ),
)
