/* Masks of dropped keys, made row by row in one pass: see harness/kernels/__init__.py, which builds and calls this.

   Random bits are Philox 4x32 with 7 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): the
   block with counter (j / 8, i, b * heads + h, stream) decides the keys j to j + 7 of query i, 16 bits each. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "vectors.h"

enum { ELEMENT, COLUMN, BLOCK, CROSS };
enum { NO_MASK, BOOLEAN, ADDITIVE };
enum { MASK, WEIGHTS, SLOPES };
enum { ROUNDS = 7, TOGETHER = 16, SHARE = 4 * TOGETHER };

typedef struct {
    int64_t heads, queries, keys;          /* of the whole */
    int64_t place, places, row, rows;      /* what of it is filled: places are batch * heads + head */
    uint64_t key;
    uint32_t stream, threshold; /* a key is a seed where its 16 bits are below the threshold */
    int32_t unit, window, high, wide, prefix;
    int32_t mask_kind;
    const void *mask;
    int64_t mask_strides[4]; /* in elements */
    float *out;          /* (places, rows, keys): the mask; or logits, which become weights */
    float *slopes;       /* of the same shape: gradients of the weights, which become those of the logits; or null */
    float *origins, *shares, *delta; /* (batch, heads, queries): a row's weights are exp(logit - origin) * share; the sum
                                        of its output times its gradient */
    float scale;         /* of the logits */
    int32_t what;
    float unseen, least; /* additive masks: what is further below a row's best, or as low as this, is forbidden */
    float kept, gone;    /* what is written for a kept and for a dropped key; 0 and -inf where there is a mask */
    int32_t spare;       /* whether a row that would lose every key loses none */
    int32_t causal;      /* whether query i attends to keys 0 to i only */
    int32_t threads;
} Job;

/* The seeds of `rows` rows as bytes of eight keys each, the lowest bit first, row behind row; in whole vectors, so that
   `bytes` needs room for LANES - 1 more. */
static void seeds(const Job *job, int64_t place, int64_t row, int64_t rows, uint8_t *bytes) {
    int64_t blocks = (job->keys + 7) / 8;
    if (job->threshold > 0xFFFFu) {
        memset(bytes, 0xFF, (size_t)(rows * blocks));
        return;
    }
    union {
        Vector vector;
        uint64_t lane[LANES];
    } first, line;
    for (int block = 0; block < LANES; block++) {
        first.lane[LANE(block)] = (uint64_t)(block % blocks);
        line.lane[LANE(block)] = (uint64_t)(row + block / blocks);
    }
    Vector c0 = first.vector, c1 = line.vector, on = all((uint64_t)(LANES % blocks)), down = all((uint64_t)(LANES / blocks));
    Vector m0 = all(0xD2511F53u), m1 = all(0xCD9E8D57u), c2 = all((uint64_t)place), c3 = all(job->stream);
    Vector wide = all((uint64_t)blocks), low[ROUNDS], high[ROUNDS];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        low[round] = all((uint32_t)job->key + round * 0x9E3779B9u);
        high[round] = all((uint32_t)(job->key >> 32) + round * 0xBB67AE85u);
    }
    for (int64_t n = 0; n < rows * blocks; n += LANES) {
        Vector x[4] = {c0, c1, c2, c3};
        for (int round = 0; round < ROUNDS; round++) {
            Vector a = times(x[0], m0), b = times(x[2], m1);
            x[0] = xor3(upper(b), x[1], low[round]);
            x[1] = b;
            x[2] = xor3(upper(a), x[3], high[round]);
            x[3] = a;
        }
        uint64_t found = below(x, job->threshold);
        memcpy(bytes + n, &found, LANES);
        advance(&c0, &c1, wide, on, down);
    }
}

/* words |= words << by, for rows of `count` words of 64 keys. */
static void grow_by(uint64_t *words, int64_t count, int64_t by) {
    int64_t whole = by / 64, rest = by % 64;
    for (int64_t n = count - 1; n >= whole; n--) {
        uint64_t moved = words[n - whole] << rest;
        if (rest && n > whole) moved |= words[n - whole - 1] >> (64 - rest);
        words[n] |= moved;
    }
}

/* Each seed and the window - 1 places to its right, `step` apart. */
static void grow(uint64_t *words, int64_t count, int64_t window, int64_t step) {
    int64_t have = 1;
    while (have < window) {
        int64_t by = have < window - have ? have : window - have;
        grow_by(words, count, by * step);
        have += by;
    }
}

/* The side of a window, which is at most the shorter of the grid's. */
static int64_t side_of(const Job *job) {
    int64_t side = job->window;
    if (side > job->high) side = job->high;
    return side > job->wide ? job->wide : side;
}

