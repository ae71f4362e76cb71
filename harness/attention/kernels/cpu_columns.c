/* Gathering of the kept keys of each head, and scattering of their gradients: called by cpu_columns.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "threads.h"

enum { ROWS_PER_CHUNK = 64 };

/* For each row of an additive mask (rows, seqlen): `order`, of the same shape, lists the keys that are not masked, then
   the others; `position` is the index of each key in `order`, -1 for masked keys; `max_kept` is the most keys that a
   row keeps. */
void order_keys(
    int64_t rows, int64_t seqlen, const float *mask, int32_t *order, int32_t *position, int64_t *max_kept
) {
    *max_kept = 0;
    for (int64_t n = 0; n < rows; n++, mask += seqlen, order += seqlen, position += seqlen) {
        int32_t kept = 0, next;
        for (int64_t j = 0; j < seqlen; j++) {
            int keep = mask[j] != -INFINITY; /* NaN is kept */
            position[j] = keep ? kept : -1;
            order[kept] = (int32_t)j;
            kept += keep;
        }
        next = kept;
        for (int64_t j = 0; j < seqlen; j++) {
            if (position[j] < 0) order[next++] = (int32_t)j;
        }
        if (kept > *max_kept) *max_kept = kept;
    }
}

typedef struct {
    int64_t strides[3];                     /* batch, head and key strides of `source`, in bytes */
    int64_t batch, heads, count, row_bytes; /* `out` is (batch, count, heads, row_bytes) */
    int64_t num_index;                      /* keys after the first `count` are only checked for infinities and NaN */
    const char *source;
    const int32_t *index; /* (batch, heads, num_index): the key of `source` for each key of `out`; -1: zeros */
    char *out;
    int32_t itemsize, mantissa_bits; /* of a number: 2, 4 or 8 bytes */
    int32_t num_threads;
    int32_t any_nonfinite; /* result: whether a key that was only checked has an infinity or NaN */
} GatherArgs;

#define DEFINE_ANY_NONFINITE(Type, size)                                                                               \
    static int any_nonfinite_##size(const char *source, int64_t count, int32_t mantissa_bits) {                        \
        Type exponent = (Type)((Type)~(Type)0 >> 1) >> mantissa_bits << mantissa_bits, nonfinite = 0;                  \
        for (int64_t n = 0; n < count; n++) {                                                                          \
            Type bits;                                                                                                 \
            memcpy(&bits, source + n * sizeof bits, sizeof bits);                                                      \
            nonfinite |= (Type)((bits & exponent) == exponent);                                                        \
        }                                                                                                              \
        return nonfinite != 0;                                                                                         \
    }
DEFINE_ANY_NONFINITE(uint16_t, 2)
DEFINE_ANY_NONFINITE(uint32_t, 4)
DEFINE_ANY_NONFINITE(uint64_t, 8)

static inline int any_nonfinite(const GatherArgs *args, const char *source, int64_t bytes) {
    if (args->itemsize == 2) return any_nonfinite_2(source, bytes / 2, args->mantissa_bits);
    if (args->itemsize == 4) return any_nonfinite_4(source, bytes / 4, args->mantissa_bits);
    return any_nonfinite_8(source, bytes / 8, args->mantissa_bits);
}

static inline int gather_rows(const GatherArgs *args, int64_t first, int64_t last, int64_t bytes) {
    int nonfinite = 0;
    for (int64_t n = first; n < last; n++) {
        int64_t b = n / args->num_index, i = n % args->num_index;
        char *out = args->out + (b * args->count + i) * args->heads * bytes;
        for (int64_t h = 0; h < args->heads; h++, out += bytes) {
            int32_t key = args->index[(b * args->heads + h) * args->num_index + i];
            const char *source = args->source + b * args->strides[0] + h * args->strides[1] + key * args->strides[2];
            if (i >= args->count)
                nonfinite |= any_nonfinite(args, source, bytes);
            else if (key < 0)
                memset(out, 0, (size_t)bytes);
            else
                memcpy(out, source, (size_t)bytes);
        }
    }
    return nonfinite;
}

static void process(void *arg, int64_t first, int64_t last, int64_t thread) {
    GatherArgs *args = arg;
    /* With a constant size the copy is inlined. */
    int nonfinite = args->row_bytes == 256 ? gather_rows(args, first, last, 256)
                                           : gather_rows(args, first, last, args->row_bytes);
    if (nonfinite) __atomic_store_n(&args->any_nonfinite, 1, __ATOMIC_RELAXED);
}

/* Gather the rows of `source` into `out`. */
void gather_keys(GatherArgs *args, Parallel parallel) {
    process_rows(process, args, args->batch * args->num_index, ROWS_PER_CHUNK, args->num_threads, parallel);
}
