/* Operations on a row of logits. Rows are padded to whole vectors. */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Vectors of floats: one register with AVX-512 or AVX2. */
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

static inline float dot(const float *a, const float *b, int64_t count) {
    Floats lanes = {0};
    float sum = 0.0f;
    int64_t n = 0;
    for (; n + WIDTH <= count; n += WIDTH) lanes += load(a + n) * load(b + n);
    for (; n < count; n++) sum += a[n] * b[n];
    for (int l = 0; l < WIDTH; l++) sum += lanes[l];
    return sum;
}

/* The largest float; none is NaN. */
static inline float largest(Floats x) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#else
    float max = -INFINITY;
    for (int l = 0; l < WIDTH; l++) max = x[l] > max ? x[l] : max;
    return max;
#endif
}

/* Add -inf to the logits of dropped keys. */
static void drop(float *logits, const uint8_t *bits, int64_t key, int64_t keys) {
    for (int64_t j = 0; j < keys; j += WIDTH)
        store(logits + j, load(logits + j) + where(dropped_from(bits, key + j), splat(-INFINITY), splat(0.0f)));
}

/* Set the dropped of the `top` largest logits of a row to 0, and clear the bits of all other keys. */
static void zero_top(float *logits, uint8_t *bits, int64_t keys, int64_t top) {
    float bound = INFINITY; /* the smallest of the largest logits; keys from `end` on do not count if they equal it */
    int64_t left = top, end = keys;
    while (left > 0) {
        Floats lane_max = splat(-INFINITY);
        for (int64_t j = 0; j < keys; j += WIDTH) {
            Floats x = load(logits + j);
            lane_max = where((x < bound) & (x > lane_max), x, lane_max);
        }
        float next = largest(lane_max);
        if (next == -INFINITY) break;
        bound = next;
        Ints equal = {0};
        for (int64_t j = 0; j < keys; j += WIDTH) equal -= load(logits + j) == bound;
        int64_t count = 0;
        for (int l = 0; l < WIDTH; l++) count += equal[l];
        if (count > left)
            for (end = 0; left > 0; end++) left -= logits[end] == bound;
        else
            left -= count;
    }
    for (int64_t block = 0; block * 8 < keys; block++) {
        uint8_t kept = 0;
        for (uint32_t rest = bits[block]; rest; rest &= rest - 1) {
            int64_t j = block * 8 + __builtin_ctz(rest);
            if (j >= keys || !(logits[j] > bound || (logits[j] == bound && j < end))) continue;
            kept |= (uint8_t)(1u << (j & 7));
            logits[j] = 0.0f;
        }
        bits[block] = kept;
    }
}

/* Overwrite a row of logits with their exponentials, 0 for keys dropped by `bits`, if not null; update the row's maximum
   and sum. Returns the factor of what was summed with the old maximum. */
static float exponentiate(float *logits, const uint8_t *bits, int64_t key, int64_t keys, float *row_max,
                          float *row_sum) {
    Floats lane_max = splat(*row_max), lane_sum = {0};
    for (int64_t j = 0; j < keys; j += WIDTH) {
        Floats x = load(logits + j);
        lane_max = where(x > lane_max, x, lane_max);
    }
    float new_max = largest(lane_max), sum = 0.0f;
    float origin = new_max == -INFINITY ? 0.0f : new_max;
    float rescale = *row_max == -INFINITY ? 0.0f : exponential(splat(*row_max - origin))[0];
    for (int64_t j = 0; j < keys; j += WIDTH) {
        Floats p = exponential(load(logits + j) - origin);
        lane_sum += p;
        store(logits + j, bits ? (Floats)(~dropped_from(bits, key + j) & (Ints)p) : p);
    }
    for (int l = 0; l < WIDTH; l++) sum += lane_sum[l];
    *row_max = new_max;
    *row_sum = *row_sum * rescale + sum;
    return rescale;
}

/* Store the statistics of a softmax. Returns the scale. */
static float store_stats(float *max, float *scale, float row_max, float row_sum) {
    *max = row_max == -INFINITY ? 0.0f : row_max;
    /* A row without an allowed key has no weights; NaN is not equal to 0. */
    return *scale = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;
}
