/* SPDX-License-Identifier: Apache-2.0 */
/* sending.h - the rows of one micro-batch that ranks send to those that have
 * the experts (expert_ranks.h), and their messages. */
#ifndef LOCKSTEP_NN_SENDING_H
#define LOCKSTEP_NN_SENDING_H

#include "comm/progress.h"
#include "nn/expert_ranks.h"

/* One turn: its lists are those of the experts of this rank, restricted to the
 * pairs [first, last) of an expert and a source. */
struct turn {
    struct choice_lists lists;
    int first, last;
    int64_t rows, sent;   /* that come; that this rank sends */
};

/* Half of a turn's rows: they travel while products of the other half are made.
 * Arrays of [members]: lists of the host, those of a call where
 * sending_counts_lie says. */
struct sent_half {
    struct turn turn;     /* of these rows alone */
    int64_t row, own;     /* where they begin: among the rows of the turn, and
                           * among those that this rank sends in it */
    int64_t *first, *last; /* pairs of each holder */
    int64_t *to, *from;   /* rows for each, of each */
    int64_t *at;          /* where those for each begin in `own` */
    int64_t *in, *out;    /* elements, of the call under way */
    int32_t *offsets;     /* [held + 1] */
    struct comm_handle *handle; /* of the run */
    struct relay_lists *relay; /* of the rows that go, where rows lie; NULL:
                           * they go straight */
};

/* A relay (comm.h) with memory for its counts and rows. */
struct relay_lists {
    struct comm_relay relay;
    int64_t *out, *in, *to, *from;
    int32_t *picks;
    int *ranks;
};

/* The rows that ranks send in a micro-batch: lists of the host. Arrays of
 * [members]: the ranks that divide the experts. */
struct sending {
    struct run *run;
    struct router_form form;
    struct choice joined;       /* of all sources; no gates */
    struct choice_lists held;   /* of this rank's experts, of all sources */
    struct choice_lists own;    /* of this rank's tokens, of all experts */
    struct token_parts *parts;  /* [parts] of a context chunk */
    int32_t *counts;            /* [experts][sources] rows */
    int32_t *offsets;           /* [held + 1] of a turn */
    int32_t *arrival;           /* [rows] where a row of the turn lies as it
                                 * arrives: source after source */
    int32_t *order;             /* [rows] which row is the n-th to arrive */
    int32_t *tokens, *entries;  /* [sent] of each row that goes in the turn */
    int64_t *to, *from;         /* rows of the turn for each, of each */
    int64_t *at;                /* where those for each begin in `own` */
    int64_t *pairs, *ends;      /* where each holder's turn begins and ends */
    int64_t *next;
    int64_t before;             /* rows of this rank's turns before */
    struct sent_half *halves;  /* [EXPERT_HALVES] of the turn: sending_cut */
    struct {                    /* where rows go once to each node */
        int *node;              /* [members] */
        int32_t *where;         /* [tokens of sources] which row to arrive is
                                 * the token's */
        struct relay_lists *turn; /* of a turn that goes at once */
        void *room;             /* of calls: sending_room_bytes */
        size_t room_bytes;
    } relay;
};

/* Choices of this rank's tokens. */
int64_t sending_entries(const struct program *p,
                        const struct router_form *form);
size_t sending_bytes(const struct program *p, const struct router_form *form);
/* joined [sources, tokens, choices], of the device: the experts that the tokens
 * of all members chose, or their gates, of which this rank has `own` [tokens,
 * choices].
 * Collective over the members; uses the scratch. */
status sending_join(struct run *run, const struct router_form *form,
                    struct tensor own, void *joined);
/* joined: as the host reads it. */
void sending_begin(struct sending *s, struct run *run,
                   const struct router_form *form, int32_t *joined);
/* Memory for the counts of calls under way: it outlives the step that starts
 * them. */
size_t sending_counts_bytes(const struct program *p,
                            const struct router_form *form);
void sending_counts_lie(struct sending *s, void *memory);
/* The next turn; the first one is there in any case. */
bool sending_next(struct sending *s, struct turn *turn);
/* mine [sent, width] of this rank's tokens to the experts, theirs [rows, width]
 * as they arrive (`goes`); or back. */
status sending_swap(struct sending *s, struct tensor mine,
                    struct tensor theirs, bool goes);
/* The turn in halves; its own lists of rows are those of the halves, one behind
 * the other. */
void sending_cut(struct sending *s, const struct turn *turn);
/* sending_swap of a half in the background, until sending_wait; each half
 * lies behind the one before. Both calls are for either half in its order. */
status sending_start(struct sending *s, struct sent_half *half,
                     struct tensor mine, struct tensor theirs, bool goes);
status sending_wait(struct sent_half *half);

/* An all-to-all of those ranks whose length the choices say: its bytes are
 * counted beside those of the group (proof/audit.h). */
void sending_count(struct run *run, const struct comm_call *call);

/* Values of choices that this rank sends in a join, its own and, where nodes
 * pass them on, others' (comm/hierarchy.c); of these, to other nodes. */
struct joined { int64_t all, between; };
struct joined sending_joined(const struct program *p,
                             const struct router_form *form);

/* ---- rows that go once to each node (sending_relay.c) ---- */

bool sending_relays(const struct program *p);
/* Memory of one relay's lists; room for its rows. */
size_t sending_relay_bytes(const struct program *p,
                           const struct router_form *form);
size_t sending_room_bytes(const struct program *p,
                          const struct router_form *form, int64_t row_bytes);
struct relay_lists *sending_relay_lie(const struct sending *s, void *memory);
/* The rows of a half, or of the turn (NULL), by token: *mine to send, the
 * tokens of which lie in s->tokens from `own` on, *theirs that will arrive. */
void sending_relay_list(struct sending *s, const struct sent_half *half,
                        int64_t own, int64_t *mine, int64_t *theirs);
/* Which of the rows that arrive, whose number is returned, is each of the
 * turn's. */
int64_t sending_relay_arrivals(struct sending *s,
                               const struct sent_half *half,
                               const struct turn *turn, int32_t *arrival);
/* sending_swap and sending_start of such rows, there. */
status sending_relay_go(struct sending *s, struct sent_half *half,
                        struct tensor mine, struct tensor theirs);

/* ---- whose tokens are whose (sending.c) ---- */

/* Choices of the tokens that a member has. */
int64_t sending_entries_at(const struct program *p,
                           const struct router_form *form, int member);
/* The n-th choice of a member among the joined ones. */
int64_t sending_entry(const struct sending *s, int member, int64_t n);
status sending_place_half(const struct sending *s, const struct sent_half *half,
                          struct tensor all, struct tensor mine);
/* Rows of the turn that came back: where they belong among all that this rank
 * sends, in the order of `own`: all [cut, rows of own], the parts of ranks that
 * cut an expert apart. */
status sending_place(const struct sending *s, struct tensor all,
                     struct tensor mine);
/* out[i] = rows[index[i]]; index -1: +0. */
status sending_pick(struct run *run, struct tensor out, struct tensor rows,
                    const int32_t *index);

#endif
