/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - running a program: one micro-batch, its frame, its gradients. */
#ifndef LOCKSTEP_NN_RUN_H
#define LOCKSTEP_NN_RUN_H

#include "nn/branches.h"
#include "nn/frame.h"
#include "nn/gradient.h"
#include "nn/overlap.h"

/* One micro-batch. Arrays of [tokens], tokens = sequences * length. */
struct batch {
    int64_t index;             /* micro-batch of the step */
    const int32_t *inputs;     /* token ids in [0, vocab) */
    const int32_t *targets;    /* -1: none; NULL in PROGRAM_GENERATE */
    const int32_t *positions;  /* NULL: 0 .. length - 1 in each sequence */
    const int32_t *documents;  /* where in its sequence the document of each
                                * token begins, that is less than its position
                                * by its position in the document; NULL: one
                                * document a sequence */
    const int32_t *whole_documents; /* of whole sequences, where ranks cut
                                * them: [sequences, program_sequence] */
    /* Modules that predict later tokens, [depth][tokens]: the token that lies
     * so many behind a token, and the target of that one, -1: it has none in
     * the same document. */
    const int32_t *mtp_inputs, *mtp_targets;
    const struct branches *branches; /* instead of sequences; NULL: none */
    int64_t tokens;            /* generate: of this call, at most length */
    int64_t first_position;    /* generate: of the first token */
    int64_t text;              /* generate: whose caches the tokens have */
    const int32_t *texts;      /* generate: of each token, which is the next
                                * one of a text of its own at its position;
                                * NULL: they follow each other in `text` */
    int64_t sequence;          /* number of the first one among all that the
                                * run reads: what dropout counts by */
};

/* Documents as a batch has them, from their numbers, and from the positions of
 * tokens in them; [sequences, length]. */
void run_documents(int32_t *documents, const int32_t *positions,
                   int64_t sequences, int64_t length);

/* Called with a logits chunk before they are overwritten. */
typedef status logits_reader(void *argument, int64_t first_token,
                             const struct tensor *logits);

/* A callback that inspects the inputs and outputs of an event. It changes
 * nothing. */
struct run_probe {
    status (*look)(void *argument, const struct run *run,
                   const struct event *event);
    void *argument;
};

/* Halves in which the rows of a mixture travel. */
enum { EXPERT_HALVES = 2 };

/* Calls that have a number or a block for each rank of the tensor or the
 * context axis write them here: a layer's call at once, one after the other. */
struct run_peers {
    int64_t *counts;           /* of a gather or a sum */
    struct comm_block *send, *receive; /* of an exchange */
};

struct run {
    const struct program *program;
    const struct frame_plan *plan;
    const struct kernels *kernels;
    const struct kernels *real;  /* of program_real: the same, or float32's */
    struct stream *stream;
    struct group *groups[AXIS_COUNT]; /* borrowed: the ranks of each axis that
                                       * layers use; NULL: this one alone */
    void *frame;               /* plan->bytes */
    void *pass_room;           /* plan->pass_bytes, of all frames */
    struct {                   /* as kernels read them */
        void *weights;         /* flat arena, of program->dtype */
        const bool *strips;    /* [parameters] that lie in strips (kernels.h);
                                * NULL: none does */
        void **placed;         /* [parameters] where each lies; NULL: in the
                                * flat arena */
        const void **scales;   /* [parameters] of those that lie there as codes
                                * (plan/coded_weights.h); NULL: none does */
        const float *mosts;    /* [parameters] largest magnitudes of those */
    } params;
    struct gradients *gradients; /* NULL: no backward pass will follow */
    void *rope[ROPE_TABLES_MAX]; /* [context, rotary / 2, 2] real */
    void *scratch;             /* program_scratch_bytes */
    void *lists;               /* the same of the host, for lists that layers
                                * tell kernels: scratch, unless the device is
                                * apart */
    struct {                   /* numbers of experts as the host reads them,
                                * where the device is apart; else NULL */
        char *frames;          /* choice_frame_bytes of each frame */
        int32_t *joined;       /* of all sources */
        int frame;             /* the micro-batch's */
        int count;             /* of a token */
    } choices;
    void *counts;              /* sending_counts_bytes: of rows under way;
                                * likewise */
    struct sum_segment *segments; /* [run_segments] */
    struct run_peers peers;
    void *cache;               /* generate: [caches][texts][context, width] */
    double *losses;            /* [tokens] of the micro-batch */
    double *z_losses;          /* [tokens] likewise, with a z-loss; else
                                * NULL */
    struct {                   /* of modules that predict later tokens */
        double *losses;        /* [depth][tokens] */
        double weights[MTP_MOST]; /* of each depth, as gradients have them */
    } later;
    struct {
        struct random_key dropout, attention, jitter; /* of masks */
        struct random_key recipe; /* of stochastic roundings */
        struct random_key signs;  /* of rotations (straight_through.h) */
    } keys;
    struct {
        int64_t number;        /* which draws for weights count by */
        bool high;             /* products are made without the recipe */
        double loss_scale;     /* of the gradient of each loss, a power of two;
                                * 0: 1 */
    } now;                     /* the step */
    struct {                   /* operand_peaks.h; NULL: no scale is late */
        float *known;          /* [operand_peaks_values] largest magnitudes that
                                * late scales have */
        float *seen;           /* ... and those of this step */
    } late;
    struct {                   /* while layers run; NULL: nobody asks */
        void *peaks;           /* score_peaks_bytes (score_peaks.h) */
        struct quantize_tally *tallies; /* tallies_bytes (tallies.h) */
        int64_t *routes;       /* routes_bytes (routes.h) */
        const double *before;  /* [blocks of the model][experts] tokens in the
                                * step before (BALANCE_BATCH) */
        struct { int64_t calls, bytes, between; } routed; /* that rows of
                                * experts have sent so far, as tokens chose
                                * (layer_exchange.routed); of the bytes, between
                                * nodes */
    } counted;
    int32_t *positions;        /* [tokens] filled when the batch has none */
    struct batch batch;
    struct {
        logits_reader *read;   /* NULL: nobody asks */
        void *argument;
        int64_t last;          /* generate: tokens at the end of a call whose
                                * logits the head makes; 0: 1 */
    } logits;
    bool poison;               /* fill what is dead with NaN */
    struct {
        double (*clock)(void); /* seconds; NULL: nobody measures */
        double *spent;         /* [events] seconds, added to */
    } timing;
    struct overlap overlaps[OVERLAP_KINDS];
    struct comm_handle rows_of_experts[EXPERT_HALVES]; /* likewise, of one
                                * mixture (sending.h) */
    struct {                   /* scratch of messages under way */
        void *room;
        size_t bytes;
    } background;
    int window;                /* F works on sub-batch window - 1 only; 0: on
                                * the whole micro-batch */
    const struct event *event; /* being run */
    int failed_step;           /* step whose layer returned an error, or -1 */
    const struct run_probe *probe; /* NULL: nobody looks */
};

