/* SPDX-License-Identifier: Apache-2.0 */
/* s3.c - objects of an S3 storage: small ones, and lists of all. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "checkpoint/s3_request.h"

enum { KEYS_MOST = 1000000 };

/* ---- objects ---- */

status s3_put(struct s3 *s3, const char *key, const void *bytes, size_t length)
{
    struct request r = {.method = "PUT", .key = key, .bytes = bytes,
                        .length = (int64_t)length, .most = S3_ANSWER_MOST};

    return s3_ask(s3, &r);
}

/* A tag that compares bytes: a weak one, of an answer that something on the way
 * has packed, does not. */
static bool is_strong(const char *etag)
{
    const size_t inside = etag[0] == '"' ? strcspn(etag + 1, "\"\\") : 0;

    for (const char *c = etag; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~') return false;
    return inside > 0 && strcmp(etag + 1 + inside, "\"") == 0;
}

status s3_put_if(struct s3 *s3, const char *key, const struct text *bytes,
                 const char *etag, bool *put)
{
    char condition[S3_ETAG_BYTES + 16] = "If-None-Match: *";
    struct request r = {.method = "PUT", .key = key, .bytes = bytes->bytes,
                        .length = (int64_t)bytes->length,
                        .most = S3_ANSWER_MOST, .condition = condition};
    status result;

    *put = true;
    if (etag != NULL)
        snprintf(condition, sizeof condition, "If-Match: %s", etag);
    if (etag == NULL || is_strong(etag)) {
        result = s3_ask(s3, &r);
        *put = result == OK && !r.unmet;
        if (result != ERR_CONFIG || (r.code != 400 && r.code != 501))
            return result;
        status_clear();
        *put = true;
    }
    return s3_put(s3, key, bytes->bytes, bytes->length);
}

status s3_get_tagged(struct s3 *s3, const char *key, size_t bytes_max,
                     struct text *out, char etag[S3_ETAG_BYTES])
{
    struct request r = {.method = "GET", .key = key, .answer = out,
                        .most = (int64_t)bytes_max};
    status result;

    TRY(text_append(out, "", 0));
    result = s3_ask(s3, &r);
    snprintf(etag, S3_ETAG_BYTES, "%s", r.etag);
    out->bytes[out->length] = '\0';
    return result;
}

status s3_get(struct s3 *s3, const char *key, size_t bytes_max,
              struct text *out)
{
    char etag[S3_ETAG_BYTES];

    return s3_get_tagged(s3, key, bytes_max, out, etag);
}

status s3_get_file(struct s3 *s3, const char *key, const char *path,
                   int64_t bytes_max)
{
    struct request r = {.method = "GET", .key = key, .most = bytes_max};
    status result;

    r.to = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (r.to < 0) FAIL(ERR_IO, "%s: cannot be made", path);
    result = s3_ask(s3, &r);
    if (result == OK && fsync(r.to) != 0)
        result = status_fail(ERR_IO, __FILE__, __LINE__, "%s: cannot be "
                             "written", path);
    close(r.to);
    if (result != OK) unlink(path);
    return result;
}

status s3_delete(struct s3 *s3, const char *key)
{
    struct request r = {.method = "DELETE", .key = key, .most = S3_ANSWER_MOST};
    const status result = s3_ask(s3, &r);

    if (result == ERR_MISSING) status_clear();
    return result == ERR_MISSING ? OK : result;
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
                            .answer = &answer, .most = S3_ANSWER_MOST,
                            .ends = "</ListBucketResult>"};

        snprintf(query, sizeof query, "%s%s%slist-type=2&prefix=%s%s",
                 token[0] != '\0' ? "continuation-token=" : "", token,
                 token[0] != '\0' ? "&" : "", prefix,
                 prefix[0] != '\0' ? "%2F" : "");
        TRY_GOTO(done, result, s3_ask(s3, &r));
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
