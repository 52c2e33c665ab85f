/* SPDX-License-Identifier: Apache-2.0 */
/* s3_text.h - the texts of object storage: names, queries and answers.
 *
 * An answer comes from a stranger. It is searched, never trusted: nothing is
 * copied beyond a buffer, and an element that is not closed is none. */
#ifndef LOCKSTEP_CHECKPOINT_S3_TEXT_H
#define LOCKSTEP_CHECKPOINT_S3_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

enum { S3_BUCKET_BYTES = 64, S3_PREFIX_BYTES = 512, S3_KEY_BYTES = 1025,
       S3_TOKEN_BYTES = 2048 };

struct s3_place {
    char bucket[S3_BUCKET_BYTES];
    char prefix[S3_PREFIX_BYTES]; /* without a slash at either end; may be "" */
};

/* "s3://bucket/prefix". ERR_CONFIG says what is wrong. */
status s3_place_parse(struct s3_place *place, const char *url);

/* Percent-encoded, as queries are signed. False: it does not fit. */
bool s3_encode(const char *text, char *out, size_t size);

/* The bytes inside the first element `tag` that begins at or behind *at, which
 * moves behind it. False: there is none. */
bool s3_inside(const char *xml, size_t length, const char *tag, size_t *at,
               const char **inside, size_t *size);

/* The text of the first element `tag` that begins at or behind *at, without
 * the five entities of XML; *at moves behind it. False: there is none, or its
 * text has `size` bytes or more. */
bool s3_element(const char *xml, size_t length, const char *tag, size_t *at,
                char *out, size_t size);

#endif
