from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from pydantic import Field
from torch import Tensor

from dropbench.harness.attention.call import Call
from dropbench.harness.attention.reference.units import Rescale, Unit
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.drop import AttentionDrop, UnitDrop
from dropbench.harness.regularizers.spec import (
    ParsedSpec,
    Scalar,
    build_regularizer,
    complete_spec,
    describe_parameters,
    parse_spec,
    part_names,
    same_regularizer,
    spec_label,
    strengths,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dropkey", ("dropkey", {})),
        ("dropkey:", ("dropkey", {})),
        ("dropkey:ratio=0.3", ("dropkey", {"ratio": 0.3})),
        ("dropkey: ratio = 0.3 , window = 2 ", ("dropkey", {"ratio": 0.3, "window": 2})),
        ("dropkey:ratio=0.3,schedule=decreasing", ("dropkey", {"ratio": 0.3}, "decreasing")),
        ("dropkey:align=finetune,ratio=0.3", ("dropkey", {"ratio": 0.3}, None, "finetune")),
        ("mine:on=true,off=False,text=a:b=c", ("mine", {"on": True, "off": False, "text": "a:b=c"})),
        ("mine:size=3,share=1e-3", ("mine", {"size": 3, "share": 1e-3})),
        (f"mine:size={'9' * 4000}", ("mine", {"size": math.inf})),
    ],
)
def test_parse(text: str, expected: tuple[str, dict[str, Scalar]]) -> None:
    spec = parse_spec(text)
    assert spec == ParsedSpec(*expected)
    assert [type(value) for value in spec.params.values()] == [type(value) for value in expected[1].values()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dropkey:ratio", "'ratio' is not of the form key=value"),
        ("dropkey:=0.3", "'=0.3' is not of the form key=value"),
        ("dropkey:ratio=", "'ratio=' is not of the form key=value"),
        ("dropkey:ratio=0.1,ratio=0.2", "'ratio' is given twice"),
    ],
)
def test_what_cannot_be_parsed(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_spec(text)


@given(
    ratio=st.floats(0.0, 1.0, exclude_max=True), window=st.integers(1, 20),
    unit=st.sampled_from(["element", "column", "block", "cross"]), rescale=st.sampled_from(["renormalize", "inverse"]),
)  # fmt: skip
def test_a_label_reads_back_as_the_same_spec(ratio: float, window: int, unit: Unit, rescale: Rescale) -> None:
    spec = complete_spec("dropkey", {"ratio": ratio, "window": window, "unit": unit, "rescale": rescale})
    assert complete_spec(*parse_spec(spec.label())[:2]) == spec
    assert spec.build() == UnitDrop(ratio=ratio, window=window, unit=unit, rescale=rescale)


@pytest.mark.parametrize("name", list(REGULARIZERS))
def test_every_regularizer_has_a_complete_spec(name: str) -> None:
    """The spec of each registered regularizer has all of its parameters, and builds it again."""
    spec = complete_spec(name)
    assert spec == complete_spec(name, spec.params)
    assert spec.build() == build_regularizer(name)
    assert complete_spec(*parse_spec(spec.label())[:2]) == spec


def test_defaults_are_filled_in() -> None:
    """Equal regularizers have equal specs, however they are written."""
    assert complete_spec("dropkey").params == {
        "ratio": 0.1, "unit": "element", "window": 1, "rescale": "renormalize",
    }  # fmt: skip
    assert complete_spec("dropkey", {"ratio": 0.1}) == complete_spec("dropkey")
    assert complete_spec("none").label() == "none"


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("dropky", {}, "unknown regularizer 'dropky': did you mean dropkey or "),
        ("mine", {}, " (your own: `--plugin FILE`)"),
        ("dropkey", {"rate": 0.3}, "unknown parameter of dropkey 'rate': did you mean ratio"),
        ("dropkey", {"ratio": 1.0}, "regularizer dropkey: ratio=1.0: input should be less than 1"),
        ("dropkey", {"ratio": -0.1}, "regularizer dropkey: ratio=-0.1: input should be greater than or equal to 0"),
        ("dropkey", {"ratio": float("nan")}, "regularizer dropkey: ratio=nan: input should be a finite number"),
        ("dropkey", {"ratio": "much"}, "regularizer dropkey: ratio=much: input should be a valid number"),
        ("dropkey", {"window": 0}, "window=0: input should be greater than or equal to 1"),
        ("dropkey", {"window": 1.5}, "window=1.5: input should be a valid integer"),
        ("dropkey", {"unit": "row"}, "unit=row: input should be 'element', 'column', 'block' or 'cross'"),
        ("dropkey", {"name": "x"}, "unknown parameter of dropkey 'name'"),
        ("none", {"ratio": 0.3}, "unknown parameter of none 'ratio'"),
        ("none", {"window": 2}, "unknown parameter of none 'window'"),
    ],
)
def test_what_does_not_fit(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        build_regularizer(name, **params)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """Registers things for the time of a test."""
    monkeypatch.setattr(REGULARIZERS, "_entries", dict(REGULARIZERS._entries))
    return REGULARIZERS.add


class DropFirst(AttentionDrop):
    """Drops the first keys."""

    reach: int = Field(default=1, ge=0)

    def sample_drop_mask(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        return torch.arange(shape[3], device=device).expand(1, 1, 1, -1) < self.reach


def test_one_class_is_all_that_a_new_one_needs(registered: Callable[[str, Any], None]) -> None:
    """It has its own parameters and those of its base, and none that it does not heed."""
    registered("drop-first", DropFirst)
    spec = complete_spec("drop-first", {"reach": 2})
    assert spec.params == {"ratio": 0.1, "rescale": "renormalize", "reach": 2}
    assert spec.build() == DropFirst(reach=2)
    with pytest.raises(InputError, match="unknown parameter of drop-first 'rech': did you mean reach"):
        build_regularizer("drop-first", rech=2)
    with pytest.raises(InputError, match="unknown parameter of drop-first 'window'"):
        build_regularizer("drop-first", window=2)


@pytest.mark.parametrize("target", [dict, len, lambda **params: UnitDrop(**params)])
def test_what_is_no_regularizer(target: Any, registered: Callable[[str, Any], None]) -> None:
    registered("strange", target)
    with pytest.raises(InputError, match=r"regularizer strange: expected a subclass of harness\.Regularizer"):
        build_regularizer("strange")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32])
