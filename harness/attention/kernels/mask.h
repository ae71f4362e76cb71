/* The mask that a caller of attention passes: boolean (true: may attend) or additive. */

#include <math.h>
#include <stdint.h>

enum { NO_MASK, BOOLEAN, ADDITIVE };

typedef struct {
    const void *data; /* uint8_t or float; null without a mask */
    int64_t strides[4]; /* batch, head, row and key, in elements */
    int32_t type;
    float masked_logit_gap, masked_logit_max; /* an additive mask forbids keys so far below the row max, or so low */
} Mask;

/* Row `row` of head `head` of sample `batch`. */
static inline const void *mask_row(const Mask *mask, int64_t batch, int64_t head, int64_t row) {
    if (mask->type == NO_MASK) return 0;
    int64_t size = mask->type == BOOLEAN ? 1 : (int64_t)sizeof(float);
    return (const char *)mask->data +
           size * (batch * mask->strides[0] + head * mask->strides[1] + row * mask->strides[2]);
}

static inline uint32_t keep_bit(const uint8_t *bits, int64_t key) { return (bits[key >> 3] >> (key & 7) & 1u) ^ 1u; }

/* Whether any of the first `seqlen` keys of a row is allowed and not dropped. */
static int any_kept(const Mask *mask, const void *row, const uint8_t *bits, int64_t seqlen) {
    int64_t stride = mask->strides[3], j = 0;
    if (mask->type == NO_MASK) {
        while (j + 8 <= seqlen && bits[j / 8] == 0xFFu) j += 8;
        while (j < seqlen && !keep_bit(bits, j)) j++;
    } else if (mask->type == BOOLEAN) {
        const uint8_t *allowed = row;
        while (j < seqlen && !(keep_bit(bits, j) && allowed[j * stride])) j++;
    } else {
        const float *bias = row;
        float row_max = -INFINITY;
        for (int64_t n = 0; n < seqlen; n++) row_max = bias[n * stride] > row_max ? bias[n * stride] : row_max;
        float limit = fmaxf(row_max - mask->masked_logit_gap, mask->masked_logit_max);
        while (j < seqlen && !(keep_bit(bits, j) && bias[j * stride] > limit)) j++;
    }
    return j < seqlen;
}
