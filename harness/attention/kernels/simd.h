/* Vectors of 64-bit lanes for Philox, with the instructions that the CPU has: AVX-512, AVX2, or plain C. */

#include <stdint.h>

/* The low half of a lane is one word of one Philox block; its high half is ignored. A multiplication of low halves then
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
