/* SPDX-License-Identifier: Apache-2.0 */
/* profile_file.h - the file of a machine: JSON as `calibrate` writes it, or
 * lines "name: value" of a person. */
#ifndef LOCKSTEP_PLANNER_PROFILE_FILE_H
#define LOCKSTEP_PLANNER_PROFILE_FILE_H

#include "planner/machine.h"

enum { PROFILE_VERSION = 1 };

/* Fills a zeroed machine. ERR_FORMAT: the file is neither form, lacks a field
 * or has one of the wrong kind; ERR_CONFIG: a constant out of range. */
status profile_read(struct machine *machine, const char *path);

#endif