status run_forward(struct run *run);
status run_backward_input(struct run *run);  /* W too when planned fused */
status run_backward_weight(struct run *run); /* nothing when planned fused */
/* Events [first, last) of one pass, after those before them; not a part of
 * those that F does sub-batch by sub-batch (frame_segments). Messages beside
 * products are over when the pass is. */
status run_part(struct run *run, int first, int last);

/* The keys of random numbers from the run's seed. */
void run_keys(struct run *run, uint64_t seed);
/* Segments that the longest sum order of the program has. */
int64_t run_segments(const struct program *program);
/* Bytes of run->peers, and of the counts of messages beside products; setting
 * them in so much memory. */
size_t run_peers_bytes(const struct program *program);
void run_peers_place(struct run *run, void *memory);
/* An exchange of nothing yet, in run->peers. */
struct comm_call run_exchange(const struct run *run,
                              const struct group *group);
/* Bytes of the rotary tables, and filling them: they will lie in memory, and
 * are made in room, which may be that. */
size_t run_rope_bytes(const struct program *program);
void run_rope_fill(struct run *run, void *memory, void *room);

/* ---- for layers ---- */

/* [tokens, width] of the slot, as it stands in the current pass. */
struct tensor run_slot(const struct run *run, slot which);
struct tensor run_gradient(const struct run *run, slot which);
/* The codes of the step's input (saved_codes.h). */
void *run_codes(const struct run *run, const struct step *step);
/* Where the sums over ranks of the slot, or of its gradient, go that a product
 * starts: real. */
struct tensor run_sums(const struct run *run, slot which, bool gradient);
/* The boundaries of a slice: entry is filled before F, the gradient of exit
 * before B; exit is there after F until B, the gradient of entry after B until
 * the frame is used again (split: until the first W). */
struct tensor run_entry(const struct run *run);
struct tensor run_exit(const struct run *run);
struct tensor run_exit_gradient(const struct run *run);
struct tensor run_entry_gradient(const struct run *run);
struct tensor run_weight(const struct run *run, const struct step *step,
                         int which);
bool run_in_strips(const struct run *run, const struct step *step, int which);
int64_t run_tokens(const struct run *run);
/* Where the host makes what will lie at a place in scratch; run_told brings it
 * there. The same place unless the device is apart. */
void *run_list(const struct run *run, const void *scratch);
status run_told(const struct run *run, void *scratch, size_t bytes);
/* The tokens that a step looks up, the targets and the losses of its head. */
const int32_t *run_inputs(const struct run *run, const struct step *step);
const int32_t *run_targets(const struct run *run, const struct step *step);
double *run_losses(const struct run *run, const struct step *step);
/* Bytes of an element for each token of each module that predicts later
 * tokens. */
size_t mtp_bytes(const struct program *program, size_t element);

/* to [rows, columns] = those rows and columns of from, which may have more. */
status run_copy_rows(const struct run *run, struct tensor to,
                     struct tensor from);
/* Sum orders in run->segments, valid until the next call. `whole`: one leaf.
 * `cut`: the dimension of the matrix that the tensor axis cuts, in this rank's
 * leaves of it, per piece of the fused matrix. `tokens`: the tokens of an
 * addend of the batch, from its own first token; of context leaf only - 1, or
 * 0: of all. */
struct sum_order run_order_whole(struct run *run, int64_t width);
struct sum_order run_order_cut(struct run *run, const struct param *param);
struct sum_order run_order_tokens(struct run *run, const struct addend *addend,
                                  int only);
/* First token of the addend in the micro-batch, and how many. */
int64_t addend_first_token(const struct program *p,
                           const struct addend *addend);
int64_t addend_tokens(const struct addend *addend);
struct token_order run_token_order(const struct run *run,
                                   const struct addend *addend, bool continues);
/* The order of the tokens that this rank of the tensor axis holds. */
struct token_order run_part_order(const struct run *run,
                                  const struct addend *addend, bool continues);

/* The first event's NaN check: index of the first step whose output holds a
 * NaN or infinity after a forward pass that is run again, or -1. */
status run_find_nan(struct run *run, int *step);
/* Whether an element of memory of the device is a NaN or infinity. */
status run_has_nan(const struct run *run, struct tensor view, bool *found);

#endif
