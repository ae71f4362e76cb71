"""Compile the Triton kernels for a GPU architecture without a GPU; print their shared memory in bytes as JSON."""

from __future__ import annotations

import json
import sys

import torch

from benchmarks.gpu.instructions import compile_kernels
from dropbench.harness.attention.kernels.triton_launch import TritonAttention
from dropbench.harness.attention.reference.drop_masks import sample_spec


def main(dtype: str, head_dim: int, unit: str, rescale: str, capability: int) -> None:
    """Compile all kernels for causal self-attention over 1,024 tokens."""
    q = torch.zeros(1, 2, 1024, head_dim, dtype=getattr(torch, dtype))
    spec = sample_spec("column" if unit == "column" else "element", 0.3, 1, 1024)
    keep_scale = 1 / 0.7 if rescale == "inverse" else None
    attention = TritonAttention(q, q, q, None, spec, keep_scale, causal=True, scale=head_dim**-0.5)
    compiled = compile_kernels(attention, capability)
    print(json.dumps({name: kernel.metadata.shared for name, (kernel, _) in compiled.items()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
