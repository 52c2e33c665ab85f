/* SPDX-License-Identifier: Apache-2.0 */
/* compare_ranks.h - checks that values are the same on all ranks before they
 * are used. */
#ifndef LOCKSTEP_COMM_COMPARE_RANKS_H
#define LOCKSTEP_COMM_COMPARE_RANKS_H

#include "comm/comm.h"

/* As comm_same, for a text: ERR_CONFIG on every rank, naming the first whose
 * text is not rank 0's, and the first line that differs. Collective. */
status comm_same_text(struct group *group, const char *what, const char *text,
                      size_t length);

#endif
