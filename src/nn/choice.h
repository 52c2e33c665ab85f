/* SPDX-License-Identifier: Apache-2.0 */
/* choice.h - the experts that the tokens of a micro-batch have chosen, as the
 * layers of a mixture read them, and the lists that they make of them.
 *
 *   slot of a choice   [tokens, choices] gates, real, then as many numbers of
 *                      experts: two blocks, one behind the other
 *   its gradient       [tokens, choices] of the gates, real */
#ifndef LOCKSTEP_NN_CHOICE_H
#define LOCKSTEP_NN_CHOICE_H

#include "nn/layer.h"

struct choice {
    struct tensor gates;  /* [tokens, choices] */
    int32_t *chosen;      /* the same */
    int64_t tokens;
    int choices;
    slot slot;            /* whose they are; -1: of none */
};
extern const struct layer layer_choose;
struct choice choice_of(struct run *run, const struct step *step, slot which);
/* choice->chosen becomes what the host may read and change: where the device is
 * apart a copy, which the frame keeps until the choices are made anew (of no
 * slot: until the next one), else the same. */
status choice_read(struct run *run, struct choice *choice);
/* The step is about to make what it writes. */
void choice_forget(const struct run *run, const struct step *step);
/* Bytes of the copies of a frame. */
size_t choice_frame_bytes(const struct program *p, int choices);

/* Entries of each expert, in scratch. */
struct choice_lists {
    struct expert_groups groups;
    const int32_t *places;
    int32_t *spare;       /* [experts + 1] */
};
/* Groups of the experts [first, first + count) alone; their rows begin at
 * *row of all. They lie in `spare`. */
struct expert_groups choice_some(const struct choice_lists *lists, int first,
                                 int count, int64_t *row);
/* The lists of the experts [first, first + experts). */
void choice_lists_make(const struct choice *choice, int first, int experts,
                       void *scratch, struct choice_lists *out);
/* Scratch for so many entries of so many experts. */
size_t choice_lists_bytes(int64_t entries, int experts);

/* Where tensor ranks share the experts: x and *choice of all tokens
 * (dispatch.c). */
slot dispatch_tokens(struct program *p, slot x, slot *choice,
                     const struct experts_spec *spec);

/* A slot, or its gradient, as rows of `width` elements. */
struct tensor choice_rows(struct tensor view, int64_t width);

#endif
