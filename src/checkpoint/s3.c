/* SPDX-License-Identifier: Apache-2.0 */
/* s3.c - objects of an S3 storage, through libcurl where it is found at run
 * time. */
#include "checkpoint/s3.h"

#include <fcntl.h>
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

enum { ANSWER_MOST = 8 << 20, KEYS_MOST = 1000000, PARTS_MOST = 10000,
       REFUSAL_BYTES = 4096, CONNECT_S = 10, SILENT_S = 30 };

/* ---- opening ---- */

struct s3 {
    struct s3_place place;
    void *handle;
    struct pair *headers; /* of the request under way */
    char user[640], signature[96], endpoint[256];
    const char *token;    /* of the environment; NULL: none */
    double end_s;         /* when requests begin to fail; 0: never */
    char *part;           /* owned, [S3_PART_BYTES]: of a file */
};

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

/* Such an address would stand in messages, with its password. */
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
    int code;                 /* of the answer */
    char etag[128];
    char refusal[REFUSAL_BYTES];
    size_t refused;
};

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

static status refuse(const struct s3 *s3, const struct request *r)
{
    char code[64] = "", message[256] = "";
    size_t at = 0;

    (void)s3_element(r->refusal, r->refused, "Code", &at, code, sizeof code);
    at = 0;
    (void)s3_element(r->refusal, r->refused, "Message", &at, message,
                     sizeof message);
    for (char *c = message; *c != '\0'; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    const bool passes = r->code >= 500 || r->code == 429 || r->code == 408;
    const status kind = passes ? ERR_IO
                        : r->code == 404 ? ERR_MISSING : ERR_CONFIG;

    FAIL(kind, "s3://%s/%s%s%s: %s of %s is refused: %d %s%s%s",
         s3->place.bucket, s3->place.prefix,
         s3->place.prefix[0] != '\0' ? "/" : "",
         r->key != NULL ? r->key : "", r->method, s3->endpoint, r->code,
         code[0] != '\0' ? code : "without a reason",
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

static status ask_once(struct s3 *s3, struct request *r)
{
    char error[ERROR_TEXT_BYTES];
    int code;

    r->sent = r->got = 0;
    r->crc = 0;
    r->code = 0;
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
                              ? "s3://%s/%s: no answer in time"
                              : "s3://%s/%s: not sent in the 15 s after the "
                                "run was asked to stop",
             s3->place.bucket, r->key != NULL ? r->key : "");
    if (r->too_long)
        FAIL(ERR_FORMAT, "s3://%s/%s: has more than %lld bytes",
             s3->place.bucket, r->key != NULL ? r->key : "",
             (long long)r->most);
    if (code != 0)
        FAIL(ERR_IO, "%s: %s", s3->endpoint,
             error[0] != '\0' ? error : curl.error(code));
    return r->code >= 300 ? refuse(s3, r) : OK;
}

static status ask(struct s3 *s3, struct request *r)
{
    struct retry retry = {0};
    status result;

    do result = ask_once(s3, r);
    while (retry_again(&retry, result));
    return result;
}

/* ---- objects ---- */

status s3_put(struct s3 *s3, const char *key, const void *bytes, size_t length)
{
    struct request r = {.method = "PUT", .key = key, .bytes = bytes,
                        .length = (int64_t)length, .most = ANSWER_MOST};

    return ask(s3, &r);
}

status s3_get(struct s3 *s3, const char *key, size_t bytes_max,
              struct text *out)
{
    struct request r = {.method = "GET", .key = key, .answer = out,
                        .most = (int64_t)bytes_max};

    TRY(text_append(out, "", 0));
    TRY(ask(s3, &r));
    out->bytes[out->length] = '\0';
    return OK;
}

status s3_get_file(struct s3 *s3, const char *key, const char *path,
                   int64_t bytes_max)
{
    struct request r = {.method = "GET", .key = key, .most = bytes_max};
    status result;

    r.to = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (r.to < 0) FAIL(ERR_IO, "%s: cannot be made", path);
    result = ask(s3, &r);
    if (result == OK && fsync(r.to) != 0)
        result = status_fail(ERR_IO, __FILE__, __LINE__, "%s: cannot be "
                             "written", path);
    close(r.to);
    if (result != OK) unlink(path);
    return result;
}

status s3_delete(struct s3 *s3, const char *key)
{
    struct request r = {.method = "DELETE", .key = key, .most = ANSWER_MOST};
    const status result = ask(s3, &r);

    if (result == ERR_MISSING) status_clear();
    return result == ERR_MISSING ? OK : result;
}

/* ---- large files ---- */

/* A file that is sent. */
struct sent_file {
    const char *key, *path;
    int file;
    int64_t length;
    uint32_t crc; /* of what was sent */
};

/* Bytes [first, first + length) as what is sent next. */
static status take_part(struct s3 *s3, struct sent_file *file, int64_t first,
                        struct request *r)
{
    const int64_t left = file->length - first;
    void *memory;

    if (s3->part == NULL) {
        TRY(memory_take(S3_PART_BYTES, 1, &memory));
        s3->part = memory;
    }
    r->bytes = s3->part;
    r->length = left < S3_PART_BYTES ? left : S3_PART_BYTES;
    for (int64_t at = 0; at < r->length;) {
        const ssize_t some = pread(file->file, s3->part + at,
                                   (size_t)(r->length - at),
                                   (off_t)(first + at));

        if (some <= 0) FAIL(ERR_IO, "%s: cannot be read", file->path);
        at += some;
    }
    file->crc = crc32c(file->crc, s3->part, (size_t)r->length);
    return OK;
}

static status put_parts(struct s3 *s3, struct sent_file *file,
                        const char *upload, struct text *done)
{
    char query[S3_TOKEN_BYTES + 64];
    int64_t first = 0;

    TRY(text_append_string(done, "<CompleteMultipartUpload>"));
    for (int part = 1; first < file->length; part++) {
        struct request r = {.method = "PUT", .key = file->key,
                            .query = query, .most = ANSWER_MOST};

        snprintf(query, sizeof query, "partNumber=%d&uploadId=%s", part,
                 upload);
        TRY(take_part(s3, file, first, &r));
        TRY(ask(s3, &r));
        TRY(text_printf(done, "<Part><PartNumber>%d</PartNumber><ETag>%s"
                        "</ETag></Part>", part, r.etag));
        first += r.length;
    }
    return text_append_string(done, "</CompleteMultipartUpload>");
}

/* Parts of an upload that failed would be kept, and paid for. */
static status give_up(struct s3 *s3, const char *key, const char *query,
                      status result)
{
    struct request r = {.method = "DELETE", .key = key, .query = query,
                        .most = ANSWER_MOST};
    char why[480];

    snprintf(why, sizeof why, "%s", status_message());
    status_clear();
    if (ask_once(s3, &r) != OK) status_clear();
    return status_fail(result, __FILE__, __LINE__, "%s", why);
}

static status put_large(struct s3 *s3, struct sent_file *file)
{
    char id[S3_TOKEN_BYTES / 3], upload[S3_TOKEN_BYTES],
        query[S3_TOKEN_BYTES + 16];
    struct text answer = {0}, done = {0};
    struct request r = {.method = "POST", .key = file->key, .bytes = "",
                        .query = "uploads=", .answer = &answer,
                        .most = ANSWER_MOST};
    size_t at = 0;
    status result;

    if (file->length / S3_PART_BYTES >= PARTS_MOST)
        FAIL(ERR_CONFIG, "%s: %lld bytes are more than %d parts", file->key,
             (long long)file->length, PARTS_MOST);
    TRY_GOTO(done, result, text_append(&answer, "", 0));
    TRY_GOTO(done, result, ask(s3, &r));
    if (!s3_element(answer.bytes, answer.length, "UploadId", &at, id,
                    sizeof id) || !s3_encode(id, upload, sizeof upload))
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: an upload in parts has no "
                  "UploadId in the answer", s3->endpoint);
    snprintf(query, sizeof query, "uploadId=%s", upload);
    result = put_parts(s3, file, upload, &done);
    r = (struct request){.method = "POST", .key = file->key, .query = query,
                         .bytes = done.bytes, .length = (int64_t)done.length,
                         .answer = &answer, .most = ANSWER_MOST};
    if (result == OK) result = ask(s3, &r);
    if (result != OK) result = give_up(s3, file->key, query, result);
done:
    text_free(&answer);
    text_free(&done);
    return result;
}

static status put_small(struct s3 *s3, struct sent_file *file)
{
    struct request r = {.method = "PUT", .key = file->key,
                        .most = ANSWER_MOST};

    TRY(take_part(s3, file, 0, &r));
    return ask(s3, &r);
}

static status put_checked(struct s3 *s3, struct sent_file *file)
{
    struct request back = {.method = "GET", .key = file->key,
                           .most = file->length};

    TRY(file->length > S3_PART_BYTES ? put_large(s3, file)
                                     : put_small(s3, file));
    TRY(ask(s3, &back));
    if (back.got == file->length && back.crc == file->crc) return OK;
    FAIL(ERR_IO, "s3://%s/%s: other bytes came back than were sent",
         s3->place.bucket, file->key);
}

status s3_put_file(struct s3 *s3, const char *key, const char *path,
                   int64_t length)
{
    struct sent_file file = {.key = key, .path = path, .length = length};
    status result;

    TRY(file_open_own(path, O_RDONLY, &file.file));
    result = put_checked(s3, &file);
    close(file.file);
    return result;
}

/* ---- lists ---- */

static status see_keys(const struct s3 *s3, const struct text *answer,
                       int *count, status (*each)(void *, const char *),
                       void *argument)
{
    const size_t skip = strlen(s3->place.prefix) +
                        (s3->place.prefix[0] != '\0');
    char key[S3_KEY_BYTES];
    size_t at = 0;

    while (s3_element(answer->bytes, answer->length, "Key", &at, key,
                      sizeof key)) {
        if (++*count > KEYS_MOST)
            FAIL(ERR_FORMAT, "s3://%s/%s has more than %d objects",
                 s3->place.bucket, s3->place.prefix, KEYS_MOST);
        if (strlen(key) > skip &&
            strncmp(key, s3->place.prefix, strlen(s3->place.prefix)) == 0)
            TRY(each(argument, key + skip));
    }
    return OK;
}

/* Whether there is more, and from where: a new token each time. */
static status next_page(const struct s3 *s3, const struct text *answer,
                        char token[S3_TOKEN_BYTES], bool *more)
{
    char truncated[8] = "", raw[S3_TOKEN_BYTES / 3],
        next[S3_TOKEN_BYTES];
    size_t at = 0;

    *more = s3_element(answer->bytes, answer->length, "IsTruncated", &at,
                       truncated, sizeof truncated) &&
            strcmp(truncated, "true") == 0;
    if (!*more) return OK;
    at = 0;
    if (!s3_element(answer->bytes, answer->length, "NextContinuationToken",
                    &at, raw, sizeof raw) ||
        !s3_encode(raw, next, sizeof next) || next[0] == '\0' ||
        strcmp(next, token) == 0)
        FAIL(ERR_FORMAT, "%s: a list of objects goes on, but says not from "
                         "where", s3->endpoint);
    snprintf(token, S3_TOKEN_BYTES, "%s", next);
    return OK;
}

status s3_list(struct s3 *s3, status (*each)(void *argument, const char *key),
               void *argument)
{
    char prefix[3 * S3_PREFIX_BYTES], token[S3_TOKEN_BYTES] = "",
        query[sizeof prefix + sizeof token + 96];
    struct text answer = {0};
    status result;
    int count = 0, before;
    bool more = false;

    TRY(text_append(&answer, "", 0));
    CHECK(s3_encode(s3->place.prefix, prefix, sizeof prefix));
    do {
        struct request r = {.method = "GET", .query = query,
                            .answer = &answer, .most = ANSWER_MOST};

        snprintf(query, sizeof query, "%s%s%slist-type=2&prefix=%s%s",
                 token[0] != '\0' ? "continuation-token=" : "", token,
                 token[0] != '\0' ? "&" : "", prefix,
                 prefix[0] != '\0' ? "%2F" : "");
        TRY_GOTO(done, result, ask(s3, &r));
        before = count;
        TRY_GOTO(done, result, see_keys(s3, &answer, &count, each, argument));
        TRY_GOTO(done, result, next_page(s3, &answer, token, &more));
        /* Each page holds a key, so KEYS_MOST bounds the pages, too. */
        if (more && count == before)
            FAIL_GOTO(done, result, ERR_FORMAT, "%s: a list of objects goes "
                      "on, but a page of it is empty", s3->endpoint);
    } while (more);
done:
    text_free(&answer);
    return result;
}
