"""The seven plug-ins of docs/your-regularizer.md are short, act as they say, and run in quickstart as printed."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch

from dropbench import MODELS, REGULARIZERS, Passes, regularize, set_progress
from dropbench.harness.regularizers.spec import build_regularizer
from dropbench.harness.trials.plugins import load_plugins
from tests.docs.test_commands import run_commands
from tests.harness.trials.test_plugins import restored  # noqa: F401 - used by pytest
from tests.paths import DOCS

TEXT = (DOCS / "your-regularizer.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
MAX_LINES = 20


@pytest.fixture
def plugins(tmp_path: Path, restored: None) -> dict[str, str]:  # noqa: F811
    """Load the files of the page: name of the file → name of its regularizer."""
    before = {*REGULARIZERS}
    names: dict[str, str] = {}
    for file, content in FILES.items():
        (tmp_path / file).write_text(content)
        load_plugins([tmp_path / file])
        [names[file]] = {*REGULARIZERS} - before - {*names.values()}
    return names


def test_there_is_a_short_one_for_each_kind_of_hook(plugins: dict[str, str]) -> None:
    assert len(FILES) == 7
    assert max(sum(map(bool, content.splitlines())) for content in FILES.values()) <= MAX_LINES
    stages = {build_regularizer(name).stage for name in plugins.values()}
    assert stages == {"keys", "values", "output", "tokens", "layer", "weight", "loss"}


@pytest.mark.parametrize("file", [file for file in FILES if file != "loss.py"])
def test_it_changes_training_alone_and_follows_its_schedule(file: str, plugins: dict[str, str]) -> None:
    images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    plain = MODELS.get("vit-digits")("vit-digits", {}, **MODELS.entry("vit-digits").facts["sample"])
    with pytest.warns(UserWarning, match="changes over steps"):
        model = regularize(copy.deepcopy(plain), plugins[file], over="late@0.5", quiet=True)
    for progress, equal in ((0.0, True), (0.5, False)):
        set_progress(model, progress)
        outputs = []
        # With gradients, as in training: without, torch multiplies weights that are no parameters in another way.
        for each in (plain, model):
            torch.manual_seed(1)
            outputs.append(each.train()(images))
        assert torch.equal(*outputs) == equal
    assert torch.equal(plain.eval()(images), model.eval()(images))


def test_the_loss_has_the_negative_entropy_of_the_predictions(plugins: dict[str, str]) -> None:
    regularizer = build_regularizer(plugins["loss.py"])
    logits = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    passes = Passes(lambda batch: (batch.sum(), batch), logits, [], 0.0)
    passes.loss, passes.logits = logits.sum(), (logits,)
    entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
    torch.testing.assert_close(regularizer.objective(passes), -0.1 * entropy, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_the_page_runs(
    plugins: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    output = run_commands(TEXT, capsys)
    assert "tokens" in output
    assert [name for name in plugins.values() if not re.search(rf"^{name} +\d", output, re.MULTILINE)] == []
