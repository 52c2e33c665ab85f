/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.h - stages that every rank of a cluster goes through before it is
 * trusted: cores, memory, storage, links between each pair, all-reduces, and a
 * burn-in whose bits are compared. */
#ifndef LOCKSTEP_BENCH_NODES_H
#define LOCKSTEP_BENCH_NODES_H

#include "comm/comm.h"

enum { NODES_RANKS_MOST = 512, NODES_NAME_BYTES = 32, NODES_SUMS = 3 };

/* Measures of each rank; all but the sums are rates. */
enum nodes_measure {
    NODES_CORES,   /* FLOP/s of products, all cores of the rank, best of 3 */
    NODES_MEMORY,  /* bytes/s of adding two areas, best of 5 */
    NODES_STORAGE, /* bytes/s of writing, syncing and reading back a file */
    NODES_BURN,    /* products a second, for the whole burn-in */
    NODES_SUM,     /* seconds of an all-reduce of nodes_sum_bytes[0], best */
    NODES_MEASURES = NODES_SUM + NODES_SUMS
};
extern const int64_t nodes_sum_bytes[NODES_SUMS];

/* Stages whose results are compared with what they must be. */
enum nodes_proof {
    PROOF_STORAGE, PROOF_LINKS, PROOF_SUMS, PROOF_BURN, NODES_PROOFS
};

/* All of it, on rank 0. */
struct nodes_page {
    int ranks;
    const char *back_end;             /* "threads" */
    const char (*names)[NODES_NAME_BYTES]; /* [ranks]: of their machines */
    const double *figures;            /* [ranks, NODES_MEASURES] */
    const double *wrong;              /* [ranks, NODES_PROOFS]: how often */
    const double *latency, *rate;     /* [ranks, ranks]: s, bytes/s; 0: self */
    double seconds;                   /* of the burn-in */
};

struct nodes_request {
    int ranks;         /* 0: those that were launched, or 1 */
    double seconds;    /* of the burn-in */
    const char *place; /* directory to write into */
    int64_t limit_ms;  /* longest wait for one message */
    /* Called on rank 0. */
    status (*print)(void *argument, const struct nodes_page *page);
    void *argument;
};

/* ERR_CONFIG: too many ranks; ERR_IO: a rank cannot write into `place`. */
status nodes_run(const struct nodes_request *request);

/* ---- nodes_links.c ---- */

/* Times and proves messages between each pair and all-reduces; every rank gets
 * its row of latency and rate [size], its times of sums and counts of wrong
 * results. */
struct nodes_links {
    double *latency, *rate;
    double sums[NODES_SUMS];
    double wrong_links, wrong_sums;
};
status nodes_links_run(struct nodes_links *links, struct group *world);

#endif
