/* Attention with dropped keys or weights, forward and backward, without a stored mask: called by cpu_fused.py.

   Each thread computes blocks of queries of one head from start to end, matrix products included: threads wait for each
   other once per call, so one that loses its core for a while delays the others little. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "drop_bits.h"
#include "logits.h"
#include "mask.h"
#include "threads.h"

enum { Q, K, V, OUT, D_OUT, DQ, DK, DV, NUM_TENSORS };

/* BLAS, with column-major matrices. */
typedef void (*Sgemm)(const char *, const char *, const int *, const int *, const int *, const float *, const float *,
                      const int *, const float *, const int *, const float *, float *, const int *);

typedef struct {
    DropSpec spec;
    Mask mask;
    int64_t strides[NUM_TENSORS][4]; /* part, batch, head, row, in elements */
    float *tensors[NUM_TENSORS];     /* dk and dv: one sum per part; without gradients, forward */
    float *row_max, *row_scale; /* (batch, heads, seqlen_q): the softmax is exp(logit - row_max) * row_scale */
    float *full_max, *full_scale; /* detached: the same of the softmax over all keys */
    float *scratch;
    Sgemm sgemm;
    int (*set_blas_threads)(int); /* MKL's, of the calling thread; returns the former number. Null for other BLAS */
    int64_t num_bh, num_heads, seqlen_q, head_dim, head_dim_v;
    int64_t rows_per_part;             /* the queries of each head are split into parts, one thread's work; */
    int64_t rows_per_block;            /* and those of a part into blocks, ... */
    int64_t keys_per_block;            /* ... whose logits with this number of keys, a multiple of WIDTH, are in memory */
    int64_t logits_numel, bits_numel;  /* scratch memory of a thread: logits, bits, and logits again for backward */
    float softmax_scale, keep_scale; /* factors of logits, and of kept weights */
    int32_t renormalize; /* whether keys are dropped before the softmax; a row without any other keeps them */
    int32_t detached;    /* whether, in addition, no gradient flows through the sum of the kept weights */
    int32_t top;         /* above 0: a key is dropped only if its logit is one of the `top` largest of a row, and its
                            logit becomes 0; all keys are in one block */
    int32_t causal;      /* whether query i attends to keys 0 to i only */
    int32_t num_threads;
} FusedArgs;

typedef struct {
    const FusedArgs *args;
    int64_t off_bh, row, rows; /* queries */
    float keys_beta; /* factor of the gradients of keys and values so far: 0 for the first queries of a part, else 1 */
    int64_t key, keys;         /* keys, a block of those of the head */
    float *logits, *dp;        /* (rows, keys_per_block) */
    uint8_t *bits;             /* drop decisions of the rows, for all keys of the head */
    float *matrix[NUM_TENSORS];
} Block;

static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

/* c (m, n) = scale * a @ b + beta * c, row-major; a transposed matrix 'T' is stored as its transpose. */
static inline void matmul(Sgemm sgemm, char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float scale,
                          const float *a, int64_t stride_a, const float *b, int64_t stride_b, float beta, float *c,
                          int64_t stride_c) {
    int sizes[] = {(int)n, (int)m, (int)k}, strides[] = {(int)stride_b, (int)stride_a, (int)stride_c};
    sgemm(&trans_b, &trans_a, &sizes[0], &sizes[1], &sizes[2], &scale, b, &strides[0], a, &strides[1], &beta, c,
          &strides[2]);
}

/* Row stride of a tensor. */
static inline int64_t stride(const Block *block, int tensor) { return block->args->strides[tensor][3]; }

static inline const void *block_mask_row(const Block *block, int64_t i) {
    int64_t num_heads = block->args->num_heads;
    return mask_row(&block->args->mask, block->off_bh / num_heads, block->off_bh % num_heads, block->row + i);
}

