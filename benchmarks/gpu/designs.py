"""Designs of drop decisions for Triton kernels, to count their instructions; none but the stored bits is used.

`counters` replaces `load_words`, and a design `unpack_words`, with its arguments. In the pass over keys, a design draws
per key and 32 queries, which takes as many instructions as the decisions of the other passes would.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def counters(bits_args, start, offs_row, BLOCK: tl.constexpr):
    """Return the rows, and the number of the first word of 32 decisions, both (rows, 1)."""
    return offs_row, offs_row * 0 + start // 32


@triton.jit
def no_bits(words, BLOCK: tl.constexpr):
    """Drop nothing: plain attention."""
    return tl.zeros([words[0].shape[0], BLOCK], tl.float32)


@triton.jit
def _random_words(row, counter):
    """Return four random words per counter, (rows, words, n), and the threshold: 77 of 256."""
    one = tl.num_programs(2).to(tl.uint32)  # the compiler does not know that it is 1
    c0 = (counter + row * 0).to(tl.uint32)
    c1 = (row + counter * 0).to(tl.uint32)
    words = tl.philox_impl(c0, c1, c0 * 0 + tl.program_id(1).to(tl.uint32), c0 * 0, one * 5, one * 7, 7)
    return words, one * 77


@triton.jit
def _unpack(words, BLOCK: tl.constexpr):
    """Return -inf where a bit of the words is set, else 0, float32 (rows, BLOCK)."""
    bit = tl.arange(0, 32)[None, None, :].to(tl.uint32)
    bits = tl.reshape((words[:, :, None] >> bit) & 1, [words.shape[0], BLOCK])
    return tl.where(bits != 0, float("-inf"), 0.0)


@triton.jit
def _bytes_below(words, threshold):
    """Return in the top bit of each byte whether the byte is below a threshold below 2**8, and 0 in the other bits."""
    repeated = (threshold & 0xFF) * 0x01010101
    difference = (words | 0x80808080) - (repeated & 0x7F7F7F7F)
    return (((words ^ 0xFFFFFFFF) & repeated) | ((words ^ repeated | difference) ^ 0xFFFFFFFF)) & 0x80808080


@triton.jit
def eight_bits(words, BLOCK: tl.constexpr):
    """Compare eight random bits per decision in every pass."""
    offs_word = words[1][:, :, None] + tl.arange(0, BLOCK // 32)[None, :, None]
    part = tl.arange(0, 2)[None, None, :]
    drawn, threshold = _random_words(words[0][:, :, None], offs_word * 2 + part)
    below = drawn[0] * 0
    for i in tl.static_range(4):
        below = (below >> 1) | _bytes_below(drawn[i], threshold)
    return _unpack(tl.sum(below >> (part * 4).to(tl.uint32), axis=2), BLOCK)


@triton.jit
def bit_planes(words, BLOCK: tl.constexpr):
    """Combine eight random words per 32 decisions along the binary digits of the threshold, in every pass."""
    offs_word = words[1][:, :, None] + tl.arange(0, BLOCK // 32)[None, :, None]
    first, threshold = _random_words(words[0][:, :, None], offs_word * 2)
    second, _ = _random_words(words[0][:, :, None], offs_word * 2 + 1)
    below = first[0] * 0
    for i in tl.static_range(8):
        plane = first[i] if i < 4 else second[i - 4]
        digit = ((threshold >> i) & 1) * 0xFFFFFFFF
        below = (plane & below) | (digit & (plane | below))
    return _unpack(tl.sum(below, axis=2), BLOCK)
