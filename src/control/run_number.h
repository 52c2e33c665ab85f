/* SPDX-License-Identifier: Apache-2.0 */
/* run_number.h - a number in a file of RUN/control. */
#ifndef LOCKSTEP_CONTROL_RUN_NUMBER_H
#define LOCKSTEP_CONTROL_RUN_NUMBER_H

#include <stdint.h>

#include "base/status.h"

/* ERR_IO: it is not written, and the file is as it was. */
status run_number_write(const char *run, const char *name, uint64_t number);
/* 0: the file is not there, or cannot be read. */
uint64_t run_number_read(const char *run, const char *name);

#endif
