/* SPDX-License-Identifier: Apache-2.0 */
/* call_table.h - the last calls of all ranks before an incident, as they were
 * kept with it (control/call_record.h). */
#ifndef LOCKSTEP_CLI_CALL_TABLE_H
#define LOCKSTEP_CLI_CALL_TABLE_H

#include <stdint.h>
#include "base/file.h"

/* path [PATH_BYTES] of those of a generation; false: none are kept. */
bool call_table_path(char *path, const char *run, int64_t generation);
/* Prints them in the order in which they began; lines that make no sense are
 * left out, and said. ERR_MISSING: none are kept. */
status call_table_print(const char *run, int64_t generation);

#endif
