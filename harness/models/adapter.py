"""Adapters: the contract for reaching the attention modules of a family of models, and the modules of their sites."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, ClassVar, cast

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.utils import parametrize

from dropbench.harness.errors import InputError
from dropbench.harness.registry import Registry
from dropbench.harness.regularizers.base import Regularizer, Site, SiteKind
from dropbench.harness.regularizers.output import (
    SiteModule,
    WeightModule,
    output_module,
    read_usual_keys,
    weight_modules,
    write_usual_keys,
)

CHILD = "regularization"
"""The name of a site's module among the children of the module that computes the site."""
USUAL_KEYS = (write_usual_keys, read_usual_keys)
"""The hooks of modules with weight modules."""
ADAPTERS: Registry[type[Adapter]] = Registry("adapter", "a subclass of Adapter", lambda item: hasattr(item, "patches"))
"""The fact `library` is the package whose modules an adapter handles; an adapter is imported only for models that
contain such modules.

Adapters registered later take precedence, so register general adapters before special ones.
"""

ADAPTERS.add(
    "dropbench", "dropbench.harness.models.adapter:OwnModels", help="modules that call dropbench.attend", library=""
)
ADAPTERS.add(
    "any",
    "dropbench.harness.interception.models:AnyModel",
    help="modules that call SDPA or a softmax over keys",
    library="",
)
for _library, _target, _help in (
    ("torch", "torch_attention:TorchModels", "torch's nn.MultiheadAttention"),
    ("timm", "timm_models:TimmModels", "timm's ViT, DeiT, EVA, Swin and VOLO"),
    ("fairseq", "fairseq_attention:FairseqModels", "fairseq's MultiheadAttention"),
):
    ADAPTERS.add(_library, f"dropbench.adapters.libraries.{_target}", help=_help, library=_library)

SOURCES: Registry[Callable[[str], tuple[nn.Module, Any]]] = Registry("source of models")
"""Libraries whose models `dropbench doctor` checks: a function from a name to a model and a batch for it."""
SOURCES.add("timm", "dropbench.adapters.library_models:timm_model", help="a model of timm, with random weights")
SOURCES.add("hf", "dropbench.adapters.library_models:transformers_model", help="a local folder of transformers")


@dataclass(frozen=True)
class Patch:
    """One module whose attention can be regularized.

    Attributes:
        module: the module.
        site: the description of its attention in the model as it is now; `attach` sets it as the module's `site`.
        patched: a subclass of the module's class whose forward calls `attend`; None if the module itself calls it.
        refusal: why the module cannot be regularized although the adapter supports its class; None if it can.
    """

    slot: ClassVar[str] = "site"
    """The attribute of the module that holds its site."""

    module: nn.Module
    site: Site
    patched: type[nn.Module] | None = None
    refusal: str | None = None

    @property
    def key(self) -> tuple[int, str, str]:
        """Identifies the place in the model; a module has at most one patch per slot and parameter."""
        return id(self.module), self.slot, self.site.parameter

    def attach(self) -> None:
        """Make the module call `attend` with the site; a repeated call replaces the site."""
        if self.patched is not None:
            self.module.__class__ = self.patched
            self.module.site = self.site  # type: ignore[assignment]

    def detach(self) -> None:
        """Restore the module, without a regularizer; do nothing if it was never attached."""
        self.release_site()
        original = getattr(type(self.module), "unpatched", None)
        if original is not None:
            self.module.__class__ = original
            del self.module.site

    def release_site(self) -> None:
        """Remove the regularizer from the site, and its module."""
        uninstall(self.module, self.site)
        self.site.regularizer, self.site.parts = None, ()
        self.site.ratio = self.site.scheduled_ratio = 0.0


class Adapter(ABC):
    """Finds the attention modules of a model and makes them call `attend`.

    Most adapters replace a module's class by a subclass with the same parameters under the same names and no additional
    state except `site`, so that state_dict, deepcopy, hooks and optimizers are not affected. Every adapter must pass
    the contract tests in tests/adapters.
    """

    name: ClassVar[str]

    @abstractmethod
    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """Yield each supported module once, including attached ones, with its site in the model as it is now."""


class OwnModels(Adapter):
    """Adapter of models written for DropBench, whose attention modules call `attend` and create their own `site`."""

    name = "dropbench"

    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """Yield every module with a site. Modules that other adapters attached are claimed by these adapters."""
        for module in model.modules():
            site = site_of(module)
            if site is not None:
                yield Patch(module, site)


def patched_class(original: type[nn.Module], *, bypass: bool = False) -> Any:
    """Class decorator for patched classes: set the class that `unregularize` restores.

    With `bypass`, a module calls the forward of `original` if `can_use_original_forward`.
    """

    def decorate(patched: Any) -> type[nn.Module]:
        patched.unpatched = original
        regularized = patched.forward

        @wraps(regularized)
        def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return (original.forward if can_use_original_forward(self) else regularized)(self, *args, **kwargs)

        if bypass:
            patched.forward = forward
        return cast("type[nn.Module]", patched)

    return decorate


def site_of(module: nn.Module, slot: str = "site") -> Site | None:
    """Return the site of a module, or None."""
    site = getattr(module, slot, None)
    return site if isinstance(site, Site) else None


