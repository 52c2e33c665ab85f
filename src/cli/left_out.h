/* SPDX-License-Identifier: Apache-2.0 */
/* left_out.h - ranges of its data that a run left out, as its files say. */
#ifndef LOCKSTEP_CLI_LEFT_OUT_H
#define LOCKSTEP_CLI_LEFT_OUT_H

#include "checkpoint/checkpoint.h"
#include "data/ranges.h"

/* Adds the ranges of the run's ledger and of its newest checkpoint, which also
 * keeps those of data.skip that an earlier start had. *whole: there is such a
 * checkpoint; it is open then, and the caller closes it. */
status left_out_join(const char *run, struct ranges *ranges,
                     struct checkpoint *newest, bool *whole);

#endif
