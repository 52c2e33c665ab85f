/* SPDX-License-Identifier: Apache-2.0 */
/* expert_index.h - where rows of experts lie. */
#ifndef LOCKSTEP_KERNELS_EXPERT_INDEX_H
#define LOCKSTEP_KERNELS_EXPERT_INDEX_H

#include "kernels/element.h"
#include "kernels/kernels.h"

/* Row `row` of an expert: its place among the groups' rows. */
static inline int64_t expert_place(const struct expert_groups *groups,
                                   int expert, int64_t row)
{
    return groups->offsets[expert] + row;
}

/* Row of the matrix that is row g of the groups. */
static inline int64_t expert_row(const struct expert_groups *groups,
                                 const struct expert_rows *rows, int64_t g)
{
    return rows->gathered ? groups->entries[g] / groups->choices : g;
}

static inline int64_t expert_count(const struct expert_groups *groups,
                                   int expert)
{
    return groups->offsets[expert + 1] - groups->offsets[expert];
}

/* How many rows of an expert belong to tokens before `token`. */
static inline int64_t expert_before(const struct expert_groups *groups,
                                    int expert, int64_t token)
{
    const int32_t *entries = groups->entries + groups->offsets[expert];
    int64_t low = 0, high = expert_count(groups, expert);

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;

        if (entries[middle] < token * groups->choices) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* A segment of tokens as one of the expert's rows, from its first one; it may
 * have none. */
static inline struct sum_segment
expert_segment(const struct expert_groups *groups, int expert,
               const struct sum_segment *tokens)
{
    const int64_t first = expert_before(groups, expert, tokens->first);
    const int64_t end =
        expert_before(groups, expert, tokens->first + tokens->length);

    return (struct sum_segment){first, end - first, tokens->leaf};
}

/* x * scale, rounded once to a narrow type. */
ELEMENTARY float element_scaled(float x, float scale, enum dtype dtype)
{
    const float product = x * scale;

    if (dtype == DTYPE_BF16)
        return f32_of_bits(element_to_bf16(product) << 16);
    if (dtype == DTYPE_F16) return element_from_f16(element_to_f16(product));
    return product;
}

/* How the rows of a token are added: row i is that of choice[i], by expert
 * number; it goes into slot[i], which it starts or not; then slots merge, left
 * and right, until slot 0 is all. */
struct expert_order {
    int count, merges;
    bool starts[CHOICES_MAX];
    uint8_t choice[CHOICES_MAX], slot[CHOICES_MAX];
    uint8_t left[CHOICES_MAX], right[CHOICES_MAX];
};

/* Choices that have a place, by expert number. */
static inline int choices_sort(const struct experts_combine *p, int64_t token,
                               uint8_t *choice)
{
    const int32_t *places = p->places + token * p->choices;
    const int32_t *numbers = p->numbers + token * p->choices;
    int count = 0;

    for (int i = 0; i < p->choices; i++) {
        int at = count;

        if (places[i] < 0) continue;
        for (; at > 0 && numbers[choice[at - 1]] > numbers[i]; at--)
            choice[at] = choice[at - 1];
        choice[at] = (uint8_t)i;
        count++;
    }
    return count;
}

/* Neighbours of a level that have one parent are merged. */
static inline void slots_merge(struct expert_order *out, int32_t *leaf,
                               int slots)
{
    uint8_t slot[CHOICES_MAX];

    for (int i = 0; i < slots; i++) slot[i] = (uint8_t)i;
    while (slots > 1) {
        int kept = 0;

        for (int i = 0; i < slots; i++) {
            if (kept > 0 && leaf[kept - 1] == leaf[i] >> 1) {
                out->left[out->merges] = slot[kept - 1];
                out->right[out->merges++] = slot[i];
                continue;
            }
            slot[kept] = slot[i];
            leaf[kept++] = leaf[i] >> 1;
        }
        slots = kept;
    }
}

static inline void expert_order_make(const struct experts_combine *p,
                                     int64_t token, struct expert_order *out)
{
    const int32_t *numbers = p->numbers + token * p->choices;
    int32_t leaf[CHOICES_MAX];
    int slots = 0;

    out->merges = 0;
    out->count = choices_sort(p, token, out->choice);
    for (int i = 0; i < out->count; i++) {
        const int32_t of = numbers[out->choice[i]] / p->leaf_experts;

        out->starts[i] = slots == 0 || leaf[slots - 1] != of;
        if (out->starts[i]) leaf[slots++] = of;
        out->slot[i] = (uint8_t)(slots - 1);
    }
    slots_merge(out, leaf, slots);
}

void experts_combine_check(const struct experts_combine *p);

/* Programming errors end here. */
void expert_groups_check(const struct expert_groups *groups);
void expert_rows_check(const struct expert_groups *groups,
                       const struct expert_rows *rows, enum dtype dtype);

#endif
