"""Designs of drop decisions for Triton kernels, to count their instructions; none but the stored bits is used.

Each replaces `load_dropped` and has its arguments. Seed and threshold are loaded from the memory of the bits.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def no_bits(bits_ptr, stride_bits_m, start_n, offs_m, seqlen_q, BLOCK_N: tl.constexpr):
    """Drop nothing: plain attention."""
    return tl.zeros([offs_m.shape[0], BLOCK_N], tl.float32)


@triton.jit
def _random_words(bits_ptr, counter, offs_m):
    """Return four random words per counter, (BLOCK_M, words, n), and the threshold."""
    k0, k1 = tl.load(bits_ptr).to(tl.uint32, bitcast=True), tl.load(bits_ptr + 1).to(tl.uint32, bitcast=True)
    threshold = tl.load(bits_ptr + 2).to(tl.uint32, bitcast=True)
    c0 = (counter + offs_m[:, None, None] * 0).to(tl.uint32)
    c1 = (offs_m[:, None, None] + counter * 0).to(tl.uint32)
    words = tl.philox_impl(c0, c1, c0 * 0 + tl.program_id(1).to(tl.uint32), c0 * 0, k0, k1, 7)
    return words, threshold


@triton.jit
def _unpack(words, offs_m, BLOCK_N: tl.constexpr):
    """Return -inf where a bit of the words is set, else 0, float32 (BLOCK_M, BLOCK_N)."""
    bit = tl.arange(0, 32)[None, None, :].to(tl.uint32)
    bits = tl.reshape((words[:, :, None] >> bit) & 1, [offs_m.shape[0], BLOCK_N])
    return tl.where(bits != 0, float("-inf"), 0.0)


@triton.jit
def _bytes_below(words, threshold):
    """Return in the top bit of each byte whether the byte is below a threshold below 2**8, and 0 in the other bits."""
    repeated = (threshold & 0xFF) * 0x01010101
    difference = (words | 0x80808080) - (repeated & 0x7F7F7F7F)
    return (((words ^ 0xFFFFFFFF) & repeated) | ((words ^ repeated | difference) ^ 0xFFFFFFFF)) & 0x80808080


@triton.jit
def eight_bits(bits_ptr, stride_bits_m, start_n, offs_m, seqlen_q, BLOCK_N: tl.constexpr):
    """Compare eight random bits per decision in every pass."""
    offs_word = start_n // 32 + tl.arange(0, BLOCK_N // 32)[None, :, None]
    part = tl.arange(0, 2)[None, None, :]
    words, threshold = _random_words(bits_ptr, offs_word * 2 + part, offs_m)
    below = words[0] * 0
    for i in tl.static_range(4):
        below = (below >> 1) | _bytes_below(words[i], threshold)
    return _unpack(tl.sum(below >> (part * 4).to(tl.uint32), axis=2), offs_m, BLOCK_N)


@triton.jit
def bit_planes(bits_ptr, stride_bits_m, start_n, offs_m, seqlen_q, BLOCK_N: tl.constexpr):
    """Combine eight random words per 32 decisions along the binary digits of the threshold, in every pass."""
    offs_word = start_n // 32 + tl.arange(0, BLOCK_N // 32)[None, :, None]
    first, threshold = _random_words(bits_ptr, offs_word * 2 + tl.zeros([1, 1, 1], tl.int32), offs_m)
    second, _ = _random_words(bits_ptr, offs_word * 2 + 1 + tl.zeros([1, 1, 1], tl.int32), offs_m)
    below = first[0] * 0
    for i in tl.static_range(8):
        plane = first[i] if i < 4 else second[i - 4]
        digit = ((threshold >> i) & 1) * 0xFFFFFFFF
        below = (plane & below) | (digit & (plane | below))
    return _unpack(tl.sum(below, axis=2), offs_m, BLOCK_N)
