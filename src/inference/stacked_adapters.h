/* SPDX-License-Identifier: Apache-2.0 */
/* stacked_adapters.h - adapters of all experts in one tensor, as PEFT keeps
 * those of the parameters of transformers 5 (its target_parameters).
 *
 *   here    A of gate e, of up e [rank, in]; B of each [out, rank]
 *   there   A [experts * rank, in], one of gate and up; B [out of gate and up,
 *           rank * experts]: column j * experts + e is column j of expert e
 *
 *   turned  of parameters [experts, in, out] PEFT takes `in` for what they
 *           write: A [experts * rank, out of gate and up], B [in, rank *
 *           experts]; older versions did so beside [experts, out, in]
 *
 * Where a module has two such parameters, the first one's, gate and up, are in
 * "experts.base_layer". Routers are one matrix that has other names there. */
#ifndef LOCKSTEP_INFERENCE_STACKED_ADAPTERS_H
#define LOCKSTEP_INFERENCE_STACKED_ADAPTERS_H

#include "checkpoint/parts.h"
#include "checkpoint/weights.h"
#include "models/model.h"

struct stacked_place {
    char name[4 * PARAM_NAME_BYTES]; /* of the tensor in the file */
    bool router;         /* a matrix under another name, nothing else */
    bool b;
    int layer, expert, experts;
    int part, parts;     /* of B's rows: gate 0, up 1 */
    bool pairs;          /* they alternate */
    bool turned;
};
/* Which matrix of which expert, or of a router, the adapter `name` is, and how
 * long what stands before its own words is; the place has no name yet. False:
 * neither. */
bool stacked_part(const struct model *model, const char *name,
                  struct stacked_place *out, size_t *before);
/* Where the adapter's matrix `member` lies in a file that has not a tensor of
 * that name; false: nowhere. It is turned if shapes say so; where they do not
 * tell, as the family's is. */
bool stacked_find(const struct model *model, const struct weights *weights,
                  const struct saved_part *member, struct stacked_place *out);
/* The shape of the tensor around a member, with adapters of so much rank. */
void stacked_shape(const struct stacked_place *place, const int64_t *member,
                   int64_t rank, int64_t shape[2]);
/* Where element (row, 0) of a member lies in a tensor of that shape, and how
 * far apart the row's elements are. skip: rows of the rank before its own. */
struct stacked_row { int64_t first, step; };
struct stacked_row stacked_row(const struct stacked_place *place,
                               const int64_t shape[2], int64_t skip,
                               int64_t row);
/* The tensor must be there, with its shape; counted as used once. `member`: the
 * adapter's matrix. */
status stacked_need(struct weights *weights, const struct stacked_place *place,
                    const struct saved_part *member);

/* The last tensors that were read, whole; zeroed: none. */
struct stacked_room { struct { int index; void *data; } of[4]; int next; };
void stacked_room_free(struct stacked_room *room);
/* out [rows, cols] of the member's type. ERR_FORMAT: a number is infinite or
 * NaN. */
status stacked_read(const struct weights *weights,
                    const struct stacked_place *place,
                    const struct saved_part *member, struct stacked_room *room,
                    void *out);

/* The safetensors file `path` of adapters again, those of experts joined
 * (lora_experts); gate and up have one adapter, whose rank is the sum of
 * theirs. *count: its tensors. */
status stacked_write(const struct model *model, const char *path, int *count);

#endif
