/* SPDX-License-Identifier: Apache-2.0 */
/* expert_stack.h - tensors of Hugging Face files that hold one matrix (or
 * vector) of every expert of a block.
 *
 * Here, and in checkpoints, each expert has tensors of its own; files of some
 * families have all of them in one, which import and export take apart and put
 * together:
 *
 *   member           gate of expert e [rows, cols], up of expert e likewise
 *   stack            [experts, 2 rows, cols]: gate, then up; or row by row in
 *                    turn (pairs); each expert's part may be transposed */
#ifndef LOCKSTEP_INFERENCE_EXPERT_STACK_H
#define LOCKSTEP_INFERENCE_EXPERT_STACK_H

#include "checkpoint/parts.h"
#include "checkpoint/weights.h"
#include "models/decoder.h"

enum { STACK_NAME_BYTES = 2 * PARAM_NAME_BYTES };

struct stack_place {
    const struct outside_stack *stack;
    struct outside_stack own;    /* what `stack` points to where the family's
                                  * table has none; so it is not copied */
    char name[STACK_NAME_BYTES]; /* of the stack, with the layer's prefix */
    int expert;
    int part, parts;             /* of the expert's: gate 0, up 1 */
    bool packed;                 /* the file has name_blocks and name_scales,
                                  * MXFP4; set by the importer */
};
/* Whether *text begins as `pattern`, whose one %d is a number; *text is behind
 * it then. */
bool stack_skip(const char **text, const char *pattern, int *number);
/* Where the member `name` lies outside; false: it is a tensor of its own. */
bool stack_find(const struct model_kind *kind, const char *name,
                struct stack_place *out);
/* The same as transformers 5 holds the experts of a block, and writes them if
 * it is asked to, where released files have other tensors. */
bool stack_find_held(const struct model_kind *kind, const char *name,
                     struct stack_place *out);
/* The name under which it holds the router or its biases, other than in files.
 * false: there is none. */
bool stack_router_held(const struct model_kind *kind, const char *name,
                       char out[STACK_NAME_BYTES]);
/* The shape of the stack of `experts` members like this one. Returns its
 * dimensions. */
int stack_shape(const struct stack_place *place, int experts,
                const struct saved_part *member,
                int64_t shape[TENSOR_DIMENSIONS_MAX]);

/* Elements of one expert in the stack. */
int64_t stack_each(const struct stack_place *place,
                   const struct saved_part *member);
/* Element (row, 0) of the member lies at `first` of its expert's part, and the
 * others of the row `step` elements from each other. */
struct stack_row { int64_t first, step; };
struct stack_row stack_row(const struct stack_place *place,
                           const struct saved_part *member, int64_t row);
/* out [rows, cols] of the member's type, from tensor `index`, the stack.
 * ERR_FORMAT: a number is infinite or NaN. */
status stack_read(const struct weights *weights, int index,
                  const struct stack_place *place,
                  const struct saved_part *member, void *out);
/* Like stack_read, of packed stacks, by their name in the file. Blocks of 32
 * elements of a row are [experts, rows, blocks, 16] bytes, the lower half of
 * each byte first, with scales [experts, rows, blocks]: Open Compute Project
 * 2023, MX specification 1.0, section 5.4 (E2M1 codes, E8M0 scales). */
status stack_need_packed(struct weights *weights, const char *name,
                         const struct stack_place *place, int experts,
                         const struct saved_part *member);
status stack_read_packed(const struct weights *weights, const char *name,
                         const struct stack_place *place,
                         const struct saved_part *member, void *out);
bool stack_is_packed(const struct weights *weights, const char *name);
/* Rows and columns of a member; a vector is a column. */
int64_t stack_rows(const struct saved_part *member);
int64_t stack_cols(const struct saved_part *member);

#endif
