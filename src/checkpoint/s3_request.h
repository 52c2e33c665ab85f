/* SPDX-License-Identifier: Apache-2.0 */
/* s3_request.h - one request to an S3 storage, and its repetition; for s3.c and
 * s3_send.c alone. */
#ifndef LOCKSTEP_CHECKPOINT_S3_REQUEST_H
#define LOCKSTEP_CHECKPOINT_S3_REQUEST_H

#include "checkpoint/s3.h"

enum { S3_ANSWER_MOST = 8 << 20, S3_REFUSAL_BYTES = 4096 };

struct s3 {
    struct s3_place place;
    void *handle;
    struct pair *headers; /* of the request under way */
    char user[640], signature[96], endpoint[256];
    const char *token;    /* of the environment; NULL: none */
    double end_s;         /* when requests begin to fail; 0: never */
    char *part;           /* owned, [S3_PART_BYTES]: of a file */
};

struct request {
    const char *method, *key; /* key NULL: the bucket */
    const char *query;        /* in the order in which it is signed; or NULL */
    const char *bytes;        /* what is sent */
    int64_t length, sent;
    struct text *answer;      /* what comes back: into memory, */
    int to;                   /* or a file; 0: none */
    int64_t most, got;
    uint32_t crc;             /* of it */
    bool too_long;
    bool late;                /* an answer 200 may still be an <Error> */
    const char *ends;         /* how an answer that is whole ends; or NULL */
    const char *condition;    /* a header: only where that holds; or NULL */
    bool unmet;               /* it did not: nothing was put */
    int code;                 /* of the answer */
    char etag[S3_ETAG_BYTES];
    char refusal[S3_REFUSAL_BYTES];
    size_t refused;
};

/* Where it failed for a moment, it is repeated (base/retry.h). ERR_MISSING,
 * ERR_CONFIG, ERR_STOPPED, ERR_FORMAT (more than `most`) and ERR_IO, as s3.h
 * says. */
status s3_ask(struct s3 *s3, struct request *r);
status s3_ask_once(struct s3 *s3, struct request *r);
/* s3://BUCKET/PREFIX/KEY, for messages. */
enum { S3_NAME_BYTES = S3_BUCKET_BYTES + S3_PREFIX_BYTES + S3_KEY_BYTES + 8 };
void s3_name(const struct s3 *s3, const char *key, char out[S3_NAME_BYTES]);

#endif