/* Draw the drop decisions of the block's rows. */
static void draw(const Block *block, const uint64_t *valid) {
    const FusedArgs *args = block->args;
    int64_t seqlen_k = args->spec.seqlen_k, blocks = (seqlen_k + 7) / 8;
    int is_column = args->spec.unit == COLUMN;
    drop_rows(&args->spec, valid, block->off_bh, is_column ? 0 : block->row, is_column ? 1 : block->rows, block->bits);
    for (int64_t i = 1; is_column && i < block->rows; i++) memcpy(block->bits + i * blocks, block->bits, (size_t)blocks);
    for (int64_t i = 0; args->renormalize && i < block->rows; i++) {
        int64_t seqlen = args->causal ? min(seqlen_k, block->row + i + 1) : seqlen_k;
        uint8_t *bits = block->bits + i * blocks;
        if (!any_kept(&args->mask, block_mask_row(block, i), bits, seqlen)) memset(bits, 0, (size_t)blocks);
    }
}

/* Logits of the block, scaled and masked; -inf past the last key of a row. NaN stays NaN. */
static void compute_logits(const Block *block) {
    const FusedArgs *args = block->args;
    int64_t ld = args->keys_per_block, keys = block->keys, key_stride = args->mask.strides[3];
    matmul(args->sgemm, 'N', 'T', block->rows, keys, args->head_dim, args->softmax_scale, block->matrix[Q],
           stride(block, Q), block->matrix[K], stride(block, K), 0.0f, block->logits, ld);
    for (int64_t i = 0; i < block->rows; i++) {
        float *logits = block->logits + i * ld;
        const void *mask = block_mask_row(block, i);
        if (args->mask.type == BOOLEAN) {
            const uint8_t *allowed = (const uint8_t *)mask + block->key * key_stride;
            for (int64_t j = 0; j < keys; j++) logits[j] += allowed[j * key_stride] ? 0.0f : -INFINITY;
        } else if (args->mask.type == ADDITIVE) {
            const float *bias = (const float *)mask + block->key * key_stride;
            for (int64_t j = 0; j < keys; j++) logits[j] += bias[j * key_stride];
        }
        uint8_t *bits = block->bits + i * ((args->spec.seqlen_k + 7) / 8);
        if (args->renormalize && !args->detached) drop(logits, bits, block->key, keys);
        int64_t allowed_keys = args->causal ? min(keys, block->row + i + 1 - block->key) : keys;
        for (int64_t j = allowed_keys > 0 ? allowed_keys : 0; j % WIDTH || j < keys; j++) logits[j] = -INFINITY;
        if (args->top) zero_top(logits, bits, keys, args->top);
    }
}

/* Add a block of keys to the output, which is the sum over the keys of exponential times value. */
static void forward(const Block *block, float *row_max, float *row_sum, float *full_max, float *full_sum) {
    const FusedArgs *args = block->args;
    int64_t ld = args->keys_per_block, head_dim = args->head_dim_v, blocks = (args->spec.seqlen_k + 7) / 8;
    compute_logits(block);
    for (int64_t i = 0; i < block->rows; i++) {
        float *logits = block->logits + i * ld;
        const uint8_t *bits = args->top ? 0 : block->bits + i * blocks;
        if (args->detached) {
            memcpy(block->dp, logits, (size_t)(block->keys + WIDTH - 1) / WIDTH * WIDTH * sizeof *logits);
            exponentiate(block->dp, 0, block->key, block->keys, full_max + i, full_sum + i);
            drop(logits, bits, block->key, block->keys);
        }
        float rescale = exponentiate(logits, bits, block->key, block->keys, row_max + i, row_sum + i);
        float *out = block->matrix[OUT] + i * stride(block, OUT);
        if (block->key && rescale != 1.0f)
            for (int64_t e = 0; e < head_dim; e++) out[e] *= rescale;
    }
    matmul(args->sgemm, 'N', 'N', block->rows, head_dim, block->keys, 1.0f, block->logits, ld, block->matrix[V],
           stride(block, V), block->key ? 1.0f : 0.0f, block->matrix[OUT], stride(block, OUT));
}

