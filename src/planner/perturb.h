/* SPDX-License-Identifier: Apache-2.0 */
/* perturb.h - a cluster that is not perfect: slow ranks, slow links, failures;
 * and what a step, a day and a month become.
 *
 * Ranks of the pipe work together; copies of the pipe on the other axes wait
 * for each other at the end of the step. Copies without a slow rank are equal:
 * they are one class, simulated once. A slow rank splits its copy from them.
 * `unfold` simulates every copy and gives the same numbers. */
#ifndef LOCKSTEP_PLANNER_PERTURB_H
#define LOCKSTEP_PLANNER_PERTURB_H

#include "planner/predict.h"

struct slow_rank { int rank; double factor; };

struct failures {
    double per_node_day;   /* failures of a node in a day; 0: none */
    double restart_s;      /* from the failure to the next step */
    double interval_s;     /* between checkpoints; 0: the best one */
    double stall_s;        /* of a checkpoint that training waits for */
};

struct perturb {
    struct slow_rank *slow, *links; /* owned */
    int slow_count, link_count;
    struct failures failures;
};

/* ERR_FORMAT: not such a file, or nothing in it; ERR_CONFIG: a rank that is not
 * there, a factor below 1. */
status perturb_read(struct perturb *perturb, const char *path, int ranks);
void perturb_free(struct perturb *perturb);

struct perturbed {
    struct prediction healthy, slow; /* without and with it */
    int classes;           /* of copies of the pipe */
    int64_t simulated;     /* copies whose clock ran */
};
/* `steps` are those of all copies; their clocks run again and again. */
status perturb_step(struct perturbed *out, const struct perturb *perturb,
                    struct steps *steps, const struct cost *cost, bool unfold);

/* Effective training time over time, of a run that fails. */
struct reliability {
    double mtbf_s;         /* of the whole machine */
    double interval_s, best_interval_s;
    double ettr;           /* closed form of first order */
    double exact_ettr;     /* failures during restarts counted, too */
    double best_ettr;      /* exact, of the best interval */
    double simulated_ettr; /* Monte Carlo */
    double failures_a_day;
};
/* Kokolis et al. 2024, arXiv:2410.21680: E[ETTR] = (1 - n r (u + i / 2)) /
 * (1 + w / i), first order: too low where failures are not rare. Exact for
 * failures that come at any time, during a restart, too: Daly 2006, "A higher
 * order estimate of the optimum checkpoint interval for restart dumps", eq. 13;
 * the best interval is where that is largest (about sqrt(2 w / (n r)) where
 * failures are rare). */
void reliability_of(struct reliability *out, const struct failures *failures,
                    int nodes);

#endif
