"""The files of docs/plug-ins.md are written, and its commands run as they stand there."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from sklearn.datasets import load_iris

from tests.docs.test_commands import run_commands
from tests.harness.trials.test_plugins import restored  # noqa: F401 - used by pytest
from tests.paths import DOCS

TEXT = (DOCS / "plug-ins.md").read_text(encoding="utf-8")
SECTIONS = {section.partition("\n")[0]: section for section in TEXT.split("\n## ")}


def write_data(folder: Path) -> None:
    """Write the two data sets that the page describes."""
    generator = random.Random(0)
    (folder / "sums").mkdir(parents=True)
    (folder / "reviews").mkdir()
    rows = [" ".join(generator.choices("0123456789", k=6)) for _ in range(100)]
    (folder / "sums/rows.txt").write_text("\n".join(rows))
    (folder / "flowers").mkdir()
    iris = load_iris()
    rows_of_iris = zip(iris.data.tolist(), iris.target_names[iris.target], strict=True)
    lines = (",".join([*map(str, sizes), name]) for sizes, name in rows_of_iris)
    (folder / "flowers/flowers.csv").write_text("\n".join(lines))
    reviews = [f"{label}\t{label} film {n}" for n in range(20) for label in ("good", "bad")]
    for name in ("train", "test"):
        (folder / f"reviews/{name}.tsv").write_text("\n".join(reviews))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sections", "printed"),
    [
        (["A model"], "encoder.layers.1.self_attn  encoder-self"),
        (["A data set"], "train    36        2"),
        (["A task", "A suite"], "1 compared"),
        (["An optimizer or an augmentation"], "vit-digits"),
    ],
    ids=lambda value: str(value),
)
def test_the_page_runs(sections: list[str], printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(tmp_path / "data")
    text = "".join(SECTIONS[section] for section in sections)
    for name, content in re.findall(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(content)
    assert printed in run_commands(text, capsys)


@pytest.mark.parametrize(("name", "most"), [("flowers.py", 45), ("sums.py", 30)])
def test_a_task_of_ones_own_is_short(name: str, most: int) -> None:
    [content] = re.findall(rf"^```python\n# {name}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(content.splitlines()) <= most
