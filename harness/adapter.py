"""How the attention of a family of models is reached: the contract of an adapter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from harness.registry import Registry
from harness.site import Site

if TYPE_CHECKING:
    from torch import nn

ADAPTERS: Registry[type[Adapter]] = Registry("adapter")
"""The fact `library` is the package whose modules an adapter knows; it is imported only for models that have some."""

ADAPTERS.add("dropbench", "harness.adapter:OwnModels", help="models written for DropBench", library="")
ADAPTERS.add("timm", "adapters.timm_models:TimmModels", help="timm's ViT and DeiT", library="timm")


@dataclass(frozen=True)
class Patch:
    """One module whose attention can be regularised.

    Attributes:
        module: the module.
        site: what it computes; bound to the module as its attribute `site`.
        patched: the subclass of the module's class whose forward calls `attend`; None where the module does so itself.
    """

    module: nn.Module
    site: Site
    patched: type[nn.Module] | None = None


class Adapter(ABC):
    """Finds the attention modules of a model and knows, for each class of them, the subclass that calls `attend`.

    A patched class holds the same parameters under the same names and adds no state but `site`, so that state_dict,
    deepcopy, hooks and optimizers never notice. Every adapter passes the contract tests in tests/adapters.
    """

    name: ClassVar[str]

    @abstractmethod
    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """The modules that can be patched, in order of execution; patched ones again, with the site they have."""


class OwnModels(Adapter):
    """Models written for DropBench: their attention modules call `attend` and hold a `site` from the start."""

    name = "dropbench"

    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """Every module with a site whose class was not patched."""
        for module in model.modules():
            if isinstance(getattr(module, "site", None), Site) and not hasattr(type(module), "unpatched"):
                yield Patch(module, module.site)  # type: ignore[arg-type]
