/* SPDX-License-Identifier: Apache-2.0 */
/* s3_send.c - files to an S3 storage: large ones in parts, and what an
 * interrupted upload lacks. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/s3_request.h"

enum { PARTS_MOST = 10000, SENT_MOST = 3, ETAG_BYTES = 36 /* "32 digits" */,
       WHOLE_KEY_BYTES = S3_PREFIX_BYTES + S3_KEY_BYTES };

/* A file that is sent. */
struct sent_file {
    const char *key, *path;
    int file;
    int64_t length;
    uint32_t crc; /* of what was read of it */
};

/* An upload in parts. */
struct upload {
    char id[S3_TOKEN_BYTES];   /* percent-encoded; "": none */
    char (*etags)[ETAG_BYTES]; /* owned, [parts]: of those the storage has */
    int parts, kept;
};

static int parts_of(const struct sent_file *file)
{
    return (int)((file->length + S3_PART_BYTES - 1) / S3_PART_BYTES);
}

/* Bytes [first, first + length) as what is sent next. */
static status take_part(struct s3 *s3, struct sent_file *file, int64_t first,
                        struct request *r)
{
    const int64_t left = file->length - first;
    void *memory;
    size_t got;

    if (s3->part == NULL) {
        TRY(memory_take(S3_PART_BYTES, 1, &memory));
        s3->part = memory;
    }
    r->bytes = s3->part;
    r->length = left < S3_PART_BYTES ? left : S3_PART_BYTES;
    TRY(file_get(file->file, file->path, s3->part, (size_t)r->length, first,
                 &got));
    if (got != (size_t)r->length)
        FAIL(ERR_IO, "%s: cannot be read", file->path);
    file->crc = crc32c(file->crc, s3->part, (size_t)r->length);
    return OK;
}

/* ---- uploads that were interrupted ---- */

static void whole_key(const struct s3 *s3, const char *key,
                      char out[WHOLE_KEY_BYTES])
{
    const char *prefix = s3->place.prefix;

    snprintf(out, WHOLE_KEY_BYTES, "%.511s%s%.1024s", prefix,
             prefix[0] != '\0' ? "/" : "", key);
}

/* The next upload of a list: its whole key and its id. */
static bool next_upload(const struct text *answer, size_t *at,
                        char key[WHOLE_KEY_BYTES], char id[S3_TOKEN_BYTES / 3])
{
    const char *inside;
    size_t length;

    while (s3_inside(answer->bytes, answer->length, "Upload", at, &inside,
                     &length)) {
        size_t first = 0, second = 0;

        if (s3_element(inside, length, "Key", &first, key, WHOLE_KEY_BYTES) &&
            s3_element(inside, length, "UploadId", &second, id,
                       S3_TOKEN_BYTES / 3))
            return true;
    }
    return false;
}

/* At most a thousand: where there are more, the others are met later. */
static status list_uploads(struct s3 *s3, const char *prefix,
                           struct text *answer)
{
    char encoded[3 * WHOLE_KEY_BYTES], query[sizeof encoded + 32];
    struct request r = {.method = "GET", .query = query, .answer = answer,
                        .most = S3_ANSWER_MOST};

    if (!s3_encode(prefix, encoded, sizeof encoded))
        FAIL(ERR_CONFIG, "%.80s: the name is too long", prefix);
    snprintf(query, sizeof query, "prefix=%s&uploads=", encoded);
    TRY(text_append(answer, "", 0));
    return s3_ask(s3, &r);
}

/* The newest upload of this very key, if there is one. */
static status find_upload(struct s3 *s3, const struct sent_file *file,
                          struct upload *upload)
{
    char whole[WHOLE_KEY_BYTES], key[WHOLE_KEY_BYTES], id[S3_TOKEN_BYTES / 3];
    struct text answer = {0};
    size_t at = 0;
    status result;

    whole_key(s3, file->key, whole);
    result = list_uploads(s3, whole, &answer);
    while (result == OK && next_upload(&answer, &at, key, id))
        if (strcmp(key, whole) == 0 &&
            !s3_encode(id, upload->id, sizeof upload->id))
            upload->id[0] = '\0';
    text_free(&answer);
    return result;
}

/* A part of a list; its number, or 0: not of this upload. */
static int see_part(struct upload *upload, const char *xml, size_t length)
{
    char digits[8], etag[ETAG_BYTES];
    size_t first = 0, second = 0;
    int number;

    if (!s3_element(xml, length, "PartNumber", &first, digits, sizeof digits))
        return 0;
    number = (int)strtol(digits, NULL, 10);
    if (number < 1 || number > upload->parts) return 0;
    if (s3_element(xml, length, "ETag", &second, etag, sizeof etag))
        snprintf(upload->etags[number - 1], ETAG_BYTES, "%s", etag);
    return number;
}

/* A thousand parts to a page. */
static status list_parts(struct s3 *s3, const struct sent_file *file,
                         struct upload *upload)
{
    char query[S3_TOKEN_BYTES + 64], more[8];
    struct text answer = {0};
    int last = 0, before;
    status result;

