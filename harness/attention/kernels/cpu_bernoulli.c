/* Bernoulli draws from torch's CPU generator, a Mersenne Twister (Matsumoto and Nishimura 1998), many at a time.

   torch makes them one by one, except with Intel's library on Intel's processors. These are the same draws: each takes
   two words, whose low 53 bits, as a fraction of 2^53, are compared to the probability. */

#include <stdint.h>

enum { WORDS = 624, SHIFT = 397 };

/* The start of what `torch.Generator.get_state` returns. */
typedef struct {
    uint64_t seed;
    int32_t left, seeded; /* left: words until new ones are made, plus 1 */
    uint64_t next;
    uint64_t words[WORDS];
} Generator;

static inline uint32_t twist(uint32_t high, uint32_t low) {
    return ((high & 0x80000000u) | (low & 0x7fffffffu)) >> 1 ^ (-(low & 1u) & 0x9908b0dfu);
}

static inline uint32_t temper(uint32_t x) {
    x ^= x >> 11;
    x ^= x << 7 & 0x9d2c5680u;
    x ^= x << 15 & 0xefc60000u;
    return x ^ x >> 18;
}

static void make_words(uint32_t *words) {
    /* In two loops, neither of which reads what it wrote less than 227 words before, so that both use vectors. */
    for (int i = 0; i < WORDS - SHIFT; i++) words[i] = words[i + SHIFT] ^ twist(words[i], words[i + 1]);
    for (int i = WORDS - SHIFT; i < WORDS - 1; i++)
        words[i] = words[i + SHIFT - WORDS] ^ twist(words[i], words[i + 1]);
    words[WORDS - 1] = words[SHIFT - 1] ^ twist(words[WORDS - 1], words[0]);
}

static inline float draw(uint32_t high, uint32_t low, uint64_t threshold) {
    return (((uint64_t)high << 32 | low) & ((1ull << 53) - 1)) < threshold;
}

/* Set out[0 … numel - 1] to 1 with probability threshold / 2^53, else to 0. */
void bernoulli(Generator *generator, float *out, int64_t numel, uint64_t threshold) {
    uint32_t words[WORDS], tempered[WORDS + 1];
    for (int i = 0; i < WORDS; i++) words[i] = (uint32_t)generator->words[i];
    int next = (int)generator->next, left = generator->left - 1;
    int odd = 0; /* 1 if tempered[0] is the first word of a draw whose second one was not made yet */
    for (int64_t done = 0; done < numel;) {
        if (!left) {
            make_words(words);
            next = 0, left = WORDS;
        }
        int64_t wanted = 2 * (numel - done) - odd;
        int count = wanted < left ? (int)wanted : left;
        for (int i = 0; i < count; i++) tempered[odd + i] = temper(words[next + i]);
        next += count, left -= count, count += odd;
        for (int i = 0; i < count / 2; i++) out[done + i] = draw(tempered[2 * i], tempered[2 * i + 1], threshold);
        done += count / 2;
        odd = count % 2;
        if (odd) tempered[0] = tempered[count - 1];
    }
    for (int i = 0; i < WORDS; i++) generator->words[i] = words[i];
    generator->next = (uint64_t)next, generator->left = left + 1;
}
