/* SPDX-License-Identifier: Apache-2.0 */
/* s3_curl.c - requests to an S3 storage, through libcurl where it is found at
 * run time. */
#include "checkpoint/s3_curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"

enum { CONNECT_S = 10, SILENT_S = 30 };

/* ---- the library: its interface has not changed since 7.75 ---- */

enum {
    OPT_WRITEDATA = 10001, OPT_URL = 10002, OPT_USERPWD = 10005,
    OPT_READDATA = 10009, OPT_ERRORBUFFER = 10010, OPT_WRITEFUNCTION = 20011,
    OPT_READFUNCTION = 20012, OPT_POSTFIELDS = 10015, OPT_SPEED_LIMIT = 19,
    OPT_SPEED_TIME = 20, OPT_HTTPHEADER = 10023, OPT_HEADERDATA = 10029,
    OPT_CUSTOMREQUEST = 10036, OPT_UPLOAD = 46, OPT_POST = 47,
    OPT_CONNECT_S = 78, OPT_HEADERFUNCTION = 20079, OPT_HTTPGET = 80,
    OPT_NOSIGNAL = 99, OPT_PROTOCOLS = 181, OPT_EXPECT_100_MS = 227,
    OPT_AWS_SIGV4 = 10305, OPT_FILE_BYTES = 30115, OPT_POST_BYTES = 30120,
    PROTOCOL_HTTP = 1, PROTOCOL_HTTPS = 2, ERROR_TEXT_BYTES = 256
};

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
};

static struct curl curl;
static bool has_curl;
static pthread_once_t curl_sought = PTHREAD_ONCE_INIT;

