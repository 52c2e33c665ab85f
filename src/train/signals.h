/* SPDX-License-Identifier: Apache-2.0 */
/* signals.h - what the operator or the batch system asks of a running loop.
 *
 * The loop asks signals_asked between steps. SIGTERM and SIGUSR1: save and
 * exit 75. SIGINT: the same, and say how to resume. A second SIGTERM or SIGINT
 * ends the process at once, as the shell expects. SIGPIPE is ignored: a closed
 * terminal must not end a run. */
#ifndef LOCKSTEP_TRAIN_SIGNALS_H
#define LOCKSTEP_TRAIN_SIGNALS_H

#include "base/status.h"

/* From now until signals_restore. */
status signals_install(void);
/* Number of the first signal that asked us to stop, 0: none. */
int signals_asked(void);
/* "SIGTERM"; "" for 0. */
const char *signals_name(int number);
/* Puts the former handlers back and forgets what was asked. */
void signals_restore(void);

#endif
