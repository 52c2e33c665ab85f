/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - a run's metrics, histograms and texts as TensorBoard reads them.
 */
#include "observe/events.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fault.h"
#include "base/file.h"
#include "observe/events_read.h"
#include "base/protobuf.h"

static const char prefix[] = "events.out.tfevents.";
static const char directory_name[] = "tensorboard";
/* TensorBoard cuts texts far below this. */
static const size_t text_bytes_max = (size_t)1 << 20;

/* Numbers of fields: event.proto, summary.proto, tensor.proto. */
enum {
    EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5,
    EVENT_SESSION = 7, SESSION_STATUS = 1, SESSION_START = 1,
    SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SCALAR = 2, VALUE_HISTOGRAM = 5,
    VALUE_TENSOR = 8, VALUE_METADATA = 9, METADATA_PLUGIN = 1,
    PLUGIN_NAME = 1, TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRINGS = 8,
    TYPE_STRING = 7, SHAPE_DIMENSION = 2, DIMENSION_SIZE = 1
};

/* ---- records ---- */

uint32_t events_mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void put_little(unsigned char *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> 8 * i);
}

/* The bytes of one record around a message. */
static status frame(struct text *out, const struct text *message)
{
    unsigned char head[12], tail[4];

    put_little(head, message->length, 8);
    put_little(head + 8, events_mask(crc32c(0, head, 8)), 4);
    put_little(tail, events_mask(crc32c(0, message->bytes, message->length)),
               4);
    TRY(text_append(out, head, sizeof head));
    TRY(text_append(out, message->bytes, message->length));
    return text_append(out, tail, sizeof tail);
}

static status begin_event(struct text *event, struct events_moment moment)
{
    TRY(proto_double(event, EVENT_TIME, moment.time_s));
    return proto_integer(event, EVENT_STEP, moment.step);
}

/* Takes the message; one write, so that no reader sees half of it for long. */
static status write_event(struct events_writer *writer, struct text *event)
{
    struct text record = {0};
    status result;

    TRY_GOTO(done, result, frame(&record, event));
    result = lines_put(&writer->lines, record.bytes, record.length);
done:
    text_free(&record);
    text_free(event);
    return result;
}

/* ---- what is already there ---- */

/* Bytes behind a damaged record may still be useful: the whole file is kept
 * under a name that TensorBoard does not read. */
static status keep_damaged(const struct events_scan *scan, const void *bytes,
                           size_t length)
{
    const char *name = strstr(scan->source, prefix);
    char beside[PATH_BYTES];

    CHECK(name != NULL);
    snprintf(beside, sizeof beside, "%.*sdamaged.%.200s",
             (int)(name - scan->source), scan->source,
             name + sizeof prefix - 1);
    TRY(file_write_atomic(beside, bytes, length));
    fprintf(stderr, "%s: byte %zu: %s; the records before it stay, all of the "
                    "file is in %s\n", scan->source, scan->kept, scan->wrong,
            beside);
    return OK;
}

/* Cuts one older file; removes it when nothing but its head would be left. */
static status cut_file(const char *path, int64_t step_kept)
{
    struct events_scan scan = {.source = path, .torn_ok = true,
                               .step_kept = step_kept};
    struct file_map map = {0};
    status result;
    bool cuts;

    TRY_GOTO(done, result, file_check_own(path)); /* it may be copied */
    TRY_GOTO(done, result, file_map_open(&map, path));
    TRY_GOTO(done, result, events_scan(&scan, map.bytes, map.length));
    if (scan.wrong != NULL)
        TRY_GOTO(done, result, keep_damaged(&scan, map.bytes, map.length));
    cuts = scan.kept != map.length;
    if (scan.events <= 1 && unlink(path) != 0)
        FAIL_GOTO(done, result, ERR_IO, "%s: cannot remove: %s", path,
                  strerror(errno));
    if (scan.events > 1 && cuts)
        TRY_GOTO(done, result, file_cut(path, (int64_t)scan.kept));
done:
    file_map_close(&map);
    return result;
}

/* *newest: the time in the last of the names, 0: no file. */
static status cut_older(const char *directory, int64_t step_kept,
                        int64_t *newest)
{
    char path[PATH_BYTES];
    char **names = NULL;
    int count = 0;
    status result;

    *newest = 0;
    TRY_GOTO(done, result, directory_list(directory, &names, &count));
    for (int i = 0; i < count; i++) {
        long long seconds = 0;

        if (strncmp(names[i], prefix, sizeof prefix - 1) != 0) continue;
        TRY_GOTO(done, result,
                 path_join(path, sizeof path, directory, names[i]));
        if (step_kept >= 0)
            TRY_GOTO(done, result, cut_file(path, step_kept));
        else if (unlink(path) != 0)
            FAIL_GOTO(done, result, ERR_IO, "%s: cannot remove: %s", path,
                      strerror(errno));
        if (sscanf(names[i] + sizeof prefix - 1, "%15lld", &seconds) == 1)
            *newest = seconds;
    }
done:
    directory_list_free(names, count);
    return result;
}

