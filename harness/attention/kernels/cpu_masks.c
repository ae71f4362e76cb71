/* Drop masks in one pass over the rows: called by cpu_masks.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "drop_bits.h"
#include "mask.h"
#include "threads.h"
#include "vectors.h"

enum { ROWS_PER_BATCH = 16, ROWS_PER_CHUNK = 4 * ROWS_PER_BATCH };

typedef struct {
    DropSpec spec;
    Mask mask;
    int64_t num_heads;
    int64_t off_bh, num_bh; /* part to fill: first batch * num_heads + head, and their number; */
    int64_t off_m, num_m;   /* first row of each, and their number */
    float *out;             /* (num_bh, num_m, seqlen_k): the additive mask */
    int32_t causal;         /* whether query i attends to keys 0 to i only */
    int32_t num_threads;
} KernelArgs;

/* Fill one row of the mask, for the first `seqlen` keys. */
static void fill_row(const KernelArgs *args, const uint8_t *bits, const void *mask, float *out, int64_t seqlen) {
    int64_t stride = args->mask.strides[3];
    if (args->mask.type == NO_MASK) {
        Floats keep = splat(0.0f), drop = splat(-INFINITY);
        for (int64_t j = 0; j < seqlen; j += WIDTH)
            store_first(out + j, seqlen - j, where(dropped_from(bits, j), drop, keep));
    } else if (args->mask.type == BOOLEAN) {
        const uint32_t negative_infinity = 0xFF800000u;
        const uint8_t *allowed = mask;
        uint32_t *out_bits = (uint32_t *)out;
        for (int64_t j = 0; j < seqlen; j++)
            out_bits[j] = ((keep_bit(bits, j) & (allowed[j * stride] != 0)) - 1u) & negative_infinity;
    } else {
        const float *bias = mask;
        for (int64_t j = 0; j < seqlen; j++) /* NaN stays NaN */
            out[j] = bias[j * stride] + (keep_bit(bits, j) ? 0.0f : -INFINITY);
    }
}

/* Fill rows `first` to `last` of all num_bh * num_m, in batches of up to ROWS_PER_BATCH rows of one head. */
static void fill_rows(void *arg, int64_t first, int64_t last, int64_t thread) {
    const KernelArgs *args = arg;
    const DropSpec *spec = &args->spec;
    int64_t seqlen_k = spec->seqlen_k, blocks = (seqlen_k + 7) / 8, count = (seqlen_k + 63) / 64;
    int is_column = spec->unit == COLUMN;
    uint8_t bits[ROWS_PER_BATCH * blocks + LANES + 8], no_bits[blocks + 8];
    uint64_t valid[count];
    memset(no_bits, 0, sizeof no_bits);
    if (spec->unit == BLOCK || spec->unit == CROSS) valid_starts(spec, valid, count);
    int64_t column_bh = -1; /* head whose column bits are in `bits` */
    for (int64_t n = first; n < last;) {
        int64_t off_bh = args->off_bh + n / args->num_m, row = args->off_m + n % args->num_m;
        int64_t rows = args->off_m + args->num_m - row;
        if (rows > ROWS_PER_BATCH) rows = ROWS_PER_BATCH;
        if (rows > last - n) rows = last - n;
        if (!is_column)
            drop_rows(spec, valid, off_bh, row, rows, bits);
        else if (column_bh != off_bh)
            drop_rows(spec, valid, off_bh, 0, 1, bits);
        column_bh = off_bh;
        for (int64_t end = n + rows; n < end; n++, row++) {
            const void *mask = mask_row(&args->mask, off_bh / args->num_heads, off_bh % args->num_heads, row);
            float *out = args->out + n * seqlen_k;
            int64_t seqlen = args->causal && row + 1 < seqlen_k ? row + 1 : seqlen_k;
            const uint8_t *row_bits = bits + (is_column ? 0 : (rows - (end - n)) * blocks);
            /* A row whose allowed keys are all dropped keeps them. */
            if (!any_kept(&args->mask, mask, row_bits, seqlen)) row_bits = no_bits;
            fill_row(args, row_bits, mask, out, seqlen);
            for (int64_t j = seqlen; j < seqlen_k; j++) out[j] = -INFINITY;
        }
    }
}

/* Fill `out`. */
void fill_mask(KernelArgs *args, Parallel parallel) {
    process_rows(fill_rows, args, args->num_bh * args->num_m, ROWS_PER_CHUNK, args->num_threads, parallel);
}