def test_a_mask_that_is_not_boolean_is_refused(dtype: torch.dtype) -> None:
    class Numbers(AttentionDrop):
        def sample_drop_mask(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
            return torch.ones(shape, dtype=dtype)

    q = torch.zeros(1, 1, 2, 4)
    with pytest.raises(InputError, match=f"Numbers.sample_drop_mask: expected a boolean drop mask, got {dtype}"):
        Numbers().attend(Call(q, q, q), Site("a", "cross", 0, 1, heads=1))


@pytest.mark.parametrize("layer", [-1, 2])
def test_a_layer_outside_of_its_stack_is_refused(layer: int) -> None:
    with pytest.raises(InputError, match=rf"site 'a': layer={layer}: expected 0 to 1 \(depth - 1\)"):
        Site("a", "cross", layer, 2, heads=1)


@pytest.mark.parametrize(
    ("name", "params", "label"),
    [
        ("none", {}, "none"),
        ("dropkey", {"ratio": 0.3, "window": 2}, "dropkey:ratio=0.3,window=2"),
        ("layerdrop+drophead", {"layerdrop.ratio": 0.2, "drophead.ratio": 0.1},
         "layerdrop:ratio=0.2 + drophead:ratio=0.1"),
        ("drophead + r-drop", {"r-drop.alpha": 1}, "drophead + r-drop:alpha=1"),
        ("mine+dropkey", {"mine.depth": 2, "dropkey.schedule": "decreasing"},
         "mine:depth=2 + dropkey:schedule=decreasing"),
        ("gone", {"part.size": 2}, "gone:part.size=2"),
    ],
)  # fmt: skip
def test_labels(name: str, params: dict[str, Any], label: str) -> None:
    """A label is the argument of the command line, with the given parameters only, also for unknown names."""
    assert spec_label(name, params) == label


def test_strengths_are_what_schedules_multiply() -> None:
    assert strengths("dropkey") == {"ratio"}
    assert strengths("drophead+r-drop") == {"drophead.ratio", "r-drop.alpha"}
    assert strengths("none") == strengths("learned-dropout") == set()


def test_parameters_are_described_with_their_defaults() -> None:
    assert describe_parameters("drophead")["ratio"] == {"default": 0.2, "help": "drop ratio"}
    assert describe_parameters("none") == {}
    with pytest.raises(InputError, match="unknown regularizer 'dropky'"):
        describe_parameters("dropky")


def test_a_registered_composition_is_its_parts() -> None:
    written = "r-drop:alpha=1.0 + hiddencut:unit=element,ratio=0.1 + dropkey:unit=column,ratio=0.1"
    assert complete_spec("hiddenkey") == complete_spec(*parse_spec(written)[:2])
    assert part_names("hiddenkey + drophead") == ["dropkey", "hiddencut", "r-drop", "drophead"]
    assert same_regularizer("hiddenkey", "hiddencut+r-drop+dropkey")
    assert not same_regularizer("dropkey", "drophead+dropkey")
    assert strengths("unidrop") == {"dropout.ratio", "layerdrop.ratio", "token-dropout.ratio"}
    assert {*describe_parameters("hiddenkey")} >= {"dropkey.ratio", "hiddencut.unit", "r-drop.alpha"}


def test_parts_of_a_registered_composition_have_parameters() -> None:
    alone = parse_spec("unidrop:layerdrop.ratio=0.4,layerdrop.schedule=increasing")
    assert complete_spec(*alone[:2]).params["layerdrop.ratio"] == 0.4
    assert complete_spec(*alone[:2]).params["layerdrop.schedule"] == "increasing"
    assert complete_spec(*alone[:2]).params["dropout.ratio"] == 0.1
    joined = parse_spec("drophead + hiddenkey:dropkey.ratio=0.2")
    assert complete_spec(*joined[:2]).params["dropkey.ratio"] == 0.2
    assert complete_spec(*joined[:2]).name == "drophead+dropkey+hiddencut+r-drop"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hiddenkey:ratio=0.3", "parameter ratio: expected PART.PARAMETER, such as dropkey.ratio"),
        ("hiddenkey:drophead.ratio=0.3", "parameter drophead.ratio: expected PART.PARAMETER, such as dropkey.ratio"),
        ("hiddenkey:dropkey.raito=0.3", "unknown parameter of dropkey 'raito': did you mean ratio"),
        ("hiddenkey + dropkey", "'dropkey' is given twice"),
    ],
)
def test_a_wrong_registered_composition_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        complete_spec(*parse_spec(text)[:2])
