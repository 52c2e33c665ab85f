/* SPDX-License-Identifier: Apache-2.0 */
/* token_check.h - token files that were opened unread are read whole beside the
 * work, by a thread of their own.
 *
 *   opened by its header, table and size ---> samples
 *                      \--> checksum, each id ---> a seal, the file's crc
 *
 * If several ranks or runs check one file at once, one reads it and the others
 * take its seal. Each compares the ids with the vocabulary of its own model: a
 * file may be whole, and yet none that the model can learn from. */
#ifndef LOCKSTEP_DATA_TOKEN_CHECK_H
#define LOCKSTEP_DATA_TOKEN_CHECK_H

#include "data/token_file.h"

struct token_check;

struct token_check_request {
    const struct token_file *files; /* [count]; paths must outlive the check */
    int count;
    const char *cache; /* for seals; must outlive it; NULL: beside the files */
    int64_t vocab;     /* of the model: ids must be below; 0: any */
};

/* Begins with the files that are `unread`. *check NULL: there is none. */
status token_check_begin(struct token_check **check,
                         const struct token_check_request *request);
/* Whether all is read, or nothing more will be; adds the bytes that were read
 * so far, and those of the files. */
bool token_check_done(const struct token_check *check, int64_t *read,
                      int64_t *bytes);
/* Waits until all is read; sets crc and largest of the files that it began
 * with. ERR_FORMAT: one is not whole; ERR_CONFIG: it holds an id that the model
 * has not. */
status token_check_end(struct token_check *check, struct token_file *files);
/* Stops reading; NULL allowed. */
void token_check_free(struct token_check *check);

#endif
