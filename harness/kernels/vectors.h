/* What `masks.c` computes random bits with, on what the processor has: AVX-512, AVX2, or any. */

#include <stdint.h>

/* Vectors of 64-bit lanes. A lane's low half is one word of one block, its high half is not looked at: a multiplication
   of low halves gives the product's high word by a shift, and its low word by nothing. `LANE` is where a block's lane is
   such that `below` gives the decisions of LANES blocks as bits in the order of their keys. */
#if defined(__AVX512BW__)
#include <immintrin.h>
enum { LANES = 8 };
typedef __m512i Vector;
#define LANE(block) ((block) % 4 * 2 + (block) / 4)
static inline Vector all(uint64_t x) { return _mm512_set1_epi64((long long)x); }
static inline Vector times(Vector a, Vector b) { return _mm512_mul_epu32(a, b); }
/* A shuffle, as shifts would wait for the port of the multiplications. */
static inline Vector upper(Vector a) { return _mm512_shuffle_epi32(a, (_MM_PERM_ENUM)0xF5); }
static inline Vector xor3(Vector a, Vector b, Vector c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
static inline void advance(Vector *c0, Vector *c1, Vector blocks, Vector on, Vector down) {
    *c0 = _mm512_add_epi64(*c0, on);
    *c1 = _mm512_add_epi64(*c1, down);
    __mmask8 over = _mm512_cmpge_epu64_mask(*c0, blocks);
    *c0 = _mm512_mask_sub_epi64(*c0, over, *c0, blocks);
    *c1 = _mm512_mask_add_epi64(*c1, over, *c1, _mm512_set1_epi64(1));
}
static inline uint64_t below(const Vector x[4], uint32_t threshold) {
    Vector least = _mm512_set1_epi16((short)threshold);
    Vector a = _mm512_mask_blend_epi32(0xAAAA, x[0], _mm512_slli_epi64(x[1], 32));
    Vector b = _mm512_mask_blend_epi32(0xAAAA, x[2], _mm512_slli_epi64(x[3], 32));
    uint64_t first = _mm512_cmplt_epu16_mask(_mm512_unpacklo_epi64(a, b), least);
    uint64_t last = _mm512_cmplt_epu16_mask(_mm512_unpackhi_epi64(a, b), least);
    return first | last << 32;
}
#elif defined(__AVX2__)
#include <immintrin.h>
enum { LANES = 4 };
typedef __m256i Vector;
#define LANE(block) ((block) % 2 * 2 + (block) / 2)
static inline Vector all(uint64_t x) { return _mm256_set1_epi64x((long long)x); }
static inline Vector times(Vector a, Vector b) { return _mm256_mul_epu32(a, b); }
static inline Vector upper(Vector a) { return _mm256_shuffle_epi32(a, 0xF5); }
static inline Vector xor3(Vector a, Vector b, Vector c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
static inline void advance(Vector *c0, Vector *c1, Vector blocks, Vector on, Vector down) {
    *c0 = _mm256_add_epi64(*c0, on);
    Vector under = _mm256_cmpgt_epi64(blocks, *c0);
    *c0 = _mm256_sub_epi64(*c0, _mm256_andnot_si256(under, blocks));
    *c1 = _mm256_add_epi64(_mm256_add_epi64(*c1, down), _mm256_add_epi64(under, all(1)));
}
static inline uint64_t below(const Vector x[4], uint32_t threshold) {
    Vector sign = _mm256_set1_epi16((short)0x8000), least = _mm256_set1_epi16((short)(threshold ^ 0x8000u));
    Vector a = _mm256_blend_epi32(x[0], _mm256_slli_epi64(x[1], 32), 0xAA);
    Vector b = _mm256_blend_epi32(x[2], _mm256_slli_epi64(x[3], 32), 0xAA);
    Vector first = _mm256_cmpgt_epi16(least, _mm256_xor_si256(_mm256_unpacklo_epi64(a, b), sign));
    Vector last = _mm256_cmpgt_epi16(least, _mm256_xor_si256(_mm256_unpackhi_epi64(a, b), sign));
    Vector bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(first, last), 0xD8);
    return (uint32_t)_mm256_movemask_epi8(bytes);
}
#else
enum { LANES = 8 };
typedef struct {
    uint64_t lane[LANES];
} Vector;
#define LANE(block) (block)
#define EACH for (int l = 0; l < LANES; l++)
static inline Vector all(uint64_t x) {
    Vector made;
    EACH made.lane[l] = x;
    return made;
}
static inline Vector times(Vector a, Vector b) {
    EACH a.lane[l] = (a.lane[l] & 0xFFFFFFFFu) * (b.lane[l] & 0xFFFFFFFFu);
    return a;
}
static inline Vector upper(Vector a) {
    EACH a.lane[l] >>= 32;
    return a;
}
static inline Vector xor3(Vector a, Vector b, Vector c) {
    EACH a.lane[l] ^= b.lane[l] ^ c.lane[l];
    return a;
}
static inline void advance(Vector *c0, Vector *c1, Vector blocks, Vector on, Vector down) {
    EACH {
        uint64_t next = c0->lane[l] + on.lane[l], over = next >= blocks.lane[l];
        c0->lane[l] = next - (over ? blocks.lane[l] : 0);
        c1->lane[l] += down.lane[l] + over;
    }
}
static inline uint64_t below(const Vector x[4], uint32_t threshold) {
    uint64_t found = 0;
    for (int word = 0; word < 4; word++)
        EACH {
            uint32_t bits = (uint32_t)x[word].lane[l];
            found |= (uint64_t)((bits & 0xFFFFu) < threshold) << (8 * l + 2 * word);
            found |= (uint64_t)((bits >> 16) < threshold) << (8 * l + 2 * word + 1);
        }
    return found;
}
#endif
