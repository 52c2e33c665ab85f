/* SPDX-License-Identifier: Apache-2.0 */
/* run_machine.h - the machine that a run is predicted on. */
#ifndef LOCKSTEP_TRAIN_RUN_MACHINE_H
#define LOCKSTEP_TRAIN_RUN_MACHINE_H

#include "base/options.h"
#include "planner/machine.h"

#define RUN_MACHINE "machine.json" /* in the run's directory */

/* The option `machine`, or the run's own copy where the option is empty or
 * its file is gone; *there: one of them is. ERR_CONFIG, ERR_FORMAT: it is not
 * a machine, or was measured on another one. */
status run_machine_open(struct machine *machine, const struct options *options,
                        bool *there);

#endif
