/* SPDX-License-Identifier: Apache-2.0 */
/* run_number.h - a number in a file of its own, as in RUN/control: digits and a
 * newline. */
#ifndef LOCKSTEP_CONTROL_RUN_NUMBER_H
#define LOCKSTEP_CONTROL_RUN_NUMBER_H

#include <stdint.h>

#include "base/text.h"

enum { RUN_NUMBER_BYTES = 24 }; /* of such a file, at most */

/* 0: it is no such file, or the number is beyond 64 bits. */
uint64_t run_number_in(const struct text *text);
/* RUN/control/NAME. ERR_IO: it is not written, and the file is as it was. */
status run_number_write(const char *run, const char *name, uint64_t number);
/* 0: the file is not there, or cannot be read. */
uint64_t run_number_read(const char *run, const char *name);

#endif
