/* Vectors of floats: one register with AVX-512 or AVX2. */

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
enum { WIDTH = 16 };
typedef uint16_t Bits; /* one per float */
#define BIT_OF_EACH {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}
#else
enum { WIDTH = 8 };
typedef uint8_t Bits;
#define BIT_OF_EACH {1, 2, 4, 8, 16, 32, 64, 128}
#endif
typedef float Floats __attribute__((vector_size(4 * WIDTH)));
typedef int32_t Ints __attribute__((vector_size(4 * WIDTH)));

static inline Floats splat(float x) { return (Floats){0} + x; }

static inline Floats load(const float *x) {
    Floats loaded;
    memcpy(&loaded, x, sizeof loaded);
    return loaded;
}

static inline void store(float *x, Floats values) { memcpy(x, &values, sizeof values); }

static inline Floats where(Ints condition, Floats yes, Floats no) {
    return (Floats)((condition & (Ints)yes) | (~condition & (Ints)no));
}

/* All ones where one of the WIDTH keys from `key` on is dropped. Past the row's end `bits` is readable and arbitrary. */
static inline Ints dropped_from(const uint8_t *bits, int64_t key) {
    const Ints bit = BIT_OF_EACH;
    Bits decisions;
    memcpy(&decisions, bits + key / 8, sizeof decisions);
    return (((Ints){0} + decisions) & bit) != 0;
}

/* exp(x) within 2 units in the last place, for x <= 0; results below 2^-126 are 0, NaN stays NaN. */
static inline Floats exponential(Floats x) {
    const float round_magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    Floats t = x * 1.44269504f;
    Ints underflow = t < -126.0f;
    Floats clamped = where(underflow, splat(-126.0f), t);
    Floats integer = clamped + round_magic - round_magic, r = clamped - integer;
    Floats p = r * 1.5252734e-5f + 1.5403530e-4f;
    p = p * r + 1.3333558e-3f;
    p = p * r + 9.6181291e-3f;
    p = p * r + 5.5504109e-2f;
    p = p * r + 2.4022651e-1f;
    p = p * r + 6.9314718e-1f;
    p = p * r + 1.0f;
    Floats power = (Floats)((__builtin_convertvector(integer, Ints) + 127) << 23);
    return (Floats)(~underflow & (Ints)(p * power));
}