/* The keys whose window lies within the grid: no others are seeds. */
static void valid_seeds(const Job *job, uint64_t *words, int64_t count) {
    int64_t side = side_of(job);
    memset(words, 0, (size_t)count * 8);
    for (int64_t high = 0; high <= job->high - side; high++)
        for (int64_t wide = 0; wide <= job->wide - side; wide++) {
            int64_t n = job->prefix + high * job->wide + wide;
            words[n >> 6] |= (uint64_t)1 << (n & 63);
        }
}

/* words |= the lowest `length` bits of `bits`, from place n on; length is at most 64. */
static inline void put(uint64_t *words, int64_t n, uint64_t bits, int64_t length) {
    words[n >> 6] |= bits << (n & 63);
    if ((n & 63) + length > 64) words[(n >> 6) + 1] |= bits >> (64 - (n & 63));
}

/* Whole rows and columns of the grid, by the seeds in them. */
static void cross(const Job *job, uint64_t *words, int64_t count, uint8_t *rows) {
    int64_t side = side_of(job), parts = (job->wide + 63) / 64;
    uint64_t columns[parts];
    memset(rows, 0, (size_t)job->high);
    memset(columns, 0, (size_t)parts * 8);
    int any = 0;
    for (int64_t n = 0; n < count; n++)
        for (uint64_t left = words[n]; left; left &= left - 1) {
            int32_t cell = (int32_t)(n * 64 + __builtin_ctzll(left)) - job->prefix, wide = cell % job->wide;
            memset(rows + cell / job->wide, 1, (size_t)side);
            for (int64_t l = 0; l < side; l++) columns[(wide + l) >> 6] |= (uint64_t)1 << ((wide + l) & 63);
            any = 1;
        }
    if (!any) return;
    memset(words, 0, (size_t)count * 8);
    for (int64_t high = 0; high < job->high; high++)
        for (int64_t part = 0; part < parts; part++) {
            int64_t length = part + 1 < parts ? 64 : job->wide - part * 64;
            uint64_t whole = ~(uint64_t)0 >> (64 - length);
            put(words, job->prefix + high * job->wide + part * 64, rows[high] ? whole : columns[part], length);
        }
}

/* From the seeds of a row the keys that they take. */
static void spread(const Job *job, uint64_t *words, const uint64_t *valid, int64_t count, uint8_t *scratch) {
    if (job->unit == ELEMENT || job->unit == COLUMN) {
        if (job->window > 1) grow(words, count, job->window, 1);
        return;
    }
    for (int64_t n = 0; n < count; n++) words[n] &= valid[n];
    if (job->unit == BLOCK) {
        grow(words, count, side_of(job), 1);
        grow(words, count, side_of(job), job->wide);
    } else {
        cross(job, words, count, scratch);
    }
}

/* 16 numbers beside each other, on whatever vectors there are. */
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
enum { WIDE = 16 };

static inline Floats every(float x) { return (Floats){0} + x; }

/* Of what has ended, sizes that the compiler knows: a call would take longer than all else in a row. */
static inline Floats load(const float *x, int64_t count, float rest) {
    Floats found = every(rest);
    float *to = (float *)&found;
    if (count >= WIDE) {
        memcpy(to, x, sizeof found);
        return found;
    }
    if (count & 8) memcpy(to, x, 32), x += 8, to += 8;
    if (count & 4) memcpy(to, x, 16), x += 4, to += 4;
    if (count & 2) memcpy(to, x, 8), x += 2, to += 2;
    if (count & 1) memcpy(to, x, 4);
    return found;
}

static inline void store(float *x, int64_t count, Floats found) {
    const float *from = (const float *)&found;
    if (count >= WIDE) {
        memcpy(x, from, sizeof found);
        return;
    }
    if (count & 8) memcpy(x, from, 32), x += 8, from += 8;
    if (count & 4) memcpy(x, from, 16), x += 4, from += 4;
    if (count & 2) memcpy(x, from, 8), x += 2, from += 2;
    if (count & 1) memcpy(x, from, 4);
}

static inline Floats choose(Ints which, Floats yes, Floats no) { return (Floats)((which & (Ints)yes) | (~which & (Ints)no)); }

/* All ones where one of the 16 keys from `key` on is dropped; there are bytes for all 16, whatever they say. */
static inline Ints gone_of(const uint8_t *bytes, int64_t key) {
    const Ints bit = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
    uint16_t two;
    memcpy(&two, bytes + key / 8, sizeof two);
    return (((Ints){0} + two) & bit) != 0;
}

