/* Drop masks, and softmax with dropped weights, in one pass over the rows: called by cpu_masks.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "drop_bits.h"
#include "threads.h"

enum { NO_MASK, BOOLEAN, ADDITIVE };
enum { FILL_MASK, SOFTMAX, SOFTMAX_BACKWARD };
enum { ROWS_PER_BATCH = 16, ROWS_PER_CHUNK = 4 * ROWS_PER_BATCH };

typedef struct {
    DropSpec spec;
    int64_t mask_strides[4]; /* in elements */
    int64_t num_heads, seqlen_q;
    int64_t off_bh, num_bh; /* part to process: first batch * num_heads + head, and their number; */
    int64_t off_m, num_m;   /* first row of each, and their number */
    const void *mask;
    float *out;     /* (num_bh, num_m, seqlen_k): the additive mask; or logits, overwritten with weights */
    float *dp;      /* of the same shape: gradients of the weights, overwritten with those of the logits; or null */
    float *row_max, *row_scale, *delta; /* (batch, heads, seqlen_q): weights are exp(logit - row_max) * row_scale;
                                           delta = sum(output * gradient) */
    float softmax_scale;
    float masked_logit_gap, masked_logit_max; /* an additive mask forbids keys so far below the row max, or so low */
    float keep_value, drop_value;             /* of a kept and a dropped key; with a mask 0 and -inf */
    int32_t op, mask_type;
    int32_t keep_fully_dropped; /* whether a row whose allowed keys are all dropped keeps all of them */
    int32_t causal;             /* whether query i attends to keys 0 to i only */
    int32_t num_threads;
} KernelArgs;

/* 16 floats, on vectors of any width. */
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
enum { WIDTH = 16 };

static inline Floats splat(float x) { return (Floats){0} + x; }

/* Load 16 floats; past the end of the row, `fill`. The sizes are constants: a call would dominate the time of a row. */
static inline Floats load(const float *x, int64_t count, float fill) {
    Floats loaded = splat(fill);
    float *to = (float *)&loaded;
    if (count >= WIDTH) {
        memcpy(to, x, sizeof loaded);
        return loaded;
    }
    if (count & 8) memcpy(to, x, 32), x += 8, to += 8;
    if (count & 4) memcpy(to, x, 16), x += 4, to += 4;
    if (count & 2) memcpy(to, x, 8), x += 2, to += 2;
    if (count & 1) memcpy(to, x, 4);
    return loaded;
}

static inline void store(float *x, int64_t count, Floats values) {
    const float *from = (const float *)&values;
    if (count >= WIDTH) {
        memcpy(x, from, sizeof values);
        return;
    }
    if (count & 8) memcpy(x, from, 32), x += 8, from += 8;
    if (count & 4) memcpy(x, from, 16), x += 4, from += 4;
    if (count & 2) memcpy(x, from, 8), x += 2, from += 2;
    if (count & 1) memcpy(x, from, 4);
}

static inline Floats where(Ints condition, Floats yes, Floats no) {
    return (Floats)((condition & (Ints)yes) | (~condition & (Ints)no));
}

/* All ones where one of the 16 keys from `key` on is dropped. Past the row's end `bits` is readable and arbitrary. */
static inline Ints dropped_from(const uint8_t *bits, int64_t key) {
    const Ints bit = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
    uint16_t two_bytes;
    memcpy(&two_bytes, bits + key / 8, sizeof two_bytes);
    return (((Ints){0} + two_bytes) & bit) != 0;
}

static inline uint32_t keep_bit(const uint8_t *bits, int64_t key) { return (bits[key >> 3] >> (key & 7) & 1u) ^ 1u; }

