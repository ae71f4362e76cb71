/* Matrix products in float32 with AVX-512: called by cpu_sgemm.py, and by cpu_fused.c in place of the BLAS function.

   MKL uses AVX-512 on Intel's processors only. The algorithm is that of GotoBLAS (Goto and van de Geijn, 2008): a block
   of b is copied into panels that fit the caches, and tiles of c are accumulated in registers. A sum over k is computed
   in the same order for every element, so results depend neither on the number of threads nor on the other rows. */

#include <stdint.h>

#if !defined(__AVX512F__)
#error "it needs AVX-512"
#endif
#include <immintrin.h>

#include "threads.h"

/* A tile has up to 14 rows of two vectors: 28 of the 32 registers. Blocks of b have up to DEPTH rows and COLUMNS
   columns, in panels of PANEL columns; those of a, up to TILES tiles of rows. */
enum { WIDTH = 16, ROWS = 14, PANEL = 2 * WIDTH, DEPTH = 384, COLUMNS = 512, TILES = 8, AHEAD = 16, MIN_CHUNK = 64 };

/* c (m, n) = alpha * a @ b + beta * c + bias, row-major; a transposed matrix is stored as its transpose. */
typedef struct {
    const float *a, *b, *bias; /* bias (n), or null */
    float *c;
    int64_t m, n, k, stride_a, stride_b, stride_c; /* strides of rows as stored, in elements */
    int32_t trans_a, trans_b;
    float alpha, beta;
} Product;

#define INLINE static inline __attribute__((always_inline))

static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

/* The first `count` lanes of a vector. */
static inline __mmask16 first_lanes(int64_t count) { return count >= WIDTH ? 0xFFFF : (__mmask16)((1u << count) - 1); }

INLINE __m512 pairs(__m512 x, __m512 y, int high) {
    __m512d a = _mm512_castps_pd(x), b = _mm512_castps_pd(y);
    return _mm512_castpd_ps(high ? _mm512_unpackhi_pd(a, b) : _mm512_unpacklo_pd(a, b));
}

INLINE void transpose(__m512 x[WIDTH]) {
    __m512 y[WIDTH];
    for (int i = 0; i < WIDTH; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < WIDTH; i++) x[i] = pairs(y[i / 4 * 4 + i % 4 / 2], y[i / 4 * 4 + i % 4 / 2 + 2], i % 2);
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xDD);
        y[i + 8] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xDD);
    }
    for (int i = 0; i < 8; i++) {
        x[i] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0xDD);
    }
}

/* Copy a block of b (depth, columns) to panels (depth, PANEL), with zeros to the end of the last vector. */
static void pack(const float *b, int64_t stride, int64_t depth, int64_t columns, float *panels) {
    for (int64_t j = 0; j < columns; j += PANEL, panels += depth * PANEL) {
        __mmask16 lanes = first_lanes(columns - j), last = first_lanes(columns > j + WIDTH ? columns - j - WIDTH : 0);
        for (int64_t k = 0; k < depth; k++) {
            const float *row = b + k * stride + j;
            __builtin_prefetch(row + AHEAD * stride);
            __builtin_prefetch(row + AHEAD * stride + WIDTH);
            _mm512_store_ps(panels + k * PANEL, _mm512_maskz_loadu_ps(lanes, row));
            _mm512_store_ps(panels + k * PANEL + WIDTH, _mm512_maskz_loadu_ps(last, row + WIDTH));
        }
    }
}

/* The same of a block that is stored as its transpose. */
static void pack_transposed(const float *b, int64_t stride, int64_t depth, int64_t columns, float *panels) {
    for (int64_t j = 0; j < columns; j += WIDTH)
        for (int64_t k = 0; k < depth; k += WIDTH) {
            __m512 x[WIDTH];
            __mmask16 lanes = first_lanes(depth - k);
            for (int64_t i = 0; i < WIDTH; i++)
                x[i] = j + i < columns ? _mm512_maskz_loadu_ps(lanes, b + (j + i) * stride + k) : _mm512_setzero_ps();
            transpose(x);
            for (int64_t i = 0; i < WIDTH && k + i < depth; i++)
                _mm512_store_ps(panels + (j / PANEL * depth + k + i) * PANEL + j % PANEL, x[i]);
        }
}