/* One row of the mask, of the first `keys` keys. */
static void row_of(const Job *job, const uint8_t *bytes, const char *mask, float *out, int64_t keys) {
    const uint32_t infinite = 0xFF800000u;
    uint32_t *bits = (uint32_t *)out;
    int64_t stride = job->mask_strides[3];
    uint32_t left = 0;
    if (job->mask_kind == NO_MASK) {
        Floats kept = every(job->kept), gone = every(job->gone);
        for (int64_t j = 0; j < keys; j += WIDE) store(out + j, keys - j, choose(gone_of(bytes, j), gone, kept));
        if (job->spare) {
            int64_t n = 0;
            while (n < keys / 8 && bytes[n] == 0xFFu) n++;
            left = n < keys / 8;
            for (int64_t j = n * 8; !left && j < keys; j++) left = (bytes[j >> 3] >> (j & 7) & 1u) ^ 1u;
            if (!left)
                for (int64_t j = 0; j < keys; j++) out[j] = job->kept;
        }
    } else if (job->mask_kind == BOOLEAN) {
        const uint8_t *allowed = (const uint8_t *)mask;
        for (int64_t j = 0; j < keys; j++) {
            uint32_t kept = (bytes[j >> 3] >> (j & 7) & 1u) ^ 1u, may = allowed[j * stride] != 0;
            left |= kept & may;
            bits[j] = ((kept & may) - 1u) & infinite;
        }
        if (!left && job->spare)
            for (int64_t j = 0; j < keys; j++) bits[j] = ((uint32_t)(allowed[j * stride] != 0) - 1u) & infinite;
    } else {
        const float *added = (const float *)mask;
        float best = -INFINITY;
        for (int64_t j = 0; j < keys; j++) best = added[j * stride] > best ? added[j * stride] : best;
        for (int64_t j = 0; j < keys; j++) {
            float value = added[j * stride];
            uint32_t kept = (bytes[j >> 3] >> (j & 7) & 1u) ^ 1u;
            left |= kept & (uint32_t)(value > best - job->unseen && value > job->least);
            out[j] = kept ? value : value + -INFINITY; /* a NaN stays one */
        }
        if (!left && job->spare)
            for (int64_t j = 0; j < keys; j++) out[j] = added[j * stride];
    }
}

/* exp(x) within 2 units in the last place, for x <= 0; what is below 2^-126 is 0, a NaN stays one. */
static inline Floats exponential(Floats x) {
    const float to_whole = 12582912.0f; /* 1.5 * 2^23: what is added to it loses its fraction */
    Floats t = x * 1.44269504f;
    Ints under = t < -126.0f;
    Floats low = choose(under, every(-126.0f), t), whole = low + to_whole - to_whole, r = low - whole;
    Floats p = r * 1.5252734e-5f + 1.5403530e-4f;
    p = p * r + 1.3333558e-3f;
    p = p * r + 9.6181291e-3f;
    p = p * r + 5.5504109e-2f;
    p = p * r + 2.4022651e-1f;
    p = p * r + 6.9314718e-1f;
    p = p * r + 1.0f;
    Floats power = (Floats)((__builtin_convertvector(whole, Ints) + 127) << 23);
    return (Floats)(~under & (Ints)(p * power));
}

/* 16 of `keys` logits times their scale, with the mask in; none where the row has ended. */
static inline Floats masked(const Job *job, const char *mask, const float *logits, int64_t j, int64_t keys) {
    int64_t count = keys - j, stride = job->mask_strides[3];
    Floats found = load(logits + j, count, -INFINITY) * job->scale;
    if (job->mask_kind == NO_MASK) return found;
    float added[WIDE] = {0};
    for (int64_t l = 0; l < WIDE && l < count; l++)
        if (job->mask_kind == BOOLEAN)
            added[l] = ((const uint8_t *)mask)[(j + l) * stride] ? 0.0f : -INFINITY;
        else
            added[l] = ((const float *)mask)[(j + l) * stride];
    return found + load(added, WIDE, 0.0f);
}

/* A row of logits becomes weights, softmax first and then the drop. */
static void weights_of(const Job *job, const uint8_t *bytes, const char *mask, float *logits, int64_t keys,
                       float *origin_to, float *share_to) {
    Floats high = every(-INFINITY), sums = {0};
    for (int64_t j = 0; j < keys; j += WIDE) {
        Floats found = masked(job, mask, logits, j, keys);
        high = choose(found > high, found, high);
        store(logits + j, keys - j, found);
    }
    float origin = -INFINITY, total = 0.0f;
    for (int l = 0; l < WIDE; l++) origin = high[l] > origin ? high[l] : origin;
    if (origin == -INFINITY) origin = 0.0f;
    for (int64_t j = 0; j < keys; j += WIDE) {
        Floats found = exponential(load(logits + j, keys - j, -INFINITY) - origin);
        sums += found;
        store(logits + j, keys - j, found);
    }
    for (int l = 0; l < WIDE; l++) total += sums[l];
    /* A row that may attend to nothing has no weights; a NaN is not equal to 0. */
    float share = total == 0.0f ? 0.0f : 1.0f / total;
    Floats kept = every(share * job->kept), gone = every(share * job->gone);
    for (int64_t j = 0; j < keys; j += WIDE)
        store(logits + j, keys - j, load(logits + j, keys - j, 0.0f) * choose(gone_of(bytes, j), gone, kept));
    *origin_to = origin;
    *share_to = share;
}