    TRY(text_append(&answer, "", 0));
    do {
        struct request r = {.method = "GET", .key = file->key, .query = query,
                            .answer = &answer, .most = S3_ANSWER_MOST};
        const char *inside;
        size_t at = 0, length;

        before = last;
        snprintf(query, sizeof query, "part-number-marker=%d&uploadId=%s",
                 last, upload->id);
        TRY_GOTO(done, result, s3_ask(s3, &r));
        while (s3_inside(answer.bytes, answer.length, "Part", &at, &inside,
                         &length)) {
            const int number = see_part(upload, inside, length);

            if (number > last) last = number;
        }
        at = 0;
        if (!s3_element(answer.bytes, answer.length, "IsTruncated", &at, more,
                        sizeof more))
            more[0] = '\0';
    } while (strcmp(more, "true") == 0 && last > before);
done:
    text_free(&answer);
    return result;
}

/* Where the storage does not tell of earlier uploads, there are none. */
static status look_for_upload(struct s3 *s3, const struct sent_file *file,
                              struct upload *upload)
{
    status result = find_upload(s3, file, upload);

    if (result == OK && upload->id[0] != '\0')
        result = list_parts(s3, file, upload);
    if (result == OK || result == ERR_STOPPED) return result;
    status_clear();
    upload->id[0] = '\0';
    memset(upload->etags, 0, (size_t)upload->parts * sizeof *upload->etags);
    return OK;
}

/* ---- large files ---- */

static status begin_upload(struct s3 *s3, const struct sent_file *file,
                           struct upload *upload)
{
    char id[S3_TOKEN_BYTES / 3];
    struct text answer = {0};
    struct request r = {.method = "POST", .key = file->key, .bytes = "",
                        .query = "uploads=", .answer = &answer,
                        .most = S3_ANSWER_MOST};
    size_t at = 0;
    status result;

    TRY(text_append(&answer, "", 0));
    result = s3_ask(s3, &r);
    if (result == OK &&
        (!s3_element(answer.bytes, answer.length, "UploadId", &at, id,
                     sizeof id) ||
         !s3_encode(id, upload->id, sizeof upload->id)))
        result = status_fail(ERR_FORMAT, __FILE__, __LINE__, "%s: an upload in "
                             "parts has no UploadId in the answer",
                             s3->endpoint);
    text_free(&answer);
    return result;
}

static status put_part(struct s3 *s3, struct sent_file *file,
                       struct upload *upload, int part, struct text *done)
{
    char query[S3_TOKEN_BYTES + 64], hash[33], etag[ETAG_BYTES];
    struct request r = {.method = "PUT", .key = file->key, .query = query,
                        .most = S3_ANSWER_MOST};

    TRY(take_part(s3, file, (int64_t)(part - 1) * S3_PART_BYTES, &r));
    if (upload->etags[part - 1][0] != '\0') {
        md5_hex(r.bytes, (size_t)r.length, hash);
        snprintf(etag, sizeof etag, "\"%s\"", hash);
        if (strcmp(etag, upload->etags[part - 1]) == 0) {
            upload->kept++;
            return text_printf(done, "<Part><PartNumber>%d</PartNumber><ETag>%s"
                               "</ETag></Part>", part, etag);
        }
    }
    TRY(fault_point("mirror.part"));
    snprintf(query, sizeof query, "partNumber=%d&uploadId=%s", part,
             upload->id);
    TRY(s3_ask(s3, &r));
    return text_printf(done, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag>"
                       "</Part>", part, r.etag);
}

/* The parts that are not there, and the whole of them. */
static status put_rest(struct s3 *s3, struct sent_file *file,
                       struct upload *upload)
{
    char query[S3_TOKEN_BYTES + 16];
    struct text answer = {0}, done = {0};
    struct request r = {.method = "POST", .key = file->key, .query = query,
                        .answer = &answer, .most = S3_ANSWER_MOST,
                        .late = true};
    status result;

    file->crc = 0;
    TRY_GOTO(done, result, text_append(&answer, "", 0));
    TRY_GOTO(done, result, text_append_string(&done,
                                              "<CompleteMultipartUpload>"));
    for (int part = 1; part <= upload->parts; part++)
        TRY_GOTO(done, result, put_part(s3, file, upload, part, &done));
    TRY_GOTO(done, result, text_append_string(&done,
                                              "</CompleteMultipartUpload>"));
    if (upload->kept > 0)
        LOG(INFO, "files", "%s: %d of its %d parts were there", file->key,
            upload->kept, upload->parts);
    snprintf(query, sizeof query, "uploadId=%s", upload->id);
    r.bytes = done.bytes;
    r.length = (int64_t)done.length;
    result = s3_ask(s3, &r);
done:
    text_free(&answer);
    text_free(&done);
    return result;
}

static status drop_upload(struct s3 *s3, const char *key, const char *id)
{
    char query[S3_TOKEN_BYTES + 16];
    struct request r = {.method = "DELETE", .key = key, .query = query,
                        .most = S3_ANSWER_MOST};

    snprintf(query, sizeof query, "uploadId=%s", id);
    return s3_ask_once(s3, &r);
}