/* Compute a tile of c. All but the lengths and strides are constants where this is inlined. */
INLINE void compute_tile(const int rows, const int vectors, const int transposed, const Product *part,
                         const float *panel, int64_t depth) {
    const float *a = part->a, *bias = part->bias;
    int64_t stride = part->stride_a;
    __m512 acc[ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) acc[i][v] = _mm512_setzero_ps();
    /* One pointer for three rows: their addresses are those of the pointer plus 0, 1 or 2 times the stride. */
    const float *row[(ROWS + 2) / 3];
    for (int i = 0; i < (rows + 2) / 3; i++) row[i] = a + 3 * i * stride;
    for (int i = 0; i < rows; i++) /* the output of a layer is rarely in the cache */
        for (int v = 0; v < vectors; v++) __builtin_prefetch(part->c + i * part->stride_c + v * WIDTH, 1);
#pragma GCC unroll 2
    for (int64_t k = 0; k < depth; k++) {
        __m512 b[2];
        for (int v = 0; v < vectors; v++) b[v] = _mm512_load_ps(panel + k * PANEL + v * WIDTH);
        for (int i = 0; i < rows; i++) {
            __m512 x = _mm512_set1_ps(transposed ? a[k * stride + i] : row[i / 3][i % 3 * stride + k]);
            for (int v = 0; v < vectors; v++) acc[i][v] = _mm512_fmadd_ps(x, b[v], acc[i][v]);
        }
    }
    for (int v = 0; v < vectors; v++) {
        __mmask16 lanes = first_lanes(part->n - v * WIDTH);
        __m512 first = bias ? _mm512_maskz_loadu_ps(lanes, bias + v * WIDTH) : _mm512_setzero_ps();
        for (int i = 0; i < rows; i++) {
            float *c = part->c + i * part->stride_c + v * WIDTH;
            __m512 x = _mm512_fmadd_ps(acc[i][v], _mm512_set1_ps(part->alpha), first);
            if (part->beta != 0.0f) /* else c may be uninitialized */
                x = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(lanes, c), _mm512_set1_ps(part->beta), x);
            _mm512_mask_storeu_ps(c, lanes, x);
        }
    }
}

typedef void (*Tile)(const Product *part, const float *panel, int64_t depth);
#define DEFINE(rows, vectors, transposed)                                                                          \
    static void tile_##rows##_##vectors##_##transposed(const Product *part, const float *panel, int64_t depth) { \
        compute_tile(rows, vectors, transposed, part, panel, depth);                                               \
    }
#define DEFINE_ALL(rows) DEFINE(rows, 1, 0) DEFINE(rows, 1, 1) DEFINE(rows, 2, 0) DEFINE(rows, 2, 1)
DEFINE_ALL(1) DEFINE_ALL(2) DEFINE_ALL(3) DEFINE_ALL(4) DEFINE_ALL(5) DEFINE_ALL(6) DEFINE_ALL(7)
DEFINE_ALL(8) DEFINE_ALL(9) DEFINE_ALL(10) DEFINE_ALL(11) DEFINE_ALL(12) DEFINE_ALL(13) DEFINE_ALL(14)
#define NAMES(rows) {{tile_##rows##_1_0, tile_##rows##_1_1}, {tile_##rows##_2_0, tile_##rows##_2_1}}
static const Tile TILE[ROWS][2][2] = {NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5), NAMES(6), NAMES(7),
                                      NAMES(8), NAMES(9), NAMES(10), NAMES(11), NAMES(12), NAMES(13), NAMES(14)};