/* Fill one row of the mask, for the first `seqlen` keys. */
static void fill_row(const KernelArgs *args, const uint8_t *bits, const char *mask, float *out, int64_t seqlen) {
    const uint32_t negative_infinity = 0xFF800000u;
    uint32_t *out_bits = (uint32_t *)out;
    int64_t stride = args->mask_strides[3];
    uint32_t any_kept = 0;
    if (args->mask_type == NO_MASK) {
        Floats keep = splat(args->keep_value), drop = splat(args->drop_value);
        for (int64_t j = 0; j < seqlen; j += WIDTH)
            store(out + j, seqlen - j, where(dropped_from(bits, j), drop, keep));
        if (args->keep_fully_dropped) {
            int64_t n = 0;
            while (n < seqlen / 8 && bits[n] == 0xFFu) n++;
            any_kept = n < seqlen / 8;
            for (int64_t j = n * 8; !any_kept && j < seqlen; j++) any_kept = keep_bit(bits, j);
            if (!any_kept)
                for (int64_t j = 0; j < seqlen; j++) out[j] = args->keep_value;
        }
    } else if (args->mask_type == BOOLEAN) {
        const uint8_t *allowed = (const uint8_t *)mask;
        for (int64_t j = 0; j < seqlen; j++) {
            uint32_t keep = keep_bit(bits, j) & (allowed[j * stride] != 0);
            any_kept |= keep;
            out_bits[j] = (keep - 1u) & negative_infinity;
        }
        if (!any_kept && args->keep_fully_dropped)
            for (int64_t j = 0; j < seqlen; j++)
                out_bits[j] = ((uint32_t)(allowed[j * stride] != 0) - 1u) & negative_infinity;
    } else {
        const float *bias = (const float *)mask;
        float row_max = -INFINITY;
        for (int64_t j = 0; j < seqlen; j++) row_max = bias[j * stride] > row_max ? bias[j * stride] : row_max;
        for (int64_t j = 0; j < seqlen; j++) {
            float value = bias[j * stride];
            uint32_t keep = keep_bit(bits, j);
            any_kept |= keep & (uint32_t)(value > row_max - args->masked_logit_gap && value > args->masked_logit_max);
            out[j] = keep ? value : value + -INFINITY; /* NaN stays NaN */
        }
        if (!any_kept && args->keep_fully_dropped)
            for (int64_t j = 0; j < seqlen; j++) out[j] = bias[j * stride];
    }
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

/* 16 logits of a row from key j on, scaled and masked; -inf past the end of the row. */
static inline Floats masked_logits(const KernelArgs *args, const char *mask, const float *logits, int64_t j,
                                   int64_t seqlen) {
    int64_t count = seqlen - j, stride = args->mask_strides[3];
    Floats scaled = load(logits + j, count, -INFINITY) * args->softmax_scale;
    if (args->mask_type == NO_MASK) return scaled;
    float bias[WIDTH] = {0};
    for (int64_t l = 0; l < WIDTH && l < count; l++)
        if (args->mask_type == BOOLEAN)
            bias[l] = ((const uint8_t *)mask)[(j + l) * stride] ? 0.0f : -INFINITY;
        else
            bias[l] = ((const float *)mask)[(j + l) * stride];
    return scaled + load(bias, WIDTH, 0.0f);
}

/* Overwrite a row of logits with its weights: the softmax first, then the drop. */
static void softmax_row(const KernelArgs *args, const uint8_t *bits, const char *mask, float *logits, int64_t seqlen,
                        float *row_max_out, float *row_scale_out) {
    Floats lane_max = splat(-INFINITY), lane_sum = {0};
    for (int64_t j = 0; j < seqlen; j += WIDTH) {
        Floats scaled = masked_logits(args, mask, logits, j, seqlen);
        lane_max = where(scaled > lane_max, scaled, lane_max);
        store(logits + j, seqlen - j, scaled);
    }
    float row_max = -INFINITY, row_sum = 0.0f;
    for (int l = 0; l < WIDTH; l++) row_max = lane_max[l] > row_max ? lane_max[l] : row_max;
    if (row_max == -INFINITY) row_max = 0.0f;
    for (int64_t j = 0; j < seqlen; j += WIDTH) {
        Floats p = exponential(load(logits + j, seqlen - j, -INFINITY) - row_max);
        lane_sum += p;
        store(logits + j, seqlen - j, p);
    }
    for (int l = 0; l < WIDTH; l++) row_sum += lane_sum[l];
    /* A row without an allowed key has no weights; NaN is not equal to 0. */
    float row_scale = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;
    Floats keep = splat(row_scale * args->keep_value), drop = splat(row_scale * args->drop_value);
    for (int64_t j = 0; j < seqlen; j += WIDTH)
        store(logits + j, seqlen - j, load(logits + j, seqlen - j, 0.0f) * where(dropped_from(bits, j), drop, keep));
    *row_max_out = row_max;
    *row_scale_out = row_scale;
}

/* Overwrite a row of logits with its weights, and dp, the gradients of the weights, with ds, those of the logits. */
static void softmax_backward_row(const KernelArgs *args, const uint8_t *bits, const char *mask, float *logits,
                                 float *dp, int64_t seqlen, float row_max, float row_scale, float delta) {
    Floats keep = splat(args->keep_value), drop = splat(args->drop_value);
    for (int64_t j = 0; j < seqlen; j += WIDTH) {
        Floats p = exponential(masked_logits(args, mask, logits, j, seqlen) - row_max) * row_scale;
        Floats factors = where(dropped_from(bits, j), drop, keep);
        Floats dp_j = load(dp + j, seqlen - j, 0.0f);
        store(dp + j, seqlen - j, p * (dp_j * factors - delta) * args->softmax_scale);
        store(logits + j, seqlen - j, p * factors);
    }
}

/* Process rows `first` to `last` of all num_bh * num_m, in batches of up to ROWS_PER_BATCH rows of one head. */
static void process(void *arg, int64_t first, int64_t last) {
    const KernelArgs *args = arg;
    const DropSpec *spec = &args->spec;
    int64_t blocks = (spec->seqlen_k + 7) / 8, count = (spec->seqlen_k + 63) / 64;
    int is_column = spec->unit == COLUMN, needs_dilation = spec->window != 1 || (spec->unit != ELEMENT && !is_column);
    uint8_t starts[ROWS_PER_BATCH * blocks + LANES + 8], scratch[spec->grid_h + 1];
    uint64_t words[count], valid[count];
    if (spec->unit == BLOCK || spec->unit == CROSS) valid_starts(spec, valid, count);
    int64_t column_bh = -1; /* head whose column bits are in `starts` */
    for (int64_t n = first; n < last;) {
        int64_t off_bh = args->off_bh + n / args->num_m, row = args->off_m + n % args->num_m;
        int64_t rows = args->off_m + args->num_m - row;
        if (rows > ROWS_PER_BATCH) rows = ROWS_PER_BATCH;
        if (rows > last - n) rows = last - n;
        if (!is_column || column_bh != off_bh)
            window_starts(spec, off_bh, is_column ? 0 : row, is_column ? 1 : rows, starts);
        for (int64_t i = 0; i < rows; i++) {
            const uint8_t *bits = starts + (is_column ? 0 : i * blocks);
            if (needs_dilation) {
                if (!is_column || (i == 0 && column_bh != off_bh)) {
                    words[count - 1] = 0;
                    memcpy(words, bits, (size_t)blocks);
                    dilate(spec, words, valid, count, scratch);
                }
                bits = (const uint8_t *)words;
            }
            const char *mask = args->mask;
            if (mask) {
                int64_t size = args->mask_type == BOOLEAN ? 1 : (int64_t)sizeof(float);
                int64_t batch = off_bh / args->num_heads, head = off_bh % args->num_heads;
                const int64_t *strides = args->mask_strides;
                mask += size * (batch * strides[0] + head * strides[1] + (row + i) * strides[2]);
            }
            float *out = args->out + (n + i) * spec->seqlen_k, *dp = args->dp;
            int64_t stat = off_bh * args->seqlen_q + row + i, seqlen = spec->seqlen_k;
            if (args->causal && row + i + 1 < seqlen) seqlen = row + i + 1;
            float future = 0.0f;
            if (args->op == FILL_MASK) {
                fill_row(args, bits, mask, out, seqlen);
                future = -INFINITY;
            } else if (args->op == SOFTMAX) {
                softmax_row(args, bits, mask, out, seqlen, args->row_max + stat, args->row_scale + stat);
            } else {
                dp += (n + i) * spec->seqlen_k;
                softmax_backward_row(args, bits, mask, out, dp, seqlen, args->row_max[stat], args->row_scale[stat],
                                     args->delta[stat]);
            }
            for (int64_t j = seqlen; j < spec->seqlen_k; j++) out[j] = future;
            if (args->op == SOFTMAX_BACKWARD)
                for (int64_t j = seqlen; j < spec->seqlen_k; j++) dp[j] = 0.0f;
        }
        column_bh = off_bh;
        n += rows;
    }
}

/* Perform `op` on `out`. */
void run_kernel(KernelArgs *args, Parallel parallel) {
    process_rows(process, args, args->num_bh * args->num_m, ROWS_PER_CHUNK, args->num_threads, parallel);
}