/* ---- opening ---- */

/* Version 2 is the one that knows sessions. A session that starts at a step
 * makes readers forget what they have of it and beyond. */
static status write_head(struct events_writer *writer, int64_t step_kept,
                         double time_s)
{
    struct text event = {0}, session = {0};
    status result;

    TRY_GOTO(done, result, proto_double(&event, EVENT_TIME, time_s));
    TRY_GOTO(done, result, proto_string(&event, EVENT_VERSION,
                                        "brain.Event:2"));
    TRY_GOTO(done, result, write_event(writer, &event));
    if (step_kept < 0) return OK;
    const struct events_moment next = {step_kept + 1, time_s};

    TRY_GOTO(done, result, begin_event(&event, next));
    TRY_GOTO(done, result,
             proto_integer(&session, SESSION_STATUS, SESSION_START));
    TRY_GOTO(done, result, proto_message(&event, EVENT_SESSION, &session));
    TRY_GOTO(done, result, write_event(writer, &event));
done:
    text_free(&session);
    text_free(&event);
    return result;
}

status events_open(struct events_writer *writer, const char *run,
                   int64_t step_kept, double time_s)
{
    char directory[PATH_BYTES], name[96], path[PATH_BYTES];
    int64_t newest, seconds = (int64_t)time_s;

    TRY(path_join(directory, sizeof directory, run, directory_name));
    TRY(directory_make_own(directory));
    TRY(cut_older(directory, step_kept, &newest));
    if (seconds <= newest) seconds = newest + 1; /* files are read by name */
    snprintf(name, sizeof name, "%s%010lld.lockstep", prefix,
             (long long)seconds);
    TRY(path_join(path, sizeof path, directory, name));
    TRY(lines_open(&writer->lines, path, "events.append", O_EXCL));
    return write_head(writer, step_kept, time_s);
}

void events_close(struct events_writer *writer)
{
    lines_close(&writer->lines);
}

/* ---- scalars ---- */

/* Names that users of other trainers know, where ours are others. */
static const struct { enum metric_number metric; const char *tag; } usual[] = {
    {METRIC_lr, "train/learning_rate"},
    {METRIC_val_loss, "eval/loss"},
    {METRIC_val_ms, "perf/eval_ms"},
    {METRIC_tokens_per_s, "perf/tokens_per_second"},
};

/* The name of metric `index` there: "train/loss". */
static const char *tag_of(char out[64], int index)
{
    const struct metric_about metric = metrics_about(index);
    const char *name = metric.name;

    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if ((int)usual[i].metric == index) {
            snprintf(out, 64, "%s", usual[i].tag);
            return out;
        }
    if (strncmp(name, "val_", 4) == 0) name += 4;
    snprintf(out, 64, "%s/%s",
             metric.clock ? "perf" : metric.in_steps ? "train" : "eval", name);
    return out;
}

/* "val.code.loss" is "eval/code/loss", "task.facts.acc" "task/facts/acc". */
static void extra_tag(char out[128], const char *name)
{
    const bool validation = strncmp(name, "val.", 4) == 0;

    snprintf(out, 128, "%s%s", validation ? "eval." : "",
             validation ? name + 4 : name);
    for (char *at = out; *at != '\0'; at++)
        if (*at == '.') *at = '/';
}

static status add_scalar(struct text *summary, const char *tag, double value)
{
    struct text item = {0};
    status result;

    TRY_GOTO(done, result, proto_string(&item, VALUE_TAG, tag));
    TRY_GOTO(done, result, proto_float(&item, VALUE_SCALAR, (float)value));
    TRY_GOTO(done, result, proto_message(summary, SUMMARY_VALUE, &item));
done:
    text_free(&item);
    return result;
}

/* Takes the summary. */
static status write_summary(struct events_writer *writer,
                            struct events_moment moment, struct text *summary)
{
    struct text event = {0};
    status result;

    TRY_GOTO(done, result, begin_event(&event, moment));
    TRY_GOTO(done, result, proto_message(&event, EVENT_SUMMARY, summary));
    TRY_GOTO(done, result, write_event(writer, &event));
done:
    text_free(&event);
    return result;
}

/* Is it a curve? The step is the x axis of all curves, the time is kept by
 * every event, and a validation repeats counters of its step. */
static bool is_curve(int index, const struct metrics_row *row)
{
    if (index == METRIC_step || index == METRIC_time_s) return false;
    return row->kind == METRICS_STEP || !metrics_about(index).in_steps;
}

