"""Install the module of a regularizer, as a child of the module that computes the site."""

from __future__ import annotations

from torch import nn

from harness.regularizers.base import Regularizer, Site
from harness.regularizers.output import SiteModule

CHILD = "regularization"
"""The name of a site's module among the children of the module that computes the site."""


def install(model: nn.Module, module: nn.Module, site: Site, regularizer: Regularizer) -> None:
    """Install the regularizer's module for a site, on the device and in the dtype of the model.

    The module becomes a child of the module that computes the site, so that its parameters are parameters of the model:
    in state_dict, for optimizers, in copies and in distributed training.
    """
    uninstall(module, site)
    built = regularizer.site_module(site)
    if built is None:
        return
    if not isinstance(built, SiteModule):
        raise TypeError(f"{site.name}: {type(built).__name__} is not a SiteModule")
    reference = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), None)
    if reference is not None:
        built.to(device=reference.device, dtype=reference.dtype)
    built.train(module.training)
    module.add_module(CHILD, built)
    site.module = built


def uninstall(module: nn.Module, site: Site) -> None:
    """Remove the module of a site with its parameters; do nothing if there is none."""
    site.module = None
    if isinstance(getattr(module, CHILD, None), SiteModule):
        delattr(module, CHILD)


def attention_width(module: nn.Module) -> int | None:
    """Return the channels of all heads together: the inputs of the output projection (last linear layer), or None."""
    linear = [child for child in module.children() if isinstance(child, nn.Linear)]
    return linear[-1].in_features if linear else None
