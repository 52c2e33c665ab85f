/* SPDX-License-Identifier: Apache-2.0 */
/* expert_parallel.h - the common part of the steps of a mixture whose experts
 * are spread over ranks: where rows lie, their messages, and the products.
 *
 *   rows under way  between the steps, in a slot of the frame: this rank's, and
 *                   others' as they arrive; in F the activation, in B its
 *                   gradient
 *   kept rows       x, gate and up of the first turn, from F on for B and W;
 *                   their gradients from B on for W
 *   scratch         of one step: lists, further turns, results */
#ifndef LOCKSTEP_NN_EXPERT_PARALLEL_H
#define LOCKSTEP_NN_EXPERT_PARALLEL_H

#include "nn/saved_codes.h"
#include "nn/sending.h"

/* Rooms in scratch behind the lists. */
enum { ROOM_MINE, ROOM_THEIRS, ROOM_ALL, ROOM_SUM, ROOM_INNER, ROOM_OUT,
       ROOM_GATES, ROOM_X, ROOM_H, ROOM_DZ, ROOM_DH, ROOM_BESIDE, ROOM_FEW,
       ROOM_RELAY, ROOM_PLAIN, ROOM_CODING, ROOM_GLU, ROOMS };
struct rooms { size_t at[ROOMS + 1]; };

struct spread {
    const struct step *step;
    struct run *run;
    struct step up, down, bias; /* the step with one of its parameters */
    int64_t width, inner, rows; /* of x; of an expert; that there is room for */
    slot joined;
    int number;                /* of this turn */
    struct sending s;
    struct turn turn;          /* of the half, where there is one */
    struct turn whole;         /* the turn of the half */
    struct sent_half *half;  /* NULL: the turn is made at once */
    int64_t row, own;          /* where the half begins */
    int64_t before;            /* rows that this rank sent in turns before */
    char *mine, *theirs;       /* rows that go and come */
    struct saved_rows saved;   /* of x as codes, in F */
    struct rooms rooms;
};

/* Elements of 32 bits of a token: of rows under way; of the choices of all
 * sources, with the gates of this rank's. */
int64_t spread_way_width(const struct step *step, const struct program *p);
int64_t spread_joined_width(const struct step *step, const struct program *p);
size_t spread_scratch(const struct step *step, const struct program *p);
/* The type of rows on their way back, and in what is kept for them: ranks that
 * cut an expert have parts of their sums. */
enum dtype spread_way_dtype(const struct program *p);
/* Whether tensor ranks have parts of each row's sum. */
bool spread_has_parts(const struct program *p);
bool spread_has_turns(const struct step *step, const struct program *p);
/* Bytes of a row of x, or of gate dy (`gradient`), on its way to experts. */
int64_t spread_row_bytes(const struct step *step, const struct program *p,
                         bool gradient);

/* The slot of joined choices in the current pass. */
int32_t *spread_joined(const struct step *step, struct run *run, slot joined);
void *spread_gates(struct run *run, slot joined);
/* Slots of the joined choices, and of rows under way; -1: rows go at once. */
struct spread_slots { slot joined, way; };
/* The turns of a micro-batch begin. */
status spread_begin(struct spread *w, const struct step *step,
                    struct run *run, const struct spread_slots *slots);
bool spread_next(struct spread *w);
/* The first turn is taken in halves: half `number`; or as a whole again. */
void spread_use_half(struct spread *w, int number);
void spread_use_whole(struct spread *w);

/* A room for rows of this turn. */
struct tensor spread_room(const struct spread *w, int which, int64_t rows,
                          int64_t width, enum dtype dtype);
struct tensor spread_kept(const struct spread *w, int which);
/* Whether the step keeps x of the first turn as codes that W reads
 * (saved_codes.h). Then spread_kept's x is there in F alone. */
bool spread_saves(const struct step *step, const struct program *p);
/* Whether it keeps gate and up as codes (glu_codes.h): where those of the first
 * turn lie. spread_kept's are then in scratch. */
bool spread_codes_h(const struct step *step, const struct program *p);
void *spread_h_codes(const struct spread *w);
/* Bytes of kept rows in F. */
int64_t spread_kept_bytes(const struct step *step, const struct program *p);

/* x, or gate dy, of each row of this rank's tokens, to the holders; rows that
 * have arrived, as rows of groups; rows of groups to the ranks of their tokens.
 * A half is under way until it is waited for. */
status spread_go_x(struct spread *w, slot x);
status spread_go_dy(struct spread *w, slot y);
status spread_arrive_x(struct spread *w, struct tensor to);
status spread_arrive_dz(struct spread *w, struct tensor to);
status spread_return(struct spread *w, struct tensor from);
/* All rows that returned, each the sum of its parts, as those of `own`; waits
 * for them. */
status spread_settle(struct spread *w, enum dtype dtype, struct tensor *out);

/* ---- products, of kept rows (expert_parallel_products.c) ---- */

/* x of the first turn becomes codes, where they are kept. */
status spread_save_x(struct spread *w);
status spread_make_h(struct spread *w);
/* The codes of gate and up, in F; and in B and W the numbers of theirs. Nothing
 * where there are none. */
status spread_save_h(struct spread *w);
status spread_round_h(struct spread *w);
status spread_make_inner(struct spread *w);
status spread_make_out(struct spread *w, struct tensor out);
/* Gradients of gate and up; that of their product takes its room. */
status spread_make_dh(struct spread *w);
status spread_make_dx(struct spread *w, struct tensor out);
/* The sums of a turn's gradients. */
status spread_sum_turn(struct spread *w);

#endif
