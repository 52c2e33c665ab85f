/* SPDX-License-Identifier: Apache-2.0 */
/* inheritance.h - memory without a name, the token of the run and numbers in
 * the environment, which the process of a rank inherits from the one that
 * starts it. */
#ifndef LOCKSTEP_COMM_INHERITANCE_H
#define LOCKSTEP_COMM_INHERITANCE_H

#include <stdint.h>

#include "base/status.h"
#include "comm/handshake.h"

/* A file without a name, of `bytes` zeros, that only its owner reads and that
 * lives as long as a process has it open; it is closed on exec. *out is its
 * descriptor. ERR_MEMORY. */
status inherited_memory(const char *name, int64_t bytes, int *out);
/* Makes a file in memory that holds a token as hexadecimal digits. ERR_MEMORY,
 * ERR_IO. */
status inherited_token(const struct token *token, int *out);
/* Sets a variable of the environment. ERR_MEMORY. */
status inherited_number(const char *name, uint64_t number);

#endif
