"""Count the instructions per attention weight of the Triton kernels, in machine code compiled without a GPU.

``python -m benchmarks.gpu.instructions`` prints them per kernel and class as JSON.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.measure import Measurement
from dropbench.harness.attention.kernels.triton_launch import TritonAttention
from dropbench.harness.attention.reference.drop_masks import sample_spec

ROOT = Path(__file__).parents[2]
BUDGETS = {"fwd_kernel": 4.5, "bwd_dq_kernel": 4.5, "bwd_dkdv_kernel": 4.5, "training step": 20.0}
"""Largest acceptable integer instructions per weight: a fifth above those of Triton 3.9."""
NOTE = """Instructions of a thread in machine code for compute capability 9.0, per attention weight: bfloat16, head
dimension 64, 1,024 tokens, unit `element`, `renormalize`, no mask. They depend on the version of Triton. A pass counts
its loop. A training step also counts the kernels that make and transpose the bits, once, as the backward pass reads
those of the forward pass; longer inputs make them twice."""
PASSES = "fwd_kernel", "bwd_dq_kernel", "bwd_dkdv_kernel"
MASK_KERNELS = "drop_bits_kernel", "transposed_bits_kernel"
CAPABILITY, HEAD_DIM, TOKENS = 90, 64, 1024
UNSPECIALIZED = "seed_lo", "seed_hi", "stream", "threshold", "num_prefix_tokens", "first_bh"
TYPES = {
    torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int64: "i64", torch.int32: "i32",
    torch.int8: "i8", torch.uint8: "u8",
}  # fmt: skip
CLASSES = {
    "matrix": "[HI]G?MMA|WARPGROUP", "MUFU": "MUFU", "memory": "LD(?!GDEPBAR)|ST|SHFL|RED|ATOM",
    "control": "BRA|BAR|DEPBAR|LDGDEPBAR|EXIT|NOP|MEMBAR|FENCE|WARPSYNC|BSSY|BSYNC|YIELD|CALL|RET",
    "uniform": "U|R2UR|S2UR", "float": "F(?!LO)|H", "integer": "",
}  # fmt: skip
"""Class → pattern for the start of its instructions' names. The first match counts; the rest are integer."""


class Compiler:
    """Replace a kernel: a launch compiles the kernel for its arguments."""

    def __init__(self, kernel: Any, capability: int, compiled: dict[str, tuple[Any, dict[str, Any]]]) -> None:
        self.kernel, self.capability, self.compiled = kernel, capability, compiled

    def __getitem__(self, grid: tuple[int, int]) -> Compiler:
        return self

    def __call__(self, *args: Any, num_warps: int = 4, num_stages: int = 3, **constants: Any) -> None:
        """Compile the kernel for arguments of these types and divisibilities."""
        from triton import compile as triton_compile
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        names, block = self.kernel.arg_names, constants
        signature, attributes = {}, {}
        for index, (name, arg) in enumerate(zip(names, args, strict=False)):
            is_tensor = isinstance(arg, torch.Tensor)
            signature[name] = f"*{TYPES[arg.dtype]}" if is_tensor else "fp32" if isinstance(arg, float) else "i32"
            if isinstance(arg, int) and arg == 1 and name not in UNSPECIALIZED:
                constants = {**constants, name: 1}
            elif is_tensor or (isinstance(arg, int) and arg % 16 == 0 and name not in UNSPECIALIZED):
                attributes[index,] = [["tt.divisibility", 16]]
        constexprs = {(names.index(name),): value for name, value in constants.items()}
        signature |= dict.fromkeys(constants, "constexpr")
        source = ASTSource(self.kernel, signature, constexprs, attributes)
        options = {"num_warps": num_warps, "num_stages": num_stages}
        compiled = triton_compile(source, target=GPUTarget("cuda", self.capability, 32), options=options)
        self.compiled[self.kernel.__name__] = compiled, block


