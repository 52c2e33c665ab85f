/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - named places where a drill can make things go wrong.
 *
 *   LOCKSTEP_FAULT="name[@rank]:count[:action][,...]"
 *
 * The count-th time (from 1) that this process passes the point of that name,
 * the action happens: fail (the default; ERR_IO), full (ERR_IO, disk full),
 * kill (SIGKILL, as if the power went), slow (two seconds pass), exit (the
 * process ends as if all were well), abort, spin (an endless loop), late
 * (five seconds pass) or stop (SIGSTOP, until somebody sends SIGCONT). With
 * @rank only in that rank of the first generation that a supervisor starts.
 * Points are few, and outside loops that matter for speed. docs/faults.md lists
 * them. */
#ifndef LOCKSTEP_BASE_FAULT_H
#define LOCKSTEP_BASE_FAULT_H

#include <stdbool.h>
#include "base/status.h"

/* Replaces what is armed; NULL or "": nothing. Without a call, the first point
 * that is passed reads the environment. ERR_CONFIG. Not for use while other
 * threads pass points. */
status fault_arm(const char *faults);
/* OK, or the failure that was armed. */
status fault_point(const char *name);
/* True when a fault is due here, whatever its action: for places that know
 * themselves what going wrong means (a loss that is NaN). Counts like
 * fault_point. */
bool fault_due(const char *name);
/* The same, and true at every later passing of this process, too: a machine
 * that stays wrong. */
bool fault_lasts(const char *name);

#endif
