/* SPDX-License-Identifier: Apache-2.0 */
/* s3_curl.h - libcurl, where it is found at run time: its interface has not
 * changed since 7.75, the first that signs requests to S3. */
#ifndef LOCKSTEP_CHECKPOINT_S3_CURL_H
#define LOCKSTEP_CHECKPOINT_S3_CURL_H

#include <stdbool.h>

enum {
    OPT_WRITEDATA = 10001, OPT_URL = 10002, OPT_USERPWD = 10005,
    OPT_READDATA = 10009, OPT_ERRORBUFFER = 10010, OPT_WRITEFUNCTION = 20011,
    OPT_READFUNCTION = 20012, OPT_POSTFIELDS = 10015, OPT_SPEED_LIMIT = 19,
    OPT_SPEED_TIME = 20, OPT_HTTPHEADER = 10023, OPT_HEADERDATA = 10029,
    OPT_CUSTOMREQUEST = 10036, OPT_UPLOAD = 46, OPT_POST = 47,
    OPT_CONNECT_S = 78, OPT_HEADERFUNCTION = 20079, OPT_HTTPGET = 80,
    OPT_NOPROGRESS = 43, OPT_NOSIGNAL = 99, OPT_PROTOCOLS = 181,
    OPT_EXPECT_100_MS = 227, OPT_AWS_SIGV4 = 10305, OPT_PROGRESSDATA = 10057,
    OPT_PROGRESSFUNCTION = 20219, OPT_FILE_BYTES = 30115,
    OPT_POST_BYTES = 30120,
    PROTOCOL_HTTP = 1, PROTOCOL_HTTPS = 2, ERROR_TEXT_BYTES = 256
};

struct pair; /* curl_slist */

struct curl {
    int (*begin)(long flags);
    void *(*make)(void);
    int (*set)(void *handle, int option, ...);
    int (*perform)(void *handle);
    void (*reset)(void *handle);
    void (*end)(void *handle);
    struct pair *(*append)(struct pair *list, const char *text);
    void (*free_list)(struct pair *list);
    const char *(*error)(int code);
    const struct curl_facts { int age; const char *version; } *(*info)(int age);
};

extern struct curl curl;

/* Whether it is there; the first call looks for it. */
bool curl_find(void);
/* Whether it can sign requests to S3. */
bool curl_signs(void);
/* "7.88.1"; NULL: curl_find is false. */
const char *curl_version_text(void);

#endif
