/* Drop decisions as bits, one per key: random window starts, dilated to the keys that their windows drop.

   Random bits are Philox 4x32 with 7 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): the
   block with counter (j / 8, i, b * num_heads + h, stream) decides keys j to j + 7 of query i, with 16 bits each. */

#include <stdint.h>
#include <string.h>

/* Vectors of 64-bit lanes for Philox, with the instructions that the CPU has: AVX-512, AVX2, or plain C.

   The low half of a lane is one word of one Philox block; its high half is ignored. A multiplication of low halves then
   yields the high word of the product with one shift and its low word for free. `LANE` maps a block to its lane such
   that `below_threshold` returns the decisions of LANES blocks as bits in key order. */
#if defined(__AVX512BW__)
#include <immintrin.h>
enum { LANES = 8 };
typedef __m512i Vector;
#define LANE(block) ((block) % 4 * 2 + (block) / 4)
static inline Vector broadcast(uint64_t x) { return _mm512_set1_epi64((long long)x); }
static inline Vector mul_low(Vector a, Vector b) { return _mm512_mul_epu32(a, b); }
/* A shuffle: shifts would compete with the multiplications for a port. */
static inline Vector high_word(Vector a) { return _mm512_shuffle_epi32(a, (_MM_PERM_ENUM)0xF5); }
static inline Vector xor3(Vector a, Vector b, Vector c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
static inline void advance(Vector *c0, Vector *c1, Vector blocks, Vector step0, Vector step1) {
    *c0 = _mm512_add_epi64(*c0, step0);
    *c1 = _mm512_add_epi64(*c1, step1);
    __mmask8 carry = _mm512_cmpge_epu64_mask(*c0, blocks);
    *c0 = _mm512_mask_sub_epi64(*c0, carry, *c0, blocks);
    *c1 = _mm512_mask_add_epi64(*c1, carry, *c1, _mm512_set1_epi64(1));
}
static inline uint64_t below_threshold(const Vector x[4], uint32_t threshold) {
    Vector limit = _mm512_set1_epi16((short)threshold);
    Vector a = _mm512_mask_blend_epi32(0xAAAA, x[0], _mm512_slli_epi64(x[1], 32));
    Vector b = _mm512_mask_blend_epi32(0xAAAA, x[2], _mm512_slli_epi64(x[3], 32));
    uint64_t low = _mm512_cmplt_epu16_mask(_mm512_unpacklo_epi64(a, b), limit);
    uint64_t high = _mm512_cmplt_epu16_mask(_mm512_unpackhi_epi64(a, b), limit);
    return low | high << 32;
}
#elif defined(__AVX2__)
#include <immintrin.h>
enum { LANES = 4 };
typedef __m256i Vector;
#define LANE(block) ((block) % 2 * 2 + (block) / 2)
static inline Vector broadcast(uint64_t x) { return _mm256_set1_epi64x((long long)x); }
static inline Vector mul_low(Vector a, Vector b) { return _mm256_mul_epu32(a, b); }
static inline Vector high_word(Vector a) { return _mm256_shuffle_epi32(a, 0xF5); }
static inline Vector xor3(Vector a, Vector b, Vector c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
static inline void advance(Vector *c0, Vector *c1, Vector blocks, Vector step0, Vector step1) {
    *c0 = _mm256_add_epi64(*c0, step0);
    Vector no_carry = _mm256_cmpgt_epi64(blocks, *c0);
    *c0 = _mm256_sub_epi64(*c0, _mm256_andnot_si256(no_carry, blocks));
    *c1 = _mm256_add_epi64(_mm256_add_epi64(*c1, step1), _mm256_add_epi64(no_carry, broadcast(1)));
}
static inline uint64_t below_threshold(const Vector x[4], uint32_t threshold) {
    Vector sign = _mm256_set1_epi16((short)0x8000), limit = _mm256_set1_epi16((short)(threshold ^ 0x8000u));
    Vector a = _mm256_blend_epi32(x[0], _mm256_slli_epi64(x[1], 32), 0xAA);
    Vector b = _mm256_blend_epi32(x[2], _mm256_slli_epi64(x[3], 32), 0xAA);
    Vector low = _mm256_cmpgt_epi16(limit, _mm256_xor_si256(_mm256_unpacklo_epi64(a, b), sign));
    Vector high = _mm256_cmpgt_epi16(limit, _mm256_xor_si256(_mm256_unpackhi_epi64(a, b), sign));
    Vector bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xD8);
    return (uint32_t)_mm256_movemask_epi8(bytes);
}
#else
enum { LANES = 8 };
typedef struct {
    uint64_t lane[LANES];
} Vector;
#define LANE(block) (block)
#define FOR_EACH_LANE for (int l = 0; l < LANES; l++)
static inline Vector broadcast(uint64_t x) {
    Vector a;
    FOR_EACH_LANE a.lane[l] = x;
    return a;
}
static inline Vector mul_low(Vector a, Vector b) {
    FOR_EACH_LANE a.lane[l] = (a.lane[l] & 0xFFFFFFFFu) * (b.lane[l] & 0xFFFFFFFFu);
    return a;
}
static inline Vector high_word(Vector a) {
    FOR_EACH_LANE a.lane[l] >>= 32;
    return a;
}
static inline Vector xor3(Vector a, Vector b, Vector c) {
    FOR_EACH_LANE a.lane[l] ^= b.lane[l] ^ c.lane[l];
    return a;
}
static inline void advance(Vector *c0, Vector *c1, Vector blocks, Vector step0, Vector step1) {
    FOR_EACH_LANE {
        uint64_t next = c0->lane[l] + step0.lane[l], carry = next >= blocks.lane[l];
        c0->lane[l] = next - (carry ? blocks.lane[l] : 0);
        c1->lane[l] += step1.lane[l] + carry;
    }
}
static inline uint64_t below_threshold(const Vector x[4], uint32_t threshold) {
    uint64_t decisions = 0;
    for (int word = 0; word < 4; word++)
        FOR_EACH_LANE {
            uint32_t bits = (uint32_t)x[word].lane[l];
            decisions |= (uint64_t)((bits & 0xFFFFu) < threshold) << (8 * l + 2 * word);
            decisions |= (uint64_t)((bits >> 16) < threshold) << (8 * l + 2 * word + 1);
        }
    return decisions;
}
#endif

enum { ELEMENT, COLUMN, BLOCK, CROSS };
enum { PHILOX_ROUNDS = 7 };

typedef struct {
    int64_t seqlen_k;
    uint64_t philox_seed;
    uint32_t stream, threshold; /* a key is a window start if its 16 random bits are below the threshold */
    int32_t unit, window, grid_h, grid_w, num_prefix_tokens;
} DropSpec;

/* Window starts of `rows` consecutive rows as bytes of eight keys each, lowest bit first. Whole vectors are written:
   `bytes` needs space for LANES - 1 more. */
static void window_starts(const DropSpec *spec, int64_t off_bh, int64_t row, int64_t rows, uint8_t *bytes) {
    int64_t blocks = (spec->seqlen_k + 7) / 8;
    if (spec->threshold == 0 || spec->threshold > 0xFFFFu) {
        memset(bytes, spec->threshold ? 0xFF : 0, (size_t)(rows * blocks));
        return;
    }
    union {
        Vector vector;
        uint64_t lane[LANES];
    } first_c0, first_c1;
    for (int block = 0; block < LANES; block++) {
        first_c0.lane[LANE(block)] = (uint64_t)(block % blocks);
        first_c1.lane[LANE(block)] = (uint64_t)(row + block / blocks);
    }
    Vector c0 = first_c0.vector, c1 = first_c1.vector, c2 = broadcast((uint64_t)off_bh), c3 = broadcast(spec->stream);
    Vector step0 = broadcast((uint64_t)(LANES % blocks)), step1 = broadcast((uint64_t)(LANES / blocks));
    Vector m0 = broadcast(0xD2511F53u), m1 = broadcast(0xCD9E8D57u);
    Vector num_blocks = broadcast((uint64_t)blocks), k0[PHILOX_ROUNDS], k1[PHILOX_ROUNDS];
    for (uint32_t round = 0; round < PHILOX_ROUNDS; round++) {
        k0[round] = broadcast((uint32_t)spec->philox_seed + round * 0x9E3779B9u);
        k1[round] = broadcast((uint32_t)(spec->philox_seed >> 32) + round * 0xBB67AE85u);
    }
    for (int64_t n = 0; n < rows * blocks; n += LANES) {
        Vector x[4] = {c0, c1, c2, c3};
        for (int round = 0; round < PHILOX_ROUNDS; round++) {
            Vector a = mul_low(x[0], m0), b = mul_low(x[2], m1);
            x[0] = xor3(high_word(b), x[1], k0[round]);
            x[1] = b;
            x[2] = xor3(high_word(a), x[3], k1[round]);
            x[3] = a;
        }
        uint64_t decisions = below_threshold(x, spec->threshold);
        memcpy(bytes + n, &decisions, LANES);
        advance(&c0, &c1, num_blocks, step0, step1);
    }
}

/* words |= words << shift, for a row of `count` words of 64 keys. */
static void or_shifted(uint64_t *words, int64_t count, int64_t shift) {
    int64_t word_shift = shift / 64, bit_shift = shift % 64;
    for (int64_t n = count - 1; n >= word_shift; n--) {
        uint64_t shifted = words[n - word_shift] << bit_shift;
        if (bit_shift && n > word_shift) shifted |= words[n - word_shift - 1] >> (64 - bit_shift);
        words[n] |= shifted;
    }
}

/* Set the window - 1 keys to the right of each start, `step` apart. */
static void dilate_right(uint64_t *words, int64_t count, int64_t window, int64_t step) {
    int64_t width = 1;
    while (width < window) {
        int64_t added = width < window - width ? width : window - width;
        or_shifted(words, count, added * step);
        width += added;
    }
}

/* Side of a window, at most the shorter side of the grid. */
static int64_t window_side(const DropSpec *spec) {
    int64_t side = spec->window;
    if (side > spec->grid_h) side = spec->grid_h;
    return side > spec->grid_w ? spec->grid_w : side;
}

/* Keys that may be starts: those whose window fits in the grid. */
static void valid_starts(const DropSpec *spec, uint64_t *words, int64_t count) {
    int64_t side = window_side(spec);
    memset(words, 0, (size_t)count * 8);
    for (int64_t y = 0; y <= spec->grid_h - side; y++)
        for (int64_t x = 0; x <= spec->grid_w - side; x++) {
            int64_t key = spec->num_prefix_tokens + y * spec->grid_w + x;
            words[key >> 6] |= (uint64_t)1 << (key & 63);
        }
}

/* Set the bits of `bits` from `key` on; `length` <= 64 is their number. */
static inline void or_bits(uint64_t *words, int64_t key, uint64_t bits, int64_t length) {
    words[key >> 6] |= bits << (key & 63);
    if ((key & 63) + length > 64) words[(key >> 6) + 1] |= bits >> (64 - (key & 63));
}

/* Dilate starts to full rows and columns of the grid; `rows` is scratch memory. */
static void dilate_cross(const DropSpec *spec, uint64_t *words, int64_t count, uint8_t *rows) {
    int64_t side = window_side(spec), row_words = (spec->grid_w + 63) / 64;
    uint64_t columns[row_words];
    memset(rows, 0, (size_t)spec->grid_h);
    memset(columns, 0, (size_t)row_words * 8);
    int any_start = 0;
    for (int64_t n = 0; n < count; n++)
        for (uint64_t starts = words[n]; starts; starts &= starts - 1) {
            int32_t cell = (int32_t)(n * 64 + __builtin_ctzll(starts)) - spec->num_prefix_tokens;
            int32_t start_x = cell % spec->grid_w;
            memset(rows + cell / spec->grid_w, 1, (size_t)side);
            for (int64_t x = start_x; x < start_x + side; x++) columns[x >> 6] |= (uint64_t)1 << (x & 63);
            any_start = 1;
        }
    if (!any_start) return;
    memset(words, 0, (size_t)count * 8);
    for (int64_t y = 0; y < spec->grid_h; y++)
        for (int64_t n = 0; n < row_words; n++) {
            int64_t length = n + 1 < row_words ? 64 : spec->grid_w - n * 64;
            uint64_t full = ~(uint64_t)0 >> (64 - length);
            or_bits(words, spec->num_prefix_tokens + y * spec->grid_w + n * 64, rows[y] ? full : columns[n], length);
        }
}

/* Dilate the window starts of a row to the keys that they drop. */
static void dilate(const DropSpec *spec, uint64_t *words, const uint64_t *valid, int64_t count, uint8_t *scratch) {
    if (spec->unit == ELEMENT || spec->unit == COLUMN) {
        if (spec->window > 1) dilate_right(words, count, spec->window, 1);
        return;
    }
    for (int64_t n = 0; n < count; n++) words[n] &= valid[n];
    if (spec->unit == BLOCK) {
        dilate_right(words, count, window_side(spec), 1);
        dilate_right(words, count, window_side(spec), spec->grid_w);
    } else {
        dilate_cross(spec, words, count, scratch);
    }
}

/* Drop decisions of `rows` consecutive rows: packed bytes of eight keys each, like those of `window_starts`, which also
   gives the space that `bytes` needs. `valid` is the result of `valid_starts`, for blocks and crosses. */
static void drop_rows(const DropSpec *spec, const uint64_t *valid, int64_t off_bh, int64_t row, int64_t rows,
                      uint8_t *bytes) {
    int64_t blocks = (spec->seqlen_k + 7) / 8, count = (spec->seqlen_k + 63) / 64;
    uint8_t scratch[spec->grid_h + 1];
    uint64_t words[count];
    window_starts(spec, off_bh, row, rows, bytes);
    if (spec->window == 1 && (spec->unit == ELEMENT || spec->unit == COLUMN)) return;
    for (int64_t i = 0; i < rows; i++, bytes += blocks) {
        words[count - 1] = 0;
        memcpy(words, bytes, (size_t)blocks);
        dilate(spec, words, valid, count, scratch);
        memcpy(bytes, words, (size_t)blocks);
    }
}
