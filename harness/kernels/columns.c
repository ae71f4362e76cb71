/* Keys that are kept, moved together, and their gradients moved back: see harness/kernels/columns.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { SHARE = 64 };

/* Of every row of a mask (places, keys) the keys that are not forbidden, then the others: `order` (places, keys); and
   where each key has gone: `place`, of the same shape, -1 for the forbidden. Returns the most that a row keeps. */
int64_t order_keys(const float *mask, int64_t places, int64_t keys, int32_t *order, int32_t *place) {
    int64_t most = 0;
    for (int64_t n = 0; n < places; n++, mask += keys, order += keys, place += keys) {
        int32_t kept = 0, next;
        for (int64_t j = 0; j < keys; j++) {
            int may = mask[j] != -INFINITY; /* a NaN is kept */
            place[j] = may ? kept : -1;
            order[kept] = (int32_t)j;
            kept += may;
        }
        next = kept;
        for (int64_t j = 0; j < keys; j++) {
            if (place[j] < 0) order[next++] = (int32_t)j;
        }
        if (kept > most) most = kept;
    }
    return most;
}

typedef struct {
    int64_t batch, heads, count, bytes; /* of `to`: (batch, count, heads), and of the numbers of one key */
    const char *from;
    int64_t strides[3]; /* of samples, heads and keys of `from`, in bytes */
    const int32_t *keys; /* (batch, heads, looked_at): the key of `from` for each of `to`; -1: zeros */
    char *to;
    int64_t looked_at; /* keys of a head, of which those after the first `count` are not moved */
    int32_t size;      /* of a number, in bytes: 2, 4 or 8 */
    int32_t fraction;  /* bits of it */
    int32_t threads;
    int32_t infinite; /* whether a number that is not moved is infinite or none */
} Move;

typedef struct {
    Move *move;
    int64_t taken;
} Work;

#define INFINITE_IN(Type, width)                                                                   \
    static int infinite_in_##width(const char *from, int64_t count, int32_t fraction) {            \
        Type exponent = (Type)((Type)~(Type)0 >> 1) >> fraction << fraction, found = 0;            \
        for (int64_t n = 0; n < count; n++) {                                                      \
            Type bits;                                                                             \
            memcpy(&bits, from + n * sizeof bits, sizeof bits);                                    \
            found |= (Type)((bits & exponent) == exponent);                                        \
        }                                                                                          \
        return found != 0;                                                                         \
    }
INFINITE_IN(uint16_t, 2)
INFINITE_IN(uint32_t, 4)
INFINITE_IN(uint64_t, 8)

static inline int infinite_in(const Move *move, const char *from, int64_t bytes) {
    if (move->size == 2) return infinite_in_2(from, bytes / 2, move->fraction);
    if (move->size == 4) return infinite_in_4(from, bytes / 4, move->fraction);
    return infinite_in_8(from, bytes / 8, move->fraction);
}

static inline int rows(const Move *move, int64_t first, int64_t last, int64_t bytes) {
    int infinite = 0;
    for (int64_t n = first; n < last; n++) {
        int64_t b = n / move->looked_at, i = n % move->looked_at;
        char *to = move->to + (b * move->count + i) * move->heads * bytes;
        for (int64_t h = 0; h < move->heads; h++, to += bytes) {
            int32_t key = move->keys[(b * move->heads + h) * move->looked_at + i];
            const char *from = move->from + b * move->strides[0] + h * move->strides[1] + key * move->strides[2];
            if (i >= move->count)
                infinite |= infinite_in(move, from, bytes);
            else if (key < 0)
                memset(to, 0, (size_t)bytes);
            else
                memcpy(to, from, (size_t)bytes);
        }
    }
    return infinite;
}

/* What each thread does: shares, until none is left. */
static void work(void *given) {
    Work *all = given;
    Move *move = all->move;
    int64_t end = move->batch * move->looked_at, first;
    while ((first = __atomic_fetch_add(&all->taken, SHARE, __ATOMIC_RELAXED)) < end) {
        int64_t last = first + SHARE < end ? first + SHARE : end;
        /* A size that the compiler knows is no call. */
        int infinite = move->bytes == 256 ? rows(move, first, last, 256) : rows(move, first, last, move->bytes);
        if (infinite) __atomic_store_n(&move->infinite, 1, __ATOMIC_RELAXED);
    }
}

/* `parallel` is GOMP_parallel, or null: see `drop_mask` in masks.c. */
void move_keys(Move *move, void (*parallel)(void (*)(void *), void *, unsigned, unsigned)) {
    Work all = {move, 0};
    int64_t shares = (move->batch * move->looked_at + SHARE - 1) / SHARE;
    unsigned threads = (unsigned)(move->threads < shares ? move->threads : shares);
    if (parallel && threads > 1)
        parallel(work, &all, threads, 0);
    else
        work(&all);
}
