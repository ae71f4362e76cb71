"""Evaluate a regularized model with its mean attention weights over many draws (DropKey, Table 4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from dropbench.harness.models.regularize import set_on_sites, sites


@contextmanager
def monte_carlo(model: nn.Module, mc_samples: int) -> Iterator[None]:
    """Evaluate a regularized model with its mean attention weights over `mc_samples` masks while the context is open.

    Masks are sampled per forward pass and site, from torch's default generator. With 0 samples nothing changes.
    """
    averaged_sites = [site for site in sites(model) if site.regularizer is not None]
    with set_on_sites(averaged_sites, "mc_samples", mc_samples):
        yield
