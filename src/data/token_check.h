/* SPDX-License-Identifier: Apache-2.0 */
/* token_check.h - token files that were opened unread are read whole beside the
 * work, by a thread of their own.
 *
 *   opened by its header, table and size ---> samples
 *                      \--> checksum, each id ---> a seal, the file's crc
 *
 * Of several that check one file at once, ranks or runs, one reads, and the
 * others take its seal. */
#ifndef LOCKSTEP_DATA_TOKEN_CHECK_H
#define LOCKSTEP_DATA_TOKEN_CHECK_H

#include "data/token_file.h"

struct token_check;

/* Begins with the files of files [count] that are `unread`. Paths and cache
 * (for seals; NULL: beside the files) must outlive the check. *check NULL:
 * there is none. */
status token_check_begin(struct token_check **check,
                         const struct token_file *files, int count,
                         const char *cache);
/* Waits until all is read; sets crc and largest of the files [count] that it
 * began with. ERR_FORMAT: one is not whole. */
status token_check_end(struct token_check *check, struct token_file *files,
                       int count);
/* Stops reading; NULL allowed. */
void token_check_free(struct token_check *check);

#endif
