/* A feed-forward network on one token, for the outputs that a mask keeps: called by cpu_feedforward.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "threads.h"

/* For fewer multiplications than MIN_WORK per thread, waking a thread costs more than it saves. */
enum { LANES = 32, ROWS_PER_CHUNK = 64, MIN_WORK = 1 << 18 };

typedef struct {
    int64_t dim, hidden_dim;
    const float *x, *residual, *hidden_weight, *out_weight; /* (dim), (dim), (hidden_dim, dim), (dim, hidden_dim) */
    const uint8_t *keep;
    float *hidden, *out; /* `hidden` is scratch */
} Args;

/* Independent sums: the compiler does not reorder additions of floats to vectorize them. */
static float dot(const float *a, const float *b, int64_t count) {
    float sums[LANES] = {0};
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES)
        for (int lane = 0; lane < LANES; lane++) sums[lane] += a[j + lane] * b[j + lane];
    for (int lane = 0; j < count; j++, lane++) sums[lane] += a[j] * b[j];
    for (int width = LANES / 2; width; width /= 2)
        for (int lane = 0; lane < width; lane++) sums[lane] += sums[lane + width];
    return sums[0];
}

static void hidden_rows(void *arg, int64_t first, int64_t last, int64_t thread) {
    const Args *args = arg;
    for (int64_t row = first; row < last; row++) {
        float x = dot(args->hidden_weight + row * args->dim, args->x, args->dim);
        args->hidden[row] = 0.5f * x * (1.0f + erff(x * 0.70710678f));
    }
}

static void kept_rows(void *arg, int64_t first, int64_t last, int64_t thread) {
    const Args *args = arg;
    for (int64_t row = first; row < last; row++)
        if (args->keep[row])
            args->out[row] += dot(args->out_weight + row * args->hidden_dim, args->hidden, args->hidden_dim);
}

/* out = residual + keep ⊙ (out_weight · GELU(hidden_weight · x)); without kept outputs no weight is read. */
void add_feedforward(Args *args, int32_t num_threads, Parallel parallel) {
    int64_t kept = 0, rows, threads;
    for (int64_t row = 0; row < args->dim; row++) kept += args->keep[row];
    memcpy(args->out, args->residual, args->dim * sizeof(float));
    if (!kept) return;
    threads = args->hidden_dim * args->dim / MIN_WORK;
    threads = threads < 1 ? 1 : threads < num_threads ? threads : num_threads;
    process_rows(hidden_rows, args, args->hidden_dim, ROWS_PER_CHUNK, (int32_t)threads, parallel);
    threads = args->hidden_dim * kept / MIN_WORK;
    threads = threads < 1 ? 1 : threads < num_threads ? threads : num_threads;
    process_rows(kept_rows, args, args->dim, ROWS_PER_CHUNK, (int32_t)threads, parallel);
}
