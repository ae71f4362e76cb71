"""Hostile plug-ins, in every command that loads them, and checkpoints whose values or bytes are others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dropbench.harness.registry import PLUGIN_MODULES
from dropbench.harness.trials import plugins
from dropbench.harness.trials.trial import Trial
from tests.fuzz.hostile import TEXTS, call, changed, paths_of, values
from tests.fuzz.test_data_files import damaged
from tests.harness.training.test_checkpoint_fit import resumed, stopped
from tests.harness.trials.test_plugins import REGISTRIES
from tests.jobs.workplace import PLUGIN

__all__ = ["stopped"]
HEAD = "from dropbench import ANALYSES, DATASETS, MODELS, REGULARIZERS, TASKS, AttentionDrop, Dataset, Layout\n"
STATEMENTS = (
    "raise ValueError('x')", "raise SystemExit(3)", "raise GeneratorExit", "1 / 0", "import nothing_of_this_name",
    "from dropbench import nothing", "x = (", "\tx", "'\0'", "assert False", "class E(BaseException): pass\nraise E",
    "def f(): f()\nf()", "REGULARIZERS.add({0!r}, {1!r})", "MODELS.add({0!r}, {1!r})", "TASKS.add({0!r}, {1!r})",
    "ANALYSES.add({0!r}, {1!r})", "DATASETS.add({0!r}, {1!r})", "REGULARIZERS.add({0!r}, {2!r})",
    "@REGULARIZERS.register\nclass A(AttentionDrop): pass", "@REGULARIZERS.register({0!r})\nclass A: pass",
    "@REGULARIZERS.register({0!r})\nclass A(AttentionDrop): pass",
    "@REGULARIZERS.register({0!r})\nclass A(AttentionDrop):\n    ratio: str = 3",
    "@REGULARIZERS.register({0!r}, help={2!r})\ndef f(**_): raise KeyError",
    "MODELS.register({0!r}, tasks={2!r})(lambda name, options: None)", "MODELS.register({0!r}, sample={2!r})(print)",
    "TASKS.register({0!r})(object)", "TASKS.register({0!r})(type('T', (), dict(metrics={2!r}, name={1!r})))",
    "DATASETS.add({0!r}, Dataset(name={0!r}, help='', kind={1!r}, folder={1!r}, origin='', home='', licence='', "
    "splits='', layouts=(Layout(files=({1!r},), reader={0!r}),)))",
)  # fmt: skip
COMMANDS = (
    ["list", "regularizers"], ["list", "regularizers", "x"], ["list", "models"], ["list", "sites", "x"],
    ["list", "tasks"], ["list", "data"], ["data", "check", "x", "--quick"], ["results"], ["status"],
    ["report", "tiny.yaml"], ["enqueue", "tiny.yaml"], ["enqueue", "tiny.yaml", "--regularizer", "x", "--seeds", "1"],
)  # fmt: skip

fuzzed = settings(suppress_health_check=[HealthCheck.too_slow], print_blob=False, deadline=None)
pytestmark = pytest.mark.slow


@contextmanager
def forgotten() -> Iterator[None]:
    """Forget the plug-ins that are loaded in the block."""
    present = [(dict(registry._entries), dict(registry._aliases)) for registry in REGISTRIES]
    loaded, modules = dict(plugins._loaded), set(PLUGIN_MODULES)
    try:
        yield
    finally:
        plugins._loaded = loaded
        PLUGIN_MODULES.intersection_update(modules)
        for registry, (entries, aliases) in zip(REGISTRIES, present, strict=True):
            registry._entries, registry._aliases = entries, aliases


@settings(fuzzed, max_examples=100)
@given(
    draw=st.data(),
    statements=st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=3),
    command=st.sampled_from(COMMANDS),
)
def test_plug_ins(campaign: Path, draw: st.DataObject, statements: list[str], command: list[str]) -> None:
    names = st.sampled_from(["x", "x", "dropkey", *TEXTS])
    lines = [text.format(draw.draw(names), draw.draw(names), draw.draw(values)) for text in statements]
    Path("hostile.py").write_bytes((HEAD + "\n".join(lines)).encode("utf-8", "surrogatepass"))
    shutil.copy("dropbench.db", "before.db")
    with forgotten(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("DROPBENCH_DB", "sqlite:///before.db")
        patch.setenv("DROPBENCH_PLUGINS", str(PLUGIN))  # to which the command adds the file
        call(*command, "--plugin", "hostile.py")


@settings(fuzzed, max_examples=50)
@given(
    draw=st.data(),
    kind=st.sampled_from(["replace", "replace", "remove", "rename", "bytes"]),
    new=values | st.sampled_from([torch.zeros(3), torch.full((2, 2), torch.nan), torch.tensor(7), torch.zeros(0)]),
)
def test_checkpoints(
    stopped: tuple[Path, Trial], tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject, kind: str, new: Any
) -> None:
    runs, trial = Path(shutil.copytree(stopped[0], tmp_path_factory.mktemp("copy") / "runs")), stopped[1]
    newest = runs / trial.id / "checkpoint" / "step-000000012.pt"
    if kind == "bytes":
        newest.write_bytes(damaged(newest.read_bytes(), draw))
    else:
        state = torch.load(newest, weights_only=True)
        torch.save(changed(state, draw.draw(st.sampled_from(list(paths_of(state)))), kind, new), newest)
    start, problems = resumed(runs, trial)
    assert (start, bool(problems)) in ((10, True), (12, False))