status events_metrics(struct events_writer *writer,
                      const struct metrics_row *row)
{
    const struct events_moment moment = {row->step, row->time_s};
    struct text summary = {0};
    status result = OK;

    for (int i = 0; i < metrics_count() && result == OK; i++) {
        char tag[64];
        double value;

        if (!metrics_value(row, i, &value) || !isfinite(value) ||
            !is_curve(i, row))
            continue;
        result = add_scalar(&summary, tag_of(tag, i), value);
    }
    for (int i = 0; i < row->extra_count && result == OK; i++) {
        char tag[128];

        extra_tag(tag, row->extras[i].name);
        if (isfinite(row->extras[i].value))
            result = add_scalar(&summary, tag, row->extras[i].value);
    }
    if (result == OK) result = write_summary(writer, moment, &summary);
    text_free(&summary);
    return result;
}

status events_scalars(struct events_writer *writer,
                      struct events_moment moment,
                      const struct events_scalar *items, int count)
{
    struct text summary = {0};
    status result = OK;

    for (int i = 0; i < count && result == OK; i++)
        if (isfinite(items[i].value))
            result = add_scalar(&summary, items[i].tag, items[i].value);
    if (result == OK) result = write_summary(writer, moment, &summary);
    text_free(&summary);
    return result;
}

/* ---- texts ---- */

/* metadata {plugin_data {plugin_name: "text"}} */
static status add_text_plugin(struct text *value)
{
    struct text plugin = {0}, metadata = {0};
    status result;

    TRY_GOTO(done, result, proto_string(&plugin, PLUGIN_NAME, "text"));
    TRY_GOTO(done, result, proto_message(&metadata, METADATA_PLUGIN, &plugin));
    TRY_GOTO(done, result, proto_message(value, VALUE_METADATA, &metadata));
done:
    text_free(&plugin);
    text_free(&metadata);
    return result;
}

/* A tensor of strings, of shape [1]. */
static status add_string(struct text *value, const char *bytes, size_t length)
{
    struct text dimension = {0}, shape = {0}, tensor = {0};
    status result;

    TRY_GOTO(done, result, proto_integer(&dimension, DIMENSION_SIZE, 1));
    TRY_GOTO(done, result, proto_message(&shape, SHAPE_DIMENSION, &dimension));
    TRY_GOTO(done, result, proto_integer(&tensor, TENSOR_TYPE, TYPE_STRING));
    TRY_GOTO(done, result, proto_message(&tensor, TENSOR_SHAPE, &shape));
    TRY_GOTO(done, result, proto_bytes(&tensor, TENSOR_STRINGS, bytes,
                                       length));
    TRY_GOTO(done, result, proto_message(value, VALUE_TENSOR, &tensor));
done:
    text_free(&dimension);
    text_free(&shape);
    text_free(&tensor);
    return result;
}

status events_text(struct events_writer *writer, struct events_moment moment,
                   const char *tag, const char *bytes, size_t length)
{
    struct text value = {0}, summary = {0}, page = {0};
    status result;

    if (length > text_bytes_max) length = text_bytes_max;
    /* TensorBoard shows nothing of a text that is no UTF-8. */
    TRY_GOTO(done, result, text_append_utf8(&page, bytes, length));
    TRY_GOTO(done, result, proto_string(&value, VALUE_TAG, tag));
    TRY_GOTO(done, result, add_string(&value, page.bytes, page.length));
    TRY_GOTO(done, result, add_text_plugin(&value));
    TRY_GOTO(done, result, proto_message(&summary, SUMMARY_VALUE, &value));
    TRY_GOTO(done, result, write_summary(writer, moment, &summary));
done:
    text_free(&page);
    text_free(&value);
    text_free(&summary);
    return result;
}

/* ---- histograms ---- */

static status add_histogram(struct text *summary,
                            const struct events_histogram *h)
{
    const double numbers[] = {h->least, h->greatest, h->count, h->sum,
                              h->sum_squares};
    struct text item = {0}, value = {0};
    status result;

    for (int i = 0; i < 5; i++)
        TRY_GOTO(done, result, proto_double(&item, i + 1, numbers[i]));
    TRY_GOTO(done, result, proto_doubles(&item, 6, h->limits, h->buckets));
    TRY_GOTO(done, result, proto_doubles(&item, 7, h->counts, h->buckets));
    TRY_GOTO(done, result, proto_string(&value, VALUE_TAG, h->tag));
    TRY_GOTO(done, result, proto_message(&value, VALUE_HISTOGRAM, &item));
    TRY_GOTO(done, result, proto_message(summary, SUMMARY_VALUE, &value));
done:
    text_free(&item);
    text_free(&value);
    return result;
}

status events_histograms(struct events_writer *writer,
                         struct events_moment moment,
                         const struct events_histogram *items, int count)
{
    struct text summary = {0};
    status result = OK;

    for (int i = 0; i < count && result == OK; i++)
        result = add_histogram(&summary, &items[i]);
    if (result == OK) result = write_summary(writer, moment, &summary);
    text_free(&summary);
    return result;
}