/* Scale the output, and store the statistics of the softmax. */
static void finish_forward(const Block *block, const float *row_max, const float *row_sum, const float *full_max,
                           const float *full_sum) {
    const FusedArgs *args = block->args;
    int64_t stat = block->off_bh * args->seqlen_q + block->row;
    for (int64_t i = 0; i < block->rows; i++) {
        float row_scale = store_stats(args->row_max + stat + i, args->row_scale + stat + i, row_max[i], row_sum[i]);
        if (args->detached)
            store_stats(args->full_max + stat + i, args->full_scale + stat + i, full_max[i], full_sum[i]);
        float *out = block->matrix[OUT] + i * stride(block, OUT);
        for (int64_t e = 0; e < args->head_dim_v; e++) out[e] *= row_scale * args->keep_scale;
    }
}

/* Add a block of keys to the gradients; delta = sum(output * gradient) per row. */
static void backward(const Block *block, const float *delta) {
    const FusedArgs *args = block->args;
    int64_t ld = args->keys_per_block, blocks = (args->spec.seqlen_k + 7) / 8;
    int64_t rows = block->rows, keys = block->keys, stat = block->off_bh * args->seqlen_q + block->row;
    float *const *matrix = block->matrix;
    compute_logits(block);
    matmul(args->sgemm, 'N', 'T', rows, keys, args->head_dim_v, 1.0f, matrix[D_OUT], stride(block, D_OUT), matrix[V],
           stride(block, V), 0.0f, block->dp, ld);
    Floats keep = splat(args->keep_scale);
    for (int64_t i = 0; i < rows; i++) {
        float *logits = block->logits + i * ld, *dp = block->dp + i * ld;
        float row_max = args->row_max[stat + i], row_scale = args->row_scale[stat + i];
        if (args->detached) {
            float full_max = args->full_max[stat + i], full_scale = args->full_scale[stat + i];
            for (int64_t j = 0; j < keys; j += WIDTH) {
                Floats x = load(logits + j), weight = exponential(x - full_max) * full_scale;
                Floats kept = where(dropped_from(block->bits + i * blocks, block->key + j), splat(-INFINITY), x);
                Floats p = exponential(kept - row_max) * row_scale;
                store(dp + j, p * load(dp + j) - weight * delta[i]);
                store(logits + j, p);
            }
            continue;
        }
        if (args->top) {
            for (int64_t j = 0; j < keys; j += WIDTH) {
                Floats p = exponential(load(logits + j) - row_max) * row_scale;
                Floats ds = p * (load(dp + j) - delta[i]);
                store(dp + j, (Floats)(~dropped_from(block->bits + i * blocks, j) & (Ints)ds));
                store(logits + j, p);
            }
            continue;
        }
        for (int64_t j = 0; j < keys; j += WIDTH) {
            Floats p = exponential(load(logits + j) - row_max) * row_scale;
            Floats factors = (Floats)(~dropped_from(block->bits + i * blocks, block->key + j) & (Ints)keep);
            store(dp + j, p * (load(dp + j) * factors - delta[i]));
            store(logits + j, p * factors);
        }
    }
    matmul(args->sgemm, 'N', 'N', rows, args->head_dim, keys, args->softmax_scale, block->dp, ld, matrix[K],
           stride(block, K), block->key ? 1.0f : 0.0f, matrix[DQ], stride(block, DQ));
    matmul(args->sgemm, 'T', 'N', keys, args->head_dim, rows, args->softmax_scale, block->dp, ld, matrix[Q],
           stride(block, Q), block->keys_beta, matrix[DK], stride(block, DK));
    matmul(args->sgemm, 'T', 'N', keys, args->head_dim_v, rows, 1.0f, block->logits, ld, matrix[D_OUT],
           stride(block, D_OUT), block->keys_beta, matrix[DV], stride(block, DV));
}

