/* SPDX-License-Identifier: Apache-2.0 */
/* s3_request.c - one request to an S3 storage, and its repetition. */
#include "checkpoint/s3_request.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/retry.h"
#include "checkpoint/s3_curl.h"

enum { CONNECT_S = 10, SILENT_S = 30 };

/* ---- opening ---- */

static const char *from_environment(const char *name, const char *other)
{
    const char *found = getenv(name);

    if ((found == NULL || found[0] == '\0') && other != NULL)
        found = getenv(other);
    return found != NULL && found[0] != '\0' ? found : NULL;
}

static bool is_region(const char *text)
{
    return strlen(text) < 40 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") ==
               strlen(text);
}

/* An address with a password would stand in messages. */
static bool has_user(const char *endpoint)
{
    const char *host = strstr(endpoint, "://");

    host = host != NULL ? host + 3 : endpoint;
    return memchr(host, '@', strcspn(host, "/")) != NULL;
}

static status read_environment(struct s3 *s3)
{
    const char *endpoint = from_environment("AWS_ENDPOINT_URL_S3",
                                            "AWS_ENDPOINT_URL");
    const char *region = from_environment("AWS_REGION", "AWS_DEFAULT_REGION");
    const char *key = from_environment("AWS_ACCESS_KEY_ID", NULL);
    const char *secret = from_environment("AWS_SECRET_ACCESS_KEY", NULL);
    size_t length;

    s3->token = from_environment("AWS_SESSION_TOKEN", NULL);

    if (key == NULL || secret == NULL)
        FAIL(ERR_CONFIG, "s3://%s needs credentials: set AWS_ACCESS_KEY_ID and "
                         "AWS_SECRET_ACCESS_KEY (and AWS_ENDPOINT_URL for a "
                         "storage that is not Amazon's)", s3->place.bucket);
    if (region == NULL) region = "us-east-1";
    if (!is_region(region))
        FAIL(ERR_CONFIG, "AWS_REGION: \"%.60s\" is no region; us-east-1 is one",
             region);
    length = (size_t)snprintf(s3->user, sizeof s3->user, "%s:%s", key, secret);
    if (length >= sizeof s3->user)
        FAIL(ERR_CONFIG, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY have "
                         "%zu bytes, more than %zu", length, sizeof s3->user);
    snprintf(s3->signature, sizeof s3->signature, "aws:amz:%s:s3", region);
    if (endpoint != NULL && has_user(endpoint))
        FAIL(ERR_CONFIG, "AWS_ENDPOINT_URL: holds a user or password (a '@' "
                         "before the path); give https://HOST:PORT, and "
                         "credentials in AWS_ACCESS_KEY_ID and "
                         "AWS_SECRET_ACCESS_KEY");
    if (endpoint == NULL)
        snprintf(s3->endpoint, sizeof s3->endpoint,
                 "https://s3.%s.amazonaws.com", region);
    else if (strlen(endpoint) >= sizeof s3->endpoint ||
             (strncmp(endpoint, "http://", 7) != 0 &&
              strncmp(endpoint, "https://", 8) != 0))
        FAIL(ERR_CONFIG, "AWS_ENDPOINT_URL: \"%.80s\" is no address; expected "
                         "https://HOST:PORT", endpoint);
    else
        snprintf(s3->endpoint, sizeof s3->endpoint, "%s", endpoint);
    length = strlen(s3->endpoint);
    if (s3->endpoint[length - 1] == '/') s3->endpoint[length - 1] = '\0';
    return OK;
}

status s3_open(struct s3 **out, const char *url)
{
    struct s3_place place;
    void *memory;
    status result;

    *out = NULL;
    TRY(s3_place_parse(&place, url));
    if (!curl_find())
        FAIL(ERR_DEVICE, "%s needs libcurl 7.75 or newer, which is not on this "
                         "machine; Debian: apt-get install libcurl4", url);
    TRY(memory_take(1, sizeof **out, &memory));
    *out = memory;
    (*out)->place = place;
    TRY_GOTO(failed, result, read_environment(*out));
    (*out)->handle = curl.make();
    if ((*out)->handle != NULL) return OK;
    result = status_fail(ERR_MEMORY, __FILE__, __LINE__,
                         "libcurl cannot be started");
failed:
    s3_close(*out);
    *out = NULL;
    return result;
}