def compile_kernels(attention: TritonAttention, capability: int) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the compiled kernels of one call, forward and backward, and their constants."""
    from dropbench.harness.attention.kernels import triton_drop_mask, triton_kernels

    compiled: dict[str, tuple[Any, dict[str, Any]]] = {}
    for module, kernels in ((triton_kernels, PASSES), (triton_drop_mask, MASK_KERNELS)):
        for name in (name for name in kernels if hasattr(module, name)):
            setattr(module, name, Compiler(getattr(module, name), capability, compiled))
    out, *rest = attention.forward()
    attention.backward(out, out, *rest)
    return compiled


def gpu_instructions() -> list[Measurement]:
    """Compare the integer instructions per weight of each kernel, and of a training step, with their budgets."""
    if find_spec("triton") is None:
        print("gpu-instructions: skipped: triton is not installed: `pip install triton`", file=sys.stderr)
        return []
    counts = count_in_process()
    training_step = sum(classes["integer"] for classes in counts.values())
    taken = {name: counts[name]["integer"] for name in PASSES} | {"training step": training_step}
    unit, detail = "integer instructions per weight", {"triton": version("triton"), "classes": counts}
    return [
        Measurement(
            name, f"{budget:g} {unit}", round(taken[name] / budget, 3), 1.0, round(taken[name], 2), budget, unit, detail
        )
        for name, budget in BUDGETS.items()
    ]


def count_in_process() -> dict[str, dict[str, float]]:
    """Return the instructions per kernel and class, counted in a process of its own, which replaces the kernels."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "benchmarks.gpu.instructions"]
    with TemporaryDirectory() as cache:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env={**env, "TRITON_CACHE_DIR": cache}
        )
    counts: dict[str, dict[str, float]] = json.loads(done.stdout)
    return counts


def main() -> None:
    """Print the instructions per kernel and class as JSON."""
    q = torch.zeros(1, 2, TOKENS, HEAD_DIM, dtype=torch.bfloat16)
    spec = sample_spec("element", 0.3, 1, TOKENS)
    compiled = compile_kernels(TritonAttention(q, q, q, None, spec, None, causal=False, scale=0.125), CAPABILITY)
    print(json.dumps({name: per_weight(name, *kernel) for name, kernel in compiled.items()}))


def per_weight(name: str, kernel: Any, block: dict[str, Any]) -> dict[str, float]:
    """Return a thread's instructions per weight and class, in a kernel's main loop or, if it has none, all of it."""
    import triton

    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(kernel.asm["cubin"])
        nvdisasm = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
        code = subprocess.run([nvdisasm, "-c", file], capture_output=True, text=True, check=True).stdout
    lines = code.splitlines()
    if name == "drop_bits_kernel":
        lines, weights = max(loops(lines), key=len), block["BLOCK_M"] * 64
    elif name == "transposed_bits_kernel":
        weights = 64 * 64 * block["BLOCK_WORDS"]
    else:
        lines = next(loop for loop in loops(lines) if any("GMMA" in line for line in loop))
        weights = block["BLOCK_M"] * block["BLOCK_N"]
    counts: Counter[str] = Counter()
    for line in lines:
        if instruction := re.search(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)", line):
            counts[next(name for name, start in CLASSES.items() if re.match(start, instruction[1]))] += 1
    threads = 32 * kernel.metadata.num_warps
    return {name: round(counts[name] * threads / weights, 3) for name in CLASSES}


def loops(lines: list[str]) -> list[list[str]]:
    """Return the lines of each loop: from a label to a later jump to it."""
    labels: dict[str, int] = {}
    found = []
    for number, line in enumerate(lines):
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = number
        elif (jump := re.search(r"BRA.*`\((\.L_x_\d+)\)", line)) and jump[1] in labels:
            found.append(lines[labels[jump[1]] : number + 1])
    return found


if __name__ == "__main__":
    main()
