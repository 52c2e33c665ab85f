/* SPDX-License-Identifier: Apache-2.0 */
/* s3_text.c - the texts of object storage: names, queries and answers. */
#include "checkpoint/s3_text.h"

#include <stdio.h>
#include <string.h>

static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

static bool is_of(char c, const char *more)
{
    return c != '\0' && (strchr(letters, c) != NULL ||
                         strchr(more, c) != NULL);
}

/* ---- names ---- */

static status check_bucket(const char *url, const char *name, size_t length)
{
    bool good = length >= 3 && length < S3_BUCKET_BYTES && name[0] != '.' &&
                name[0] != '-';

    for (size_t i = 0; i < length && good; i++)
        good = is_of(name[i], ".-") && !(name[i] >= 'A' && name[i] <= 'Z');
    if (good) return OK;
    FAIL(ERR_CONFIG, "%s: the bucket \"%.*s\" is not 3 to 63 small letters, "
                     "digits, dots and hyphens; expected s3://BUCKET/PREFIX",
         url, (int)(length < 80 ? length : 80), name);
}

status s3_place_parse(struct s3_place *place, const char *url)
{
    const char *name = url + 5, *slash, *prefix = "";
    size_t length;

    *place = (struct s3_place){.bucket = ""};
    if (strncmp(url, "s3://", 5) != 0)
        FAIL(ERR_CONFIG, "\"%s\" is no place of object storage; expected "
                         "s3://BUCKET/PREFIX", url);
    slash = strchr(name, '/');
    length = slash != NULL ? (size_t)(slash - name) : strlen(name);
    TRY(check_bucket(url, name, length));
    memcpy(place->bucket, name, length);
    if (slash != NULL) prefix = slash + 1;
    length = strlen(prefix);
    if (length > 0 && prefix[length - 1] == '/') length--;
    if (length >= S3_PREFIX_BYTES)
        FAIL(ERR_CONFIG, "%.60s...: the prefix is longer than %d bytes", url,
             S3_PREFIX_BYTES - 1);
    memcpy(place->prefix, prefix, length);
    for (const char *c = place->prefix; *c != '\0'; c++)
        if (!is_of(*c, "._-/") || (c[0] == '/' && c[1] == '/'))
            FAIL(ERR_CONFIG, "%s: the prefix has \"%c\"; it may have letters, "
                             "digits, dots, hyphens, underscores and single "
                             "slashes", url, *c);
    if (place->prefix[0] == '/' || strstr(place->prefix, "..") != NULL)
        FAIL(ERR_CONFIG, "%s: the prefix may not begin with a slash or have "
                         "\"..\"", url);
    return OK;
}

bool s3_encode(const char *text, char *out, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t used = 0;

    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        const bool plain = is_of(*text, "-._~");

        if (used + (plain ? 1u : 3u) >= size) return false;
        if (!plain) {
            out[used++] = '%';
            out[used++] = digits[c >> 4];
        }
        out[used++] = plain ? *text : digits[c & 15];
    }
    out[used] = '\0';
    return true;
}

/* ---- answers ---- */

/* The first `word` in [at, length); length: there is none. */
static size_t find(const char *xml, size_t at, size_t length, const char *word)
{
    const size_t size = strlen(word);

    for (; at + size <= length; at++)
        if (memcmp(xml + at, word, size) == 0) return at;
    return length;
}

/* One character of text; returns the bytes that it took. */
static size_t plain_text(const char *from, size_t length, char *out)
{
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;",
                                           "&apos;"};

    for (int i = 0; i < 5; i++) {
        const size_t size = strlen(entities[i]);

        if (size > length || memcmp(from, entities[i], size) != 0) continue;
        *out = "&<>\"'"[i];
        return size;
    }
    *out = *from;
    return 1;
}

bool s3_inside(const char *xml, size_t length, const char *tag, size_t *at,
               const char **inside, size_t *size)
{
    char begins[48], ends[48];
    size_t first, last;

    if (*at > length || strlen(tag) > 40) return false;
    snprintf(begins, sizeof begins, "<%s>", tag);
    snprintf(ends, sizeof ends, "</%s>", tag);
    first = find(xml, *at, length, begins);
    if (first == length) return false;
    first += strlen(begins);
    last = find(xml, first, length, ends);
    if (last == length) return false;
    *at = last + strlen(ends);
    *inside = xml + first;
    *size = last - first;
    return true;
}

bool s3_element(const char *xml, size_t length, const char *tag, size_t *at,
                char *out, size_t size)
{
    const char *inside;
    size_t left, used = 0, taken;

    if (size == 0 || !s3_inside(xml, length, tag, at, &inside, &left))
        return false;
    for (; left > 0; inside += taken, left -= taken) {
        if (used + 1 >= size) return false;
        taken = plain_text(inside, left, &out[used]);
        if (out[used++] == '\0') return false;
    }
    out[used] = '\0';
    return true;
}