/* An upload that was refused will be refused again; any other is gone on with
 * when the file is sent again. */
static status give_up(struct s3 *s3, const char *key,
                      const struct upload *upload, status result)
{
    char why[480];

    if (upload->id[0] == '\0' ||
        (result != ERR_CONFIG && result != ERR_FORMAT))
        return result;
    snprintf(why, sizeof why, "%s", status_message());
    status_clear();
    if (drop_upload(s3, key, upload->id) != OK) status_clear();
    return status_fail(result, __FILE__, __LINE__, "%s", why);
}

static status put_upload(struct s3 *s3, struct sent_file *file, bool look)
{
    struct upload upload = {.parts = parts_of(file)};
    void *memory;
    status result;

    TRY(memory_take((size_t)upload.parts, sizeof *upload.etags, &memory));
    upload.etags = memory;
    if (look) TRY_GOTO(done, result, look_for_upload(s3, file, &upload));
    if (upload.id[0] == '\0')
        TRY_GOTO(done, result, begin_upload(s3, file, &upload));
    result = put_rest(s3, file, &upload);
    if (result != OK) result = give_up(s3, file->key, &upload, result);
done:
    memory_free(memory);
    return result;
}

/* Whether the storage holds what was read of the file. */
static status is_there(struct s3 *s3, const struct sent_file *file, bool *same)
{
    struct request back = {.method = "GET", .key = file->key,
                           .most = file->length};
    const status result = s3_ask(s3, &back);

    *same = result == OK && back.got == file->length && back.crc == file->crc;
    if (result != ERR_FORMAT && result != ERR_MISSING) return result;
    status_clear();
    return OK;
}

/* An upload that is not there any more either became the file, and that answer
 * was lost, or was ended from outside: then there is a new one, once. */
static status put_large(struct s3 *s3, struct sent_file *file)
{
    bool same;
    status result;

    if (file->length / S3_PART_BYTES >= PARTS_MOST)
        FAIL(ERR_CONFIG, "%s: %lld bytes are more than %d parts", file->key,
             (long long)file->length, PARTS_MOST);
    result = put_upload(s3, file, true);
    if (result != ERR_MISSING) return result;
    status_clear();
    TRY(is_there(s3, file, &same));
    return same ? OK : put_upload(s3, file, false);
}

static status put_small(struct s3 *s3, struct sent_file *file)
{
    struct request r = {.method = "PUT", .key = file->key,
                        .most = S3_ANSWER_MOST};

    file->crc = 0;
    TRY(take_part(s3, file, 0, &r));
    return s3_ask(s3, &r);
}

/* ---- files ---- */

/* An object that was sent before is read back as one that is sent now would
 * be. */
static status was_sent(struct s3 *s3, struct sent_file *file, bool *same)
{
    struct request r = {.key = file->key};

    for (int64_t first = 0; first < file->length; first += S3_PART_BYTES)
        TRY(take_part(s3, file, first, &r));
    return is_there(s3, file, same);
}

/* An object may be right and its answer wrong: it is read a second time before
 * it is sent again. */
static status put_checked(struct s3 *s3, struct sent_file *file, bool there)
{
    char name[S3_NAME_BYTES];
    bool same = false;

    s3_name(s3, file->key, name);
    if (there) TRY(was_sent(s3, file, &same));
    for (int tries = 0; !same; tries++) {
        if (tries == SENT_MOST)
            FAIL(ERR_IO, "%s: other bytes came back than were sent, %d times",
                 name, tries);
        if (tries > 0)
            LOG(WARNING, "files", "%s: other bytes came back than were sent; "
                "it is sent again", name);
        TRY(file->length > S3_PART_BYTES ? put_large(s3, file)
                                         : put_small(s3, file));
        TRY(is_there(s3, file, &same));
        if (!same) TRY(is_there(s3, file, &same));
    }
    return OK;
}

status s3_put_file(struct s3 *s3, const char *key, const char *path,
                   int64_t length, bool there)
{
    struct sent_file file = {.key = key, .path = path, .length = length};
    status result;

    TRY(file_open_own(path, O_RDONLY, &file.file));
    result = put_checked(s3, &file, there);
    close(file.file);
    return result;
}

status s3_drop_uploads(struct s3 *s3,
                       bool (*goes)(const void *argument, const char *key),
                       const void *argument)
{
    char prefix[WHOLE_KEY_BYTES], key[WHOLE_KEY_BYTES],
        raw[S3_TOKEN_BYTES / 3], id[S3_TOKEN_BYTES];
    struct text answer = {0};
    size_t at = 0;
    status result;

    whole_key(s3, "", prefix);
    TRY_GOTO(done, result, list_uploads(s3, prefix, &answer));
    while (next_upload(&answer, &at, key, raw)) {
        const char *below = key + strlen(prefix);

        if (strncmp(key, prefix, strlen(prefix)) != 0 ||
            strlen(below) >= S3_KEY_BYTES || !goes(argument, below) ||
            !s3_encode(raw, id, sizeof id))
            continue;
        if (drop_upload(s3, below, id) != OK) status_clear();
    }
done:
    text_free(&answer);
    return result;
}