def install(model: nn.Module, module: nn.Module, site: Site, regularizer: Regularizer) -> None:
    """Install the regularizer's module for a site, on the device and in the dtype of the model.

    The module becomes a child of the module that computes the site, so that its parameters are parameters of the model:
    in state_dict, for optimizers, in copies and in distributed training. A `WeightModule` becomes a parametrization of
    the weight.
    """
    uninstall(module, site)
    built = regularizer.site_module(site)
    if built is None:
        return
    expected = WeightModule if site.kind == "weight" else SiteModule
    if not isinstance(built, expected):
        raise TypeError(f"{site.name}: {type(built).__name__} is not a {expected.__name__}")
    reference = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), None)
    if reference is not None:
        built.to(device=reference.device, dtype=reference.dtype)
    built.train(module.training)
    if site.kind == "weight":
        names = list(module._parameters)
        vars(built).update(weight_site=site, following=names[names.index(site.parameter) + 1 :])
        parametrize.register_parametrization(module, site.parameter, built)
        module.register_state_dict_post_hook(write_usual_keys)
        module.register_load_state_dict_pre_hook(read_usual_keys)
        _watch_adapters()
    else:
        module.add_module(CHILD, built)
    site.module = built


@cache
def _watch_adapters() -> None:
    """Refuse, from now on, adapters such as those of peft around maps whose weight a regularizer computes.

    An adapter adds to the weight, which it freezes, and merges into a weight that is computed anew: the sum is lost.
    """

    def refuse(adapter: nn.Module, name: str, module: nn.Module | None) -> None:
        for each in module.modules() if name == "base_layer" and module is not None else ():
            for _, built in weight_modules(each):
                site: Site = vars(built)["weight_site"]
                raise InputError(
                    f"{site.name}: a regularizer computes its weight, to which {type(adapter).__name__} cannot add: add"
                    " adapters before `regularize`, which leaves adapted weights out"
                )

    register_module_module_registration_hook(refuse)


def uninstall_weights(model: nn.Module) -> None:
    """Remove all weight modules; parameters are the weights of evaluation, under their own names, in their order.

    The model then predicts what it did with them. This restores classes, by which adapters recognize modules.
    """
    for module in list(model.modules()):
        for name, built in weight_modules(module):
            chains: Any = module.parametrizations
            parameter = chains[name].original
            weight = built.in_evaluation(parameter)
            if weight is not parameter:
                with torch.no_grad():
                    parameter.copy_(weight)
            own: Any = type(module)  # copies of the module share its class, which the removal changes
            module.__class__ = type(own.__name__, own.__bases__, dict(vars(own)))
            parametrize.remove_parametrizations(module, name, leave_parametrized=False)
            for other in vars(built)["following"]:  # a dictionary keeps the order of insertion
                module._parameters[other] = module._parameters.pop(other)
            for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
                for key in [key for key, hook in hooks.items() if getattr(hook, "hook", hook) in USUAL_KEYS]:
                    del hooks[key]


def uninstall(module: nn.Module, site: Site) -> None:
    """Remove the module of a site with its parameters; do nothing if there is none.

    Weight modules are removed by `uninstall_weights`.
    """
    site.module = None
    if site.kind != "weight" and isinstance(getattr(module, CHILD, None), SiteModule):
        delattr(module, CHILD)


def attention_width(module: nn.Module) -> int | None:
    """Return the channels of all heads together: the inputs of the output projection (last linear layer), or None."""
    linear = [child for child in module.children() if isinstance(child, nn.Linear)]
    return linear[-1].in_features if linear else None


def can_use_original_forward(module: nn.Module) -> bool:
    """Return whether a patched module can use its original forward: in evaluation, and if its site has no hooks."""
    return not module.training and has_no_hooks(module)


def has_no_hooks(module: nn.Module) -> bool:
    """Return whether nothing observes the attention of a patched module or changes it in evaluation."""
    site: Any = module.site
    is_counted = site.reach is not None and site.reach.in_evaluation
    return not is_counted and all(
        hook is None for hook in (site.probe, output_module(site), site.masked_keys, site.mc_samples or None)
    )


def parents_of(path: str) -> list[str]:
    """Return the paths of the modules above a path, the model itself first."""
    names = path.split(".")
    return [".".join(names[:end]) for end in range(len(names))]


def stack_of(model: nn.Module, path: str) -> str:
    """Return the path of the outermost nn.ModuleList that contains a module, as its stack of layers; "" for none."""
    return next((parent for parent in parents_of(path) if isinstance(model.get_submodule(parent), nn.ModuleList)), "")


def number_layers(
    model: nn.Module,
    modules: Mapping[str, nn.Module],
    kind_of: Callable[[str, Any], SiteKind],
    stack_of: Callable[[nn.Module, str], str] = stack_of,
) -> list[tuple[str, Any, SiteKind, int, int]]:
    """Number the attention modules of a model, by path in order of execution, for the schedules.

    Outlook and self attention of an encoder are counted together, every other kind separately: the third cross
    attention of a decoder and its third self attention both are in its layer 3.

    `kind_of` maps path and module to the kind of attention, and `stack_of` model and path to the stack of layers. The
    result has the path, module and kind of each, its layer, from 0, and the depth: the number of layers of this kind in
    this stack.
    """
    depths: Counter[tuple[str, str]] = Counter()
    layers = []
    for path, module in modules.items():
        kind = kind_of(path, module)
        key = (stack_of(model, path), "encoder-self" if kind == "outlook" else kind)
        layers.append((path, module, kind, depths[key], key))
        depths[key] += 1
    return [(path, module, kind, layer, depths[key]) for path, module, kind, layer, key in layers]
