/* SPDX-License-Identifier: Apache-2.0 */
/* consumed.h - RUN/consumed.jsonl: which samples each step consumed, and the
 * proof that none was lost or repeated.
 *
 *   {"step": 12, "from": 88, "to": 96, "samples": 8,
 *    "order": "9f3c...", "tokens": "00a1..."}
 *
 * A rank that computes losses adds up a mark of each sample, made of its place
 * in the run's order, when the loss of that sample enters the step; the sums of
 * all ranks are joined. So the line says what was consumed, not what a cursor
 * planned, and does not depend on the layout, on kills or on restarts. What the
 * sum must be follows from the range alone. `tokens` adds up checksums of the
 * samples' tokens, so that two runs can be compared. */
#ifndef LOCKSTEP_OBSERVE_CONSUMED_H
#define LOCKSTEP_OBSERVE_CONSUMED_H

#include "base/text.h"
#include "data/ranges.h"

/* A step. Sums are modulo 2^64. */
struct consumed {
    int64_t step;           /* counted from 1 */
    int64_t from, to;       /* places in the order, [from, to) */
    int64_t samples;        /* of all ranks; the rest of the range is left
                             * out */
    uint64_t order, tokens; /* sums of marks; of CRC-32C */
};

enum { CONSUMED_BATCH_MOST = 1 << 21, CONSUMED_FINDINGS = 8 };

/* The mark of a place in the order. */
uint64_t consumed_mark(int64_t place);
/* One line. */
status consumed_write(const struct consumed *step, struct text *out);

/* The last line of a step that is not after `step`; out->step is 0 if there is
 * none. A torn last line is left out. ERR_FORMAT names a line that cannot
 * be. */
status consumed_before(const char *bytes, size_t length, const char *source,
                       int64_t step, struct consumed *out);

/* ---- the audit ---- */

struct consumed_audit {
    const struct ranges *left_out; /* borrowed: on purpose, by now */
    int64_t batch_most;     /* samples that a step can have */
    /* Found so far: */
    int64_t first_step, last_step, steps;
    int64_t next;           /* the place after the last step's */
    int64_t samples, left;  /* consumed; left out on purpose */
    int64_t lost, repeated; /* places */
    int64_t wrong;          /* steps that consumed something else than their
                             * range */
    int64_t missing;        /* steps without a line */
    char findings[CONSUMED_FINDINGS][200];
    int finding_count;      /* may be more than were kept */
};

/* Reads all lines; a torn last one is left out. ERR_FORMAT names a line that
 * cannot be. What the lines say is not an error but a finding. */
status consumed_audit(struct consumed_audit *audit, const char *bytes,
                      size_t length, const char *source);
void consumed_find(struct consumed_audit *audit, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
