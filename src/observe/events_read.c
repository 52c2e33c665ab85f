/* SPDX-License-Identifier: Apache-2.0 */
/* events_read.c - an event file, read. */
#include "observe/events_read.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "observe/events.h"
#include "base/protobuf.h"

enum { HEAD_BYTES = 12, TAIL_BYTES = 4 };
/* Far above any event of ours: histograms of thousands of parameters. */
static const uint64_t event_bytes_max = (uint64_t)1 << 30;

static uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* ---- messages ---- */

static bool is_bytes(const struct proto_field *field)
{
    return field->wire == PROTO_BYTES;
}

/* Packed doubles, or a single one as old writers have it. */
static bool read_doubles(const struct proto_field *field, double *sum,
                         double *last, int *count)
{
    if (field->wire == PROTO_64) {
        *last = proto_real(field);
        *sum += *last;
        (*count)++;
        return true;
    }
    if (!is_bytes(field) || field->length % 8 != 0 ||
        field->length / 8 > INT32_MAX / 2 - (size_t)*count)
        return false;
    for (size_t i = 0; i < field->length; i += 8) {
        const uint64_t bits = little(field->bytes + i, 8);

        memcpy(last, &bits, sizeof *last);
        *sum += *last;
        (*count)++;
    }
    return true;
}

static bool read_histogram(const struct proto_field *message,
                           struct events_value *out)
{
    struct proto_reader reader = proto_open(message->bytes, message->length);
    struct proto_field field;
    double ignored = 0, last = 0;
    int counts = 0;

    out->kind = EVENTS_HISTOGRAM;
    while (proto_next(&reader, &field)) {
        switch (field.number) {
        case 1: out->least = proto_real(&field); break;
        case 2: out->greatest = proto_real(&field); break;
        case 3: out->count = proto_real(&field); break;
        case 4: out->sum = proto_real(&field); break;
        case 5: out->sum_squares = proto_real(&field); break;
        case 6:
            if (!read_doubles(&field, &ignored, &out->last_limit,
                              &out->buckets))
                return false;
            break;
        case 7:
            if (!read_doubles(&field, &out->buckets_sum, &last, &counts))
                return false;
            break;
        default: break;
        }
    }
    return reader.bad == NULL && counts == out->buckets;
}

/* A tensor of one string is a text; others are passed over. */
static bool read_tensor(const struct proto_field *message,
                        struct events_value *out)
{
    struct proto_reader reader = proto_open(message->bytes, message->length);
    struct proto_field field;

    while (proto_next(&reader, &field)) {
        if (field.number != 8 || !is_bytes(&field)) continue;
        out->kind = EVENTS_TEXT;
        out->text = (const char *)field.bytes;
        out->text_length = field.length;
    }
    return reader.bad == NULL;
}

static bool read_value(const struct proto_field *message,
                       struct events_value *out)
{
    struct proto_reader reader = proto_open(message->bytes, message->length);
    struct proto_field field;

    while (proto_next(&reader, &field)) {
        if (field.number == 1 && is_bytes(&field)) {
            out->tag = (const char *)field.bytes;
            out->tag_length = field.length;
        } else if (field.number == 2 && field.wire == PROTO_32) {
            out->kind = EVENTS_SCALAR;
            out->scalar = proto_real(&field);
        } else if (field.number == 5 && is_bytes(&field)) {
            if (!read_histogram(&field, out)) return false;
        } else if (field.number == 8 && is_bytes(&field)) {
            if (!read_tensor(&field, out)) return false;
        }
    }
    return reader.bad == NULL;
}

/* The header of an event, before its values. */
struct event_head { int64_t step; double time_s; bool starts; };

static bool read_head(const unsigned char *bytes, size_t length,
                      struct event_head *out)
{
    struct proto_reader reader = proto_open(bytes, length);
    struct proto_field field;

    *out = (struct event_head){0};
    while (proto_next(&reader, &field)) {
        if (field.number == 1) out->time_s = proto_real(&field);
        if (field.number == 2 && field.wire == PROTO_VARINT)
            out->step = (int64_t)field.integer;
        if (field.number == 7) out->starts = true;
    }
    return reader.bad == NULL;
}

/* False: no message. *result: what the caller's function said. */
static bool read_summary(const struct proto_field *summary,
                         const struct event_head *head,
                         struct events_scan *scan, status *result)
{
    struct proto_reader reader = proto_open(summary->bytes, summary->length);
    struct proto_field field;

    while (*result == OK && proto_next(&reader, &field)) {
        struct events_value value = {.step = head->step,
                                     .time_s = head->time_s, .tag = "",
                                     .kind = EVENTS_OTHER};

        if (field.number != 1 || !is_bytes(&field)) continue;
        if (!read_value(&field, &value)) return false;
        if (scan->value != NULL) *result = scan->value(scan->argument, &value);
    }
    return reader.bad == NULL;
}

static bool read_event(const unsigned char *bytes, size_t length,
                       const struct event_head *head,
                       struct events_scan *scan, status *result)
{
    struct proto_reader reader = proto_open(bytes, length);
    struct proto_field field;

    while (*result == OK && proto_next(&reader, &field)) {
        if (field.number != 5 || !is_bytes(&field)) continue;
        if (!read_summary(&field, head, scan, result)) return false;
    }
    return reader.bad == NULL;
}

/* ---- records ---- */

static const char torn[] = "it ends in a record";

/* Length of the message of the record at `at`, or what is wrong with it. */
static const char *frame_at(const unsigned char *at, size_t rest,
                            size_t *length)
{
    uint64_t bytes;

    if (rest < HEAD_BYTES + TAIL_BYTES) return torn;
    if (events_mask(crc32c(0, at, 8)) != little(at + 8, 4))
        return "the checksum of the length is wrong";
    bytes = little(at, 8);
    if (bytes > event_bytes_max) return "the length is beyond 1 GiB";
    if (bytes > rest - HEAD_BYTES - TAIL_BYTES) return torn;
    *length = (size_t)bytes;
    if (events_mask(crc32c(0, at + HEAD_BYTES, *length)) !=
        little(at + HEAD_BYTES + *length, 4))
        return "the checksum of the message is wrong";
    return NULL;
}

status events_scan(struct events_scan *scan, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;

    scan->kept = 0;
    scan->events = scan->starts = 0;
    scan->wrong = NULL;
    while (scan->kept < length) {
        struct event_head head = {0};
        size_t message = 0;
        status result = OK;
        const unsigned char *record = at + scan->kept;
        const char *wrong = frame_at(record, length - scan->kept, &message);

        if (wrong == NULL && !read_head(record + HEAD_BYTES, message, &head))
            wrong = "a message is none";
        if (wrong == NULL && scan->step_kept >= 0 &&
            head.step > scan->step_kept)
            return OK;
        if (wrong == NULL && !read_event(record + HEAD_BYTES, message, &head,
                                         scan, &result))
            wrong = "a message is none";
        TRY(result);
        if (wrong != NULL && scan->torn_ok) {
            scan->wrong = wrong != torn ? wrong : NULL;
            return OK;
        }
        if (wrong != NULL)
            FAIL(ERR_FORMAT, "%s: byte %zu: %s", scan->source, scan->kept,
                 wrong);
        scan->events++;
        scan->starts += head.starts;
        scan->kept += HEAD_BYTES + message + TAIL_BYTES;
    }
    return OK;
}
