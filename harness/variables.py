"""Environment variables that the libraries read in training: those that we set, and those that are recorded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LAUNCHER = (
    "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_", "MASTER_ADDR",
    "MASTER_PORT", "TORCHELASTIC_", "PMI_", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "MPI_LOCAL", "CROSS_", "NODE_RANK",
)  # fmt: skip
"""Variables of launchers of several processes, by their beginnings. A job of several processes sets its own."""
RECIPE = (
    "ACCELERATE_", "FSDP_", "DEEPSPEED_", "MEGATRON_LM_", "PARALLELISM_CONFIG_", "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
)  # fmt: skip
"""Variables that would change what is computed: a trial has that from its recipe and its settings alone."""
RECORDED = (
    "TORCH", "PYTORCH_", "ATEN_", "CUDA_", "CUBLAS_", "CUDNN_", "NCCL_", "GLOO_", "TRITON_", "INDUCTOR_", "OMP_",
    "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "TIMM_", "TRANSFORMERS_", "FAIRSEQ_", "MMENGINE_",
    "MMCV_", "TOKENIZERS_PARALLELISM", "PYTHONHASHSEED", "USE_HUB_KERNELS", "FLASH_ATTENTION_", "XLA_", "USE_TORCH_XLA",
    "PJRT_DEVICE", "PT_HPU_", "DYNAMO_CACHE_SIZE_LIMIT", "FX_PATCH_GETITEM", "FORK_LAST3",
)  # fmt: skip
"""Variables that may change the last digits or the speed; ``environment.json`` has those that are set."""


@contextmanager
def without_variables(*beginnings: str) -> Iterator[None]:
    """Remove the variables that begin so while the context is open, also those that a library sets meanwhile."""
    removed = {name: os.environ.pop(name) for name in _present(beginnings)}
    try:
        yield
    finally:
        for name in _present(beginnings):
            del os.environ[name]
        os.environ.update(removed)


@contextmanager
def hub_offline() -> Iterator[None]:
    """Keep the library of the Hugging Face Hub, and those that use it, from the network while the context is open."""
    before, constants = os.environ.get("HF_HUB_OFFLINE"), sys.modules.get("huggingface_hub.constants")
    imported: Any = getattr(constants, "HF_HUB_OFFLINE", None)  # read from the variable once
    os.environ["HF_HUB_OFFLINE"] = "1"
    if constants is not None:
        vars(constants)["HF_HUB_OFFLINE"] = True
    try:
        yield
    finally:
        del os.environ["HF_HUB_OFFLINE"]
        if before is not None:
            os.environ["HF_HUB_OFFLINE"] = before
        if constants is not None:
            vars(constants)["HF_HUB_OFFLINE"] = imported


def recorded_variables() -> dict[str, str]:
    """Return the variables of `RECORDED` that are set."""
    return {name: os.environ[name] for name in _present(RECORDED)}


def _present(beginnings: tuple[str, ...]) -> list[str]:
    return sorted(name for name in os.environ if name.startswith(beginnings))
