/* SPDX-License-Identifier: Apache-2.0 */
/* signals.h - requests of the operator or the batch system to a running loop.
 *
 * Handlers belong to the process and are installed before it opens anything.
 * Every rank asks signals_asked in each step, and all take the largest answer
 * (train_step_run), so a signal at one rank stops all of them after the same
 * step. SIGTERM, SIGUSR1, SIGHUP and SIGINT: save and exit 75. A second SIGTERM
 * or SIGINT, after either of them, ends a process that was started by hand at
 * once, as the shell expects; after SIGUSR1 or SIGHUP the first one does not:
 * batch systems warn with these. Launchers and batch systems send a signal
 * twice (to their own child and to the whole job) and kill what does not end:
 * there a repeated signal changes nothing. SIGHUP stays ignored where it was
 * (nohup). SIGPIPE is ignored from now on: a closed terminal must not end a
 * run, nor take the exit code of one that has ended. A launcher that is killed
 * sends nothing: a rank whose parent has changed stops as by SIGTERM. */
#ifndef LOCKSTEP_TRAIN_SIGNALS_H
#define LOCKSTEP_TRAIN_SIGNALS_H

#include <stdbool.h>

#include "base/status.h"

enum { SIGNALS_LAUNCHER = 1000 }; /* beside signals: the launcher is gone */

/* From now until signals_restore. launched: by a launcher of MPI, or
 * by `lockstep launch`. */
status signals_install(bool launched);
/* Once more: libraries of MPI install handlers of their own when they begin
 * (UCX, for SIGHUP). Not where ranks are threads. */
status signals_claim(void);
/* The first step is about to begin: until now a signal is answered with a line
 * that says what it waits for. */
void signals_stepping(void);
/* Number of the first signal that asked us to stop, 0: none. */
int signals_asked(void);
/* "SIGTERM", "the end of its launcher"; "" for 0. */
const char *signals_name(int number);
/* Puts the former handlers back and forgets what was asked; a SIGUSR1 that
 * comes later is ignored. */
void signals_restore(void);

#endif
