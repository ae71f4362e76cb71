"""Compiles the GPU's kernels for an architecture, without a GPU; prints the shared memory that each takes, as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from triton import compile as compiled
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from harness.kernels import fused
from harness.kernels.launch import Launch
from harness.masks import new_draw

KERNELS = "forward", "backward_queries", "backward_keys"
WORDS = "key_low", "key_high", "stream", "threshold", "prefix"
"""What kernels are not made anew for."""
TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int8: "i8", torch.uint8: "u8"}


class Compiler:
    """In the place of a kernel: what it is launched with says what to compile."""

    def __init__(self, kernel: Any, capability: int, found: dict[str, int]) -> None:
        self.kernel, self.target, self.found = kernel, GPUTarget("cuda", capability, 32), found

    def __getitem__(self, grid: tuple[int, int]) -> Compiler:
        return self

    def __call__(self, *given: Any, **options: Any) -> None:
        """Compile it for tensors and numbers like these."""
        names = self.kernel.arg_names
        kinds, even = {}, {}
        for place, (name, one) in enumerate(zip(names, given, strict=False)):
            tensor = isinstance(one, torch.Tensor)
            kinds[name] = f"*{TYPES[one.dtype]}" if tensor else "fp32" if isinstance(one, float) else "i32"
            if tensor or (isinstance(one, int) and one % 16 == 0 and name not in WORDS):
                even[place,] = [["tt.divisibility", 16]]
        fixed = {(names.index(name),): value for name, value in options.items()}
        kinds |= dict.fromkeys(options, "constexpr")
        made = compiled(ASTSource(self.kernel, kinds, fixed, even), target=self.target)
        self.found[self.kernel.__name__] = made.metadata.shared


def main(dtype: str, size: int, unit: str, rescale: str, capability: int) -> None:
    """All three, for self-attention of 1,024 tokens."""
    found: dict[str, int] = {}
    for name in KERNELS:
        setattr(fused, name, Compiler(getattr(fused, name), capability, found))
    q = torch.zeros(1, 2, 1024, size, dtype=getattr(torch, dtype))
    draw = new_draw("column" if unit == "column" else "element", 0.3, 1, 1024)
    launch = Launch(q, q, q, None, draw, 1 / 0.7 if rescale == "inverse" else None, causal=True, scale=size**-0.5)
    out, *rest = launch.forward()
    launch.backward(out, out, *rest)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