/* Point to the block's first row of each tensor: of queries, or of keys. */
static void locate(Block *block, int64_t part) {
    const FusedArgs *args = block->args;
    int64_t batch = block->off_bh / args->num_heads, head = block->off_bh % args->num_heads;
    for (int t = 0; t < NUM_TENSORS; t++) {
        const int64_t *strides = args->strides[t];
        int64_t row = t == K || t == V || t == DK || t == DV ? block->key : block->row;
        if (args->tensors[t])
            block->matrix[t] =
                args->tensors[t] + part * strides[0] + batch * strides[1] + head * strides[2] + row * strides[3];
    }
}

/* Process parts `first` to `last` of all num_bh * parts. */
static void process(void *arg, int64_t first, int64_t last, int64_t thread) {
    const FusedArgs *args = arg;
    /* Where MKL has several threads, it copies matrices before it finds that a product is too small to share. */
    int blas_threads = args->set_blas_threads ? args->set_blas_threads(1) : 0;
    int64_t seqlen_k = args->spec.seqlen_k, parts = (args->seqlen_q + args->rows_per_part - 1) / args->rows_per_part;
    float *scratch = args->scratch + thread * (2 * args->logits_numel + args->bits_numel);
    Block block = {args, .logits = scratch, .dp = scratch + args->logits_numel,
                   .bits = (uint8_t *)(scratch + 2 * args->logits_numel)};
    float row_max[args->rows_per_block], row_sum[args->rows_per_block]; /* backward: row_sum is delta */
    float full_max[args->rows_per_block], full_sum[args->rows_per_block];
    uint64_t valid[(seqlen_k + 63) / 64];
    if (args->spec.unit == BLOCK || args->spec.unit == CROSS) valid_starts(&args->spec, valid, (seqlen_k + 63) / 64);
    for (int64_t n = first; n < last; n++) {
        int64_t part = n % parts, end = min(args->seqlen_q, (part + 1) * args->rows_per_part);
        block.off_bh = n / parts;
        for (block.row = part * args->rows_per_part; block.row < end; block.row += block.rows) {
            block.rows = min(args->rows_per_block, end - block.row);
            block.key = 0;
            /* The first queries of a causal call do not attend to all keys, whose gradients cpu_fused.py sets to 0. */
            block.keys_beta = args->causal || block.row > part * args->rows_per_part ? 1.0f : 0.0f;
            locate(&block, part);
            draw(&block, valid);
            for (int64_t i = 0; i < block.rows; i++) {
                row_max[i] = full_max[i] = -INFINITY;
                row_sum[i] = full_sum[i] = 0.0f;
                if (!args->tensors[DQ]) continue;
                row_sum[i] = dot(block.matrix[OUT] + i * stride(&block, OUT),
                                 block.matrix[D_OUT] + i * stride(&block, D_OUT), args->head_dim_v);
            }
            int64_t allowed_keys = args->causal ? min(seqlen_k, block.row + block.rows) : seqlen_k;
            for (; block.key < allowed_keys; block.key += block.keys) {
                block.keys = min(args->keys_per_block, allowed_keys - block.key);
                locate(&block, part);
                if (args->tensors[DQ])
                    backward(&block, row_sum);
                else
                    forward(&block, row_max, row_sum, full_max, full_sum);
            }
            block.key = 0;
            locate(&block, part);
            if (!args->tensors[DQ]) finish_forward(&block, row_max, row_sum, full_max, full_sum);
        }
    }
    if (args->set_blas_threads) args->set_blas_threads(blas_threads);
}

/* Compute `out`, `row_max` and `row_scale`, or the gradients. */
void attend(FusedArgs *args, Parallel parallel) {
    int64_t parts = (args->seqlen_q + args->rows_per_part - 1) / args->rows_per_part;
    process_rows(process, args, args->num_bh * parts, 1, args->num_threads, parallel);
}