static void find_curl(void)
{
    static const char *const names[] = {"libcurl.so.4",
                                        "libcurl-gnutls.so.4"};
    void *library = NULL;

    for (int i = 0; i < 2 && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    *(void **)&curl.begin = dlsym(library, "curl_global_init");
    *(void **)&curl.make = dlsym(library, "curl_easy_init");
    *(void **)&curl.set = dlsym(library, "curl_easy_setopt");
    *(void **)&curl.perform = dlsym(library, "curl_easy_perform");
    *(void **)&curl.reset = dlsym(library, "curl_easy_reset");
    *(void **)&curl.end = dlsym(library, "curl_easy_cleanup");
    *(void **)&curl.append = dlsym(library, "curl_slist_append");
    *(void **)&curl.free_list = dlsym(library, "curl_slist_free_all");
    *(void **)&curl.error = dlsym(library, "curl_easy_strerror");
    has_curl = curl.begin != NULL && curl.make != NULL && curl.set != NULL &&
               curl.perform != NULL && curl.reset != NULL &&
               curl.end != NULL && curl.append != NULL &&
               curl.free_list != NULL && curl.error != NULL &&
               curl.begin(3) == 0;
}

bool s3_curl_is_there(void)
{
    pthread_once(&curl_sought, find_curl);
    return has_curl;
}

status s3_line_open(struct s3_line *line)
{
    line->handle = curl.make();
    if (line->handle != NULL) return OK;
    FAIL(ERR_MEMORY, "libcurl cannot be started");
}

void s3_line_close(struct s3_line *line)
{
    if (line->handle != NULL) curl.end(line->handle);
    if (line->headers != NULL) curl.free_list(line->headers);
    *line = (struct s3_line){.handle = NULL};
}

/* ---- what goes and comes ---- */

static size_t send_bytes(char *out, size_t size, size_t count, void *argument)
{
    struct s3_request *r = argument;
    const int64_t left = r->length - r->sent;
    int64_t some = (int64_t)(size * count);

    if (some > left) some = left;
    if (some > 0) memcpy(out, r->bytes + r->sent, (size_t)some);
    r->sent += some;
    return (size_t)some;
}

static size_t take_refusal(struct s3_request *r, const char *bytes,
                           size_t length)
{
    size_t some = sizeof r->refusal - 1 - r->refused;

    if (some > length) some = length;
    memcpy(r->refusal + r->refused, bytes, some);
    r->refused += some;
    return length;
}

static size_t take_bytes(char *bytes, size_t size, size_t count,
                         void *argument)
{
    struct s3_request *r = argument;
    const size_t length = size * count;

    if (r->code >= 300) return take_refusal(r, bytes, length);
    if ((int64_t)length > r->most - r->got) {
        r->too_long = true;
        return 0;
    }
    r->got += (int64_t)length;
    r->crc = crc32c(r->crc, bytes, length);
    if (r->to > 0 && file_put(r->to, r->url, bytes, length) != OK) return 0;
    if (r->answer != NULL && text_append(r->answer, bytes, length) != OK)
        return 0;
    return length;
}

static size_t take_header(char *bytes, size_t size, size_t count,
                          void *argument)
{
    struct s3_request *r = argument;
    const size_t length = size * count;
    char line[192];

    snprintf(line, sizeof line, "%.*s",
             (int)(length < 190 ? length : 190), bytes);
    line[strcspn(line, "\r\n")] = '\0';
    if (strncmp(line, "HTTP/", 5) == 0 && strchr(line, ' ') != NULL)
        r->code = (int)strtol(strchr(line, ' '), NULL, 10);
    if (strncasecmp(line, "etag:", 5) == 0) {
        const char *value = line + 5 + strspn(line + 5, " ");

        snprintf(r->etag, sizeof r->etag, "%.120s", value);
    }
    return length;
}

/* ---- a request ---- */

static void set_method(void *h, struct s3_request *r)
{
    if (strcmp(r->method, "PUT") == 0) {
        curl.set(h, OPT_UPLOAD, 1L);
        curl.set(h, OPT_FILE_BYTES, r->length);
        curl.set(h, OPT_READFUNCTION, send_bytes);
        curl.set(h, OPT_READDATA, r);
    } else if (strcmp(r->method, "POST") == 0) {
        curl.set(h, OPT_POST, 1L);
        curl.set(h, OPT_POSTFIELDS, r->bytes);
        curl.set(h, OPT_POST_BYTES, r->length);
    } else {
        curl.set(h, OPT_HTTPGET, 1L);
        if (strcmp(r->method, "DELETE") == 0)
            curl.set(h, OPT_CUSTOMREQUEST, "DELETE");
    }
}

/* The hash of what is sent is part of what is signed. */
static status set_headers(struct s3_line *line,
                          const struct s3_request *r)
{
    char hash[65];
    struct text text = {0};
    struct pair *list = NULL;
    status result;

    sha256_hex(r->bytes != NULL ? r->bytes : "", (size_t)r->length, hash);
    TRY_GOTO(done, result, text_printf(&text, "x-amz-content-sha256: %s",
                                       hash));
    list = curl.append(NULL, text.bytes);
    text.length = 0;
    if (list != NULL && strcmp(r->method, "POST") == 0)
        list = curl.append(list, "content-type: application/xml");
    if (list != NULL && line->token != NULL) {
        TRY_GOTO(done, result, text_printf(&text, "x-amz-security-token: %s",
                                           line->token));
        list = curl.append(list, text.bytes);
    }
    if (list == NULL)
        result = status_fail(ERR_MEMORY, __FILE__, __LINE__, "no memory for "
                             "the headers of a request");
done:
    if (line->headers != NULL) curl.free_list(line->headers);
    line->headers = list;
    text_free(&text);
    return result;
}

static status set_options(const struct s3_line *line, struct s3_request *r,
                          char *error)
{
    void *h = line->handle;

    curl.reset(h);
    error[0] = '\0';
    curl.set(h, OPT_URL, r->url);
    curl.set(h, OPT_ERRORBUFFER, error);
    curl.set(h, OPT_NOSIGNAL, 1L);
    curl.set(h, OPT_PROTOCOLS, (long)(PROTOCOL_HTTP | PROTOCOL_HTTPS));
    curl.set(h, OPT_CONNECT_S, (long)CONNECT_S);
    curl.set(h, OPT_SPEED_LIMIT, 1L);
    curl.set(h, OPT_SPEED_TIME, (long)SILENT_S);
    curl.set(h, OPT_EXPECT_100_MS, 1L);
    curl.set(h, OPT_WRITEFUNCTION, take_bytes);
    curl.set(h, OPT_WRITEDATA, r);
    curl.set(h, OPT_HEADERFUNCTION, take_header);
    curl.set(h, OPT_HEADERDATA, r);
    curl.set(h, OPT_USERPWD, line->user);
    curl.set(h, OPT_HTTPHEADER, line->headers);
    if (curl.set(h, OPT_AWS_SIGV4, line->signature) != 0)
        FAIL(ERR_DEVICE, "libcurl of this machine cannot sign requests to S3; "
                         "7.75 or newer can");
    set_method(h, r);
    return OK;
}

status s3_line_ask(struct s3_line *line, struct s3_request *r,
                   const char *what)
{
    char error[ERROR_TEXT_BYTES];
    int code;

    r->sent = r->got = 0;
    r->crc = 0;
    r->code = 0;
    r->refused = 0;
    TRY(set_headers(line, r));
    TRY(set_options(line, r, error));
    code = curl.perform(line->handle);
    if (code == 0 || r->too_long) return OK;
    FAIL(ERR_IO, "%s: %s", what, error[0] != '\0' ? error : curl.error(code));
}
