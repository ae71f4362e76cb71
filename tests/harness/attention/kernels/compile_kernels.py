"""Compile the Triton kernels for a GPU architecture without a GPU; print their shared memory in bytes as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from triton import compile as triton_compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from harness.attention.kernels import triton_kernels
from harness.attention.kernels.triton_launch import TritonAttention
from harness.attention.reference.drop_masks import sample_spec

KERNELS = "fwd_kernel", "bwd_dq_kernel", "bwd_dkdv_kernel"
UNSPECIALIZED = "seed_lo", "seed_hi", "stream", "threshold", "num_prefix_tokens", "first_bh"
"""Arguments whose values do not trigger a compilation."""
TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int8: "i8", torch.uint8: "u8"}


class Compiler:
    """A stand-in for a kernel: a launch compiles the kernel for its arguments."""

    def __init__(self, kernel: Any, capability: int, shared_memory: dict[str, int]) -> None:
        self.kernel, self.target, self.shared_memory = kernel, GPUTarget("cuda", capability, 32), shared_memory

    def __getitem__(self, grid: tuple[int, int]) -> Compiler:
        return self

    def __call__(self, *args: Any, **constants: Any) -> None:
        """Compile the kernel for arguments of these types and divisibilities."""
        names = self.kernel.arg_names
        signature, attributes = {}, {}
        for index, (name, arg) in enumerate(zip(names, args, strict=False)):
            is_tensor = isinstance(arg, torch.Tensor)
            signature[name] = f"*{TYPES[arg.dtype]}" if is_tensor else "fp32" if isinstance(arg, float) else "i32"
            if is_tensor or (isinstance(arg, int) and arg % 16 == 0 and name not in UNSPECIALIZED):
                attributes[index,] = [["tt.divisibility", 16]]
        constexprs = {(names.index(name),): value for name, value in constants.items()}
        signature |= dict.fromkeys(constants, "constexpr")
        compiled = triton_compile(ASTSource(self.kernel, signature, constexprs, attributes), target=self.target)
        self.shared_memory[self.kernel.__name__] = compiled.metadata.shared


def main(dtype: str, head_dim: int, unit: str, rescale: str, capability: int) -> None:
    """Compile all kernels for causal self-attention over 1,024 tokens."""
    shared_memory: dict[str, int] = {}
    for name in KERNELS:
        setattr(triton_kernels, name, Compiler(getattr(triton_kernels, name), capability, shared_memory))
    q = torch.zeros(1, 2, 1024, head_dim, dtype=getattr(torch, dtype))
    spec = sample_spec("column" if unit == "column" else "element", 0.3, 1, 1024)
    keep_scale = 1 / 0.7 if rescale == "inverse" else None
    attention = TritonAttention(q, q, q, None, spec, keep_scale, causal=True, scale=head_dim**-0.5)
    out, *rest = attention.forward()
    attention.backward(out, out, *rest)
    print(json.dumps(shared_memory))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