void s3_close(struct s3 *s3)
{
    if (s3 == NULL) return;
    if (s3->handle != NULL) curl.end(s3->handle);
    if (s3->headers != NULL) curl.free_list(s3->headers);
    memory_free(s3->part);
    memory_free(s3);
}

/* ---- requests ---- */

static size_t send_bytes(char *out, size_t size, size_t count, void *argument)
{
    struct request *r = argument;
    const int64_t left = r->length - r->sent;
    int64_t some = (int64_t)(size * count);

    if (some > left) some = left;
    if (some > 0) memcpy(out, r->bytes + r->sent, (size_t)some);
    r->sent += some;
    return (size_t)some;
}

static size_t take_refusal(struct request *r, const char *bytes, size_t length)
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
    struct request *r = argument;
    const size_t length = size * count;

    if (r->code >= 300) return take_refusal(r, bytes, length);
    if ((int64_t)length > r->most - r->got) {
        r->too_long = true;
        return 0;
    }
    r->got += (int64_t)length;
    r->crc = crc32c(r->crc, bytes, length);
    if (r->to > 0 && file_put(r->to, r->key, bytes, length) != OK) return 0;
    if (r->answer != NULL && text_append(r->answer, bytes, length) != OK)
        return 0;
    return length;
}

static size_t take_header(char *bytes, size_t size, size_t count,
                          void *argument)
{
    struct request *r = argument;
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

void s3_name(const struct s3 *s3, const char *key, char out[S3_NAME_BYTES])
{
    const char *prefix = s3->place.prefix;

    snprintf(out, S3_NAME_BYTES, "s3://%.63s/%.511s%s%.1023s",
             s3->place.bucket, prefix, prefix[0] != '\0' ? "/" : "",
             key != NULL ? key : "");
}

static status refuse(const struct s3 *s3, const struct request *r)
{
    char code[64] = "", message[256] = "", name[S3_NAME_BYTES];
    size_t at = 0;

    (void)s3_element(r->refusal, r->refused, "Code", &at, code, sizeof code);
    at = 0;
    (void)s3_element(r->refusal, r->refused, "Message", &at, message,
                     sizeof message);
    for (char *c = message; *c != '\0'; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    const bool passes = (r->code >= 500 && r->code != 501) || r->code == 429 ||
                        r->code == 408 || r->code < 300 ||
                        strcmp(code, "RequestTimeout") == 0;
    const status kind = passes ? ERR_IO
                        : r->code == 404 ? ERR_MISSING : ERR_CONFIG;

    s3_name(s3, r->key, name);
    FAIL(kind, "%s: %s of %s is refused: %d %s%s%s", name, r->method,
         s3->endpoint, r->code, code[0] != '\0' ? code : "without a reason",
         message[0] != '\0' ? ", " : "", message);
}

static void set_method(const struct s3 *s3, struct request *r)
{
    void *h = s3->handle;

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
static status set_headers(struct s3 *s3, const struct request *r)
{
    char hash[65];
    struct text line = {0};
    struct pair *list = NULL;
    status result;

    sha256_hex(r->bytes != NULL ? r->bytes : "", (size_t)r->length, hash);
    TRY_GOTO(done, result, text_printf(&line, "x-amz-content-sha256: %s",
                                       hash));
    list = curl.append(NULL, line.bytes);
    line.length = 0;
    if (list != NULL && strcmp(r->method, "POST") == 0)
        list = curl.append(list, "content-type: application/xml");
    if (list != NULL && r->condition != NULL)
        list = curl.append(list, r->condition);
    if (list != NULL && s3->token != NULL) {
        TRY_GOTO(done, result, text_printf(&line, "x-amz-security-token: %s",
                                           s3->token));
        list = curl.append(list, line.bytes);
    }
    if (list == NULL)
        result = status_fail(ERR_MEMORY, __FILE__, __LINE__, "no memory for "
                             "the headers of a request");
done:
    if (s3->headers != NULL) curl.free_list(s3->headers);
    s3->headers = list;
    text_free(&line);
    return result;
}

static _Atomic(double) stop_s; /* when the process was asked to end; 0: not */

void s3_stop_soon(void)
{
    double none = 0;

    atomic_compare_exchange_strong(&stop_s, &none, clock_s());
}

void s3_hurry(struct s3 *s3, double seconds)
{
    s3->end_s = clock_s() + seconds;
}

static bool is_over(const struct s3 *s3)
{
    const double asked = atomic_load(&stop_s);

    return (asked > 0 && clock_s() > asked + S3_STOP_S) ||
           (s3->end_s > 0 && clock_s() > s3->end_s);
}

static int look(void *argument, int64_t down, int64_t has, int64_t up,
                int64_t sent)
{
    (void)down, (void)has, (void)up, (void)sent;
    return is_over(argument);
}

static status set_options(const struct s3 *s3, struct request *r, char *error)
{
    void *h = s3->handle;
    char url[S3_KEY_BYTES + S3_TOKEN_BYTES + 2048];
    int length = snprintf(url, sizeof url, "%s/%s%s%s%s%s%s%s", s3->endpoint,
                          s3->place.bucket, r->key != NULL ? "/" : "",
                          r->key != NULL ? s3->place.prefix : "",
                          r->key != NULL && s3->place.prefix[0] != '\0' ? "/"
                                                                        : "",
                          r->key != NULL ? r->key : "",
                          r->query != NULL ? "?" : "",
                          r->query != NULL ? r->query : "");

    if (length < 0 || length >= (int)sizeof url)
        FAIL(ERR_CONFIG, "%s: the address is too long", s3->place.bucket);
    curl.reset(h);
    error[0] = '\0';
    curl.set(h, OPT_URL, url);
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
    curl.set(h, OPT_USERPWD, s3->user);
    curl.set(h, OPT_HTTPHEADER, s3->headers);
    curl.set(h, OPT_PROGRESSFUNCTION, look);
    curl.set(h, OPT_PROGRESSDATA, s3);
    curl.set(h, OPT_NOPROGRESS, 0L);
    if (curl.set(h, OPT_AWS_SIGV4, s3->signature) != 0)
        FAIL(ERR_DEVICE, "libcurl of this machine cannot sign requests to S3; "
                         "7.75 or newer can");
    set_method(s3, r);
    return OK;
}

/* 409: another request is changing the object just now; 404: it is gone. */
static bool is_unmet(const struct request *r)
{
    return r->condition != NULL &&
           (r->code == 412 || r->code == 409 ||
            (r->code == 404 && strncmp(r->condition, "If-Match", 8) == 0));
}

/* The storage had answered 200 before it knew that it would fail. */
static bool is_error(struct request *r)
{
    const char *inside;
    size_t at = 0, length;

    if (!s3_inside(r->answer->bytes, r->answer->length, "Error", &at, &inside,
                   &length))
        return false;
    take_refusal(r, inside, length);
    return true;
}

status s3_ask_once(struct s3 *s3, struct request *r)
{
    char error[ERROR_TEXT_BYTES], name[S3_NAME_BYTES];
    int code;

    s3_name(s3, r->key, name);
    r->sent = r->got = 0;
    r->crc = 0;
    r->code = 0;
    r->etag[0] = '\0';
    r->unmet = false;
    r->refused = 0;
    if (r->answer != NULL) r->answer->length = 0;
    if (r->to > 0 && (ftruncate(r->to, 0) != 0 ||
                      lseek(r->to, 0, SEEK_SET) != 0))
        FAIL(ERR_IO, "%s cannot be written", r->key);
    TRY(fault_point("mirror.request"));
    TRY(set_headers(s3, r));
    TRY(set_options(s3, r, error));
    code = is_over(s3) ? 0 : curl.perform(s3->handle);
    if (is_over(s3))
        FAIL(ERR_STOPPED, s3->end_s > 0
                              ? "%s: no answer in time"
                              : "%s: not sent in the 15 s after the run was "
                                "asked to stop", name);
    if (r->too_long)
        FAIL(ERR_FORMAT, "%s: has more than %lld bytes", name,
             (long long)r->most);
    if (code != 0)
        FAIL(ERR_IO, "%s: %s", s3->endpoint,
             error[0] != '\0' ? error : curl.error(code));
    r->unmet = is_unmet(r);
    if (r->unmet) return OK;
    if (r->code >= 300 || (r->late && is_error(r))) return refuse(s3, r);
    if (r->ends != NULL && memmem(r->answer->bytes, r->answer->length, r->ends,
                                  strlen(r->ends)) == NULL)
        FAIL(ERR_IO, "%s: an answer without %s at its end; does something "
                     "between here and there answer?", s3->endpoint, r->ends);
    return OK;
}

status s3_ask(struct s3 *s3, struct request *r)
{
    struct retry retry = {0};
    status result;

    do result = s3_ask_once(s3, r);
    while (retry_again(&retry, result));
    return result;
}
