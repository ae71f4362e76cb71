"""How the attention of a family of models is reached: the contract of an adapter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from harness.registry import Registry
from harness.site import Site, SiteKind

if TYPE_CHECKING:
    from torch import nn

ADAPTERS: Registry[type[Adapter]] = Registry("adapter")
"""The fact `library` is the package whose modules an adapter knows; it is imported only for models that have some.

The last one registered is asked first, and what it claims is its: the general ones stand before the special ones.
"""

for _name, _target, _library, _help in (
    ("dropbench", "harness.adapter:OwnModels", "", "models written for DropBench"),
    ("torch", "adapters.torch_attention:TorchModels", "torch", "torch's nn.MultiheadAttention"),
    ("timm", "adapters.timm_models:TimmModels", "timm", "timm's ViT, DeiT, EVA, Swin and VOLO"),
    (
        "transformers",
        "adapters.transformers_models:TransformersModels",
        "transformers",
        "transformers models on its AttentionInterface",
    ),
    ("fairseq", "adapters.fairseq_attention:FairseqModels", "fairseq", "fairseq's MultiheadAttention"),
):
    ADAPTERS.add(_name, _target, help=_help, library=_library)


@dataclass(frozen=True)
class Patch:
    """One module whose attention can be regularised.

    Attributes:
        module: the module.
        site: what it computes, as found now; bound to the module as its attribute `site`.
        patched: the subclass of the module's class whose forward calls `attend`; None where the module does so itself.
        refusal: why it cannot be regularised although the adapter knows it; None where it can.
    """

    module: nn.Module
    site: Site
    patched: type[nn.Module] | None = None
    refusal: str | None = None

    def attach(self) -> None:
        """Make the module call `attend` with the site; doing it again replaces the site."""
        if self.patched is not None:
            self.module.__class__ = self.patched
            self.module.site = self.site  # type: ignore[assignment]

    def detach(self) -> None:
        """Give the module back as it was; nothing to do where it was never attached."""
        self.site.regularizer, self.site.ratio = None, 0.0
        original = getattr(type(self.module), "unpatched", None)
        if original is not None:
            self.module.__class__ = original
            del self.module.site


class Adapter(ABC):
    """Finds the attention modules of a model and knows how each of them comes to call `attend`.

    Most swap a module's class for a subclass that holds the same parameters under the same names and adds no state but
    `site`, so that state_dict, deepcopy, hooks and optimizers never notice. Every adapter passes the contract tests in
    tests/adapters.
    """

    name: ClassVar[str]

    @abstractmethod
    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """The modules that it knows, attached ones too, each once, with the site that they have by the model now."""


class OwnModels(Adapter):
    """Models written for DropBench: their attention modules call `attend` and hold a `site` from the start."""

    name = "dropbench"

    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """Every module with a site of its own; those that other adapters attached are theirs."""
        for module in model.modules():
            site = site_of(module)
            if site is not None:
                yield Patch(module, site)


def patched_class(original: type[nn.Module]) -> Any:
    """Class decorator for adapters: names the class that `unregularize` gives back."""

    def decorate(patched: type[nn.Module]) -> type[nn.Module]:
        patched.unpatched = original  # type: ignore[attr-defined]
        return patched

    return decorate


def site_of(module: nn.Module) -> Site | None:
    """The site that is bound to a module."""
    site = getattr(module, "site", None)
    return site if isinstance(site, Site) else None


def idle(module: nn.Module) -> bool:
    """Whether a patched module may compute what its library does: evaluation, and the site asks for nothing then."""
    return not module.training and unasked(module)


def unasked(module: nn.Module) -> bool:
    """Whether nobody looks at a patched module's attention, or changes it in evaluation."""
    site: Any = module.site
    return all(wish is None for wish in (site.probe, site.module, site.hidden, site.draws or None))


def stack_of(model: nn.Module, path: str) -> str:
    """The path of the outermost nn.ModuleList above a module, as the stack of layers that it lies in; "" for none."""
    from torch.nn import ModuleList

    at = model
    steps = path.split(".") if path else []
    for index, step in enumerate(steps):
        if isinstance(at, ModuleList):
            return ".".join(steps[:index])
        at = getattr(at, step)
    return ""


def place(found: Iterable[tuple[str, SiteKind]]) -> list[tuple[int, int]]:
    """Number the attention modules of a model for the schedules.

    Outlook and self attention of an encoder are counted together, every other kind by itself: the third cross
    attention of a decoder is its layer 3, as the third self attention is.

    Args:
        found: the stack and the kind of each module, in order of execution.

    Returns:
        for each of them its layer, from 0, and the depth: how many layers there are of this kind in this stack.
    """
    seen: dict[tuple[str, str], int] = {}
    places = []
    for stack, kind in found:
        key = (stack, "encoder-self" if kind == "outlook" else kind)
        places.append((key, seen.get(key, 0)))
        seen[key] = places[-1][1] + 1
    return [(layer, seen[key]) for key, layer in places]