/* A row of logits becomes weights again, and gradients of the weights become gradients of the logits. */
static void slopes_of(const Job *job, const uint8_t *bytes, const char *mask, float *logits, float *slopes,
                      int64_t keys, float origin, float share, float delta) {
    Floats kept = every(job->kept), gone = every(job->gone);
    for (int64_t j = 0; j < keys; j += WIDE) {
        Floats weights = exponential(masked(job, mask, logits, j, keys) - origin) * share;
        Floats factors = choose(gone_of(bytes, j), gone, kept);
        Floats found = load(slopes + j, keys - j, 0.0f);
        store(slopes + j, keys - j, weights * (found * factors - delta) * job->scale);
        store(logits + j, keys - j, weights * factors);
    }
}

/* Rows `first` to `last` of all that the job fills; those of one place together, TOGETHER at a time. */
static void part(const Job *job, int64_t first, int64_t last) {
    int64_t blocks = (job->keys + 7) / 8, count = (job->keys + 63) / 64;
    int plain = job->window == 1 && (job->unit == ELEMENT || job->unit == COLUMN);
    uint8_t bytes[TOGETHER * blocks + LANES + 8], scratch[job->high + 1];
    uint64_t words[count], valid[count];
    if (job->unit == BLOCK || job->unit == CROSS) valid_seeds(job, valid, count);
    int64_t drawn = -1; /* the place whose column's bits `bytes` has */
    for (int64_t n = first; n < last;) {
        int64_t place = job->place + n / job->rows, row = job->row + n % job->rows;
        int64_t rows = job->row + job->rows - row;
        if (rows > TOGETHER) rows = TOGETHER;
        if (rows > last - n) rows = last - n;
        int column = job->unit == COLUMN;
        if (!column || drawn != place) seeds(job, place, column ? 0 : row, column ? 1 : rows, bytes);
        for (int64_t line = 0; line < rows; line++) {
            const uint8_t *found = bytes + (column ? 0 : line * blocks);
            if (!plain) {
                if (!column || (line == 0 && drawn != place)) {
                    words[count - 1] = 0;
                    memcpy(words, found, (size_t)blocks);
                    spread(job, words, valid, count, scratch);
                }
                found = (const uint8_t *)words;
            }
            const char *mask = job->mask;
            if (mask) {
                int64_t size = job->mask_kind == BOOLEAN ? 1 : (int64_t)sizeof(float);
                mask += size * (place / job->heads * job->mask_strides[0] + place % job->heads * job->mask_strides[1] +
                                (row + line) * job->mask_strides[2]);
            }
            float *out = job->out + (n + line) * job->keys, *slopes = job->slopes;
            int64_t at = place * job->queries + row + line, keys = job->keys;
            if (job->causal && row + line + 1 < keys) keys = row + line + 1;
            float after = 0.0f;
            if (job->what == MASK) {
                row_of(job, found, mask, out, keys);
                after = -INFINITY;
            } else if (job->what == WEIGHTS) {
                weights_of(job, found, mask, out, keys, job->origins + at, job->shares + at);
            } else {
                slopes += (n + line) * job->keys;
                slopes_of(job, found, mask, out, slopes, keys, job->origins[at], job->shares[at], job->delta[at]);
            }
            for (int64_t j = keys; j < job->keys; j++) out[j] = after;
            if (job->what == SLOPES)
                for (int64_t j = keys; j < job->keys; j++) slopes[j] = 0.0f;
        }
        drawn = place;
        n += rows;
    }
}

typedef struct {
    const Job *job;
    int64_t taken;
} Work;

/* What each thread does: parts, until none is left. */
static void work(void *given) {
    Work *all = given;
    int64_t rows = all->job->places * all->job->rows, first;
    while ((first = __atomic_fetch_add(&all->taken, SHARE, __ATOMIC_RELAXED)) < rows)
        part(all->job, first, first + SHARE < rows ? first + SHARE : rows);
}

/* Fill `out`. `parallel` is GOMP_parallel of the OpenMP that torch has started: threads of our own would wait for a core
   while its threads spin for their next work. Without it, one thread does all. */
void drop_mask(const Job *job, void (*parallel)(void (*)(void *), void *, unsigned, unsigned)) {
    Work all = {job, 0};
    int64_t shares = (job->places * job->rows + SHARE - 1) / SHARE;
    unsigned threads = (unsigned)(job->threads < shares ? job->threads : shares);
    if (parallel && threads > 1)
        parallel(work, &all, threads, 0);
    else
        work(&all);
}