/* Compute c for all its rows and the columns of the packed panels, from `depth` elements of each sum. */
static void compute_block(const Product *block, const float *panels) {
    int64_t tiles = (block->m + ROWS - 1) / ROWS, groups = (tiles + TILES - 1) / TILES;
    for (int64_t group = 0; group < groups; group++)
        for (int64_t j = 0; j < block->n; j += PANEL)
            for (int64_t tile = tiles * group / groups; tile < tiles * (group + 1) / groups; tile++) {
                int64_t i = block->m * tile / tiles, rows = block->m * (tile + 1) / tiles - i;
                Product part = *block;
                part.n = min(PANEL, block->n - j);
                part.a += block->trans_a ? i : i * block->stride_a;
                part.c += i * block->stride_c + j;
                if (part.bias) part.bias += j;
                TILE[rows - 1][part.n > WIDTH][block->trans_a != 0](&part, panels + j * block->k, block->k);
            }
}

static void multiply(const Product *product) {
    int64_t blocks = (product->k + DEPTH - 1) / DEPTH, depth = (product->k + blocks - 1) / blocks;
    int64_t columns = (min(COLUMNS, product->n) + PANEL - 1) / PANEL * PANEL;
    float panels[depth * columns] __attribute__((aligned(64))); /* at most 768 KiB of the stack */
    for (int64_t j0 = 0; j0 < product->n; j0 += COLUMNS)
        for (int64_t n = 0; n < blocks; n++) {
            Product block = *product;
            int64_t k0 = product->k * n / blocks;
            block.k = product->k * (n + 1) / blocks - k0;
            block.n = min(COLUMNS, product->n - j0);
            block.a += product->trans_a ? k0 * block.stride_a : k0;
            block.b += product->trans_b ? j0 * block.stride_b + k0 : k0 * block.stride_b + j0;
            block.c += j0;
            if (n) block.beta = 1.0f;
            block.bias = product->bias && !n ? product->bias + j0 : 0;
            (block.trans_b ? pack_transposed : pack)(block.b, block.stride_b, block.k, block.n, panels);
            compute_block(&block, panels);
        }
}

/* BLAS, column-major: a row-major matrix is the transpose of a column-major one. At least one element in each sum. */
void sgemm(const char *trans_a, const char *trans_b, const int *m, const int *n, const int *k, const float *alpha,
           const float *a, const int *stride_a, const float *b, const int *stride_b, const float *beta, float *c,
           const int *stride_c) {
    Product product = {b, a, 0, c, *n, *m, *k, *stride_b, *stride_a, *stride_c,
                       *trans_b == 'T', *trans_a == 'T', *alpha, *beta};
    multiply(&product);
}

typedef struct {
    const Product *product;
    int64_t by_columns; /* whether threads share the columns of c instead of its rows */
} Shared;

static void process(void *arg, int64_t first, int64_t last, int64_t thread) {
    const Shared *shared = arg;
    Product part = *shared->product;
    if (shared->by_columns) {
        part.n = last - first;
        part.b += part.trans_b ? first * part.stride_b : first;
        part.c += first;
        if (part.bias) part.bias += first;
    } else {
        part.m = last - first;
        part.a += part.trans_a ? first : first * part.stride_a;
        part.c += first * part.stride_c;
    }
    multiply(&part);
}

/* The product by several threads; at least one element in each sum. */
void multiply_shared(const Product *product, int32_t num_threads, Parallel parallel) {
    Shared shared = {product, product->n > product->m};
    int64_t rows = shared.by_columns ? product->n : product->m;
    /* Two chunks per thread: one that loses its core for a while delays the others by less. */
    int64_t chunk = (rows / (2 * num_threads) + PANEL) / PANEL * PANEL;
    if (chunk < MIN_CHUNK) chunk = MIN_CHUNK;
    process_rows(process, &shared, rows, num_threads > 1 ? chunk : rows, num_threads, parallel);
}
