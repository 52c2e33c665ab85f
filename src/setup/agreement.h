/* SPDX-License-Identifier: Apache-2.0 */
/* agreement.h - all ranks run the same program with the same configuration.
 *
 * Under a launcher each rank reads its own command line, files and
 * environment. A rank with another batch or schedule would wait for messages
 * that nobody sends, or train something else; here it is named instead. */
#ifndef LOCKSTEP_SETUP_AGREEMENT_H
#define LOCKSTEP_SETUP_AGREEMENT_H

#include "comm/comm.h"
#include "setup/setup.h"

/* ERR_CONFIG on every rank, with the first option that differs from rank 0's
 * and both values. What may differ between machines may: threads, instruction
 * set, memory aimed at, cache directory. world NULL: alone. */
status same_options(struct group *world, const struct options_set *set);
/* Like same_options, for the lists of the schedule. */
status same_schedule(struct group *world, const struct setup *setup);

#endif
