/* SPDX-License-Identifier: Apache-2.0 */
/* s3_curl.h - requests to an S3 storage, through libcurl where it is found at
 * run time. They are signed by libcurl (AWS signature version 4). */
#ifndef LOCKSTEP_CHECKPOINT_S3_CURL_H
#define LOCKSTEP_CHECKPOINT_S3_CURL_H

#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

enum { S3_REFUSAL_BYTES = 4096 };

struct pair; /* curl_slist */

/* A connection. One thread uses it at a time. */
struct s3_line {
    void *handle;
    struct pair *headers; /* of the request under way */
    char user[640], signature[96];
    const char *token;    /* of the session; NULL: none */
};

struct s3_request {
    const char *method, *key; /* key NULL: the bucket */
    const char *query;        /* in the order in which it is signed; or NULL */
    const char *url;          /* all of the address */
    const char *bytes;        /* what is sent */
    int64_t length, sent;
    struct text *answer;      /* what comes back: into memory, */
    int to;                   /* or a file; 0: none */
    int64_t most, got;
    uint32_t crc;             /* of it */
    bool too_long;
    int code;                 /* of the answer */
    char etag[128];
    char refusal[S3_REFUSAL_BYTES];
    size_t refused;
};

/* Whether the library is on this machine. */
bool s3_curl_is_there(void);
/* ERR_MEMORY. `user` and `signature` are filled by the caller. */
status s3_line_open(struct s3_line *line);
void s3_line_close(struct s3_line *line); /* zeroed: allowed */
/* Once. `what` is named when nobody answers. ERR_IO: no answer; else r->code
 * and r->too_long say how it went. */
status s3_line_ask(struct s3_line *line, struct s3_request *r,
                   const char *what);

#endif
