/* SPDX-License-Identifier: Apache-2.0 */
/* glu_codes.h - the inputs of SwiGLU and GeGLU that wait for B as codes.
 *
 * A recipe whose row "glu" names a format rounds gate and up when F has read
 * them, and forgets them: B takes the gradient at the rounded ones, and what
 * reads the result after F reads that of the rounded ones. No more is kept.
 *
 *   F   gate, up --SwiGLU--> h --> down
 *       gate, up --round, encode--> codes | scales
 *   R                               codes | scales --decode, SwiGLU--> h'
 *   W   of down: dy, h'             B: d gate, d up at the decoded numbers
 *
 * Source: DeepSeek-V3, arXiv:2412.19437, section 3.3.3. */
#ifndef LOCKSTEP_NN_GLU_CODES_H
#define LOCKSTEP_NN_GLU_CODES_H

#include "nn/run.h"

/* Whether the layer that is being built keeps its input so. */
bool glu_codes_apply(const struct program *p);
/* Its result is made again; the matrix that wrote the step's input is named,
 * whose pieces are gate and up: blocks are counted from the first element of
 * each leaf of each piece. */
void glu_codes_name(struct program *p, int step);

/* Bytes of codes and scales of a micro-batch. */
int64_t glu_codes_bytes(const struct program *p, const struct step *step);
size_t glu_codes_scratch(const struct step *step, const struct program *p);

/* The codes of x, gate and up of the rows that F works on; nothing where no
 * backward pass will follow. */
status glu_codes_make(struct run *run, const struct step *step,
                      struct tensor x);
/* *x = the rounded numbers of all rows, in scratch. */
status glu_codes_read(struct run *run, const struct step *step,
                      struct tensor *x);

/* ---- rows anywhere ---- */

struct glu_rows {
    const struct param *matrix; /* that wrote them */
    void *codes;                /* glu_rows_bytes, of `all` rows */
    int64_t all, first;         /* x begins with row `first` of them */
    void *room;                 /* in scratch: glu_rows_room, of all rows */
};

int64_t glu_rows_bytes(const struct program *p, const struct param *matrix,
                       int64_t rows);
size_t glu_rows_room(const struct program *p, const struct param *matrix,
                     int64_t rows);
status glu_rows_encode(struct run *run, const struct glu_rows *at,
                       struct tensor x);
status glu_rows_decode(struct run *run, const struct glu_rows *at,
                       struct tensor to);

#endif
