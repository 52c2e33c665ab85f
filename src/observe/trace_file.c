/* SPDX-License-Identifier: Apache-2.0 */
/* trace_file.c - the spans of a rank as a file for Perfetto. */
#include "observe/trace_file.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/temporaries.h"
#include "base/text.h"

/* A string in quotes; names are ours and labels are group names, but a quote in
 * one must not break the file. */
static status quoted(struct text *out, const char *string)
{
    TRY(text_append_string(out, "\""));
    for (; *string != '\0'; string++) {
        if ((unsigned char)*string < ' ')
            TRY(text_printf(out, "\\u%04x", (unsigned)*string));
        else if (*string == '"' || *string == '\\')
            TRY(text_printf(out, "\\%c", *string));
        else
            TRY(text_append(out, string, 1));
    }
    return text_append_string(out, "\"");
}

/* {"key": "value"} as the arguments of an event that names something. */
static status name_event(struct text *out, const char *what, int rank,
                         int track, const char *name)
{
    TRY(text_printf(out, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,"
                         "\"tid\":%d,\"args\":{\"name\":", what, rank, track));
    TRY(quoted(out, name));
    return text_append_string(out, "}},\n");
}

static status arguments(struct text *out, const struct meter_span *span,
                        const struct meter_row *row)
{
    const double ns = (double)(span->end_ns - span->begin_ns);

    TRY(text_printf(out, ",\"args\":{\"number\":%d", span->number));
    if (span->instruction >= 0)
        TRY(text_printf(out, ",\"instruction\":%d", span->instruction));
    if (row->shape[0] > 0)
        TRY(text_printf(out, ",\"shape\":\"%lld x %lld x %lld\"",
                        (long long)row->shape[0], (long long)row->shape[1],
                        (long long)row->shape[2]));
    if (span->bytes > 0)
        TRY(text_printf(out, ",\"bytes\":%.0f", span->bytes));
    if (span->flops > 0)
        TRY(text_printf(out, ",\"flops\":%.0f", span->flops));
    if (span->flops > 0 && ns > 0)
        TRY(text_printf(out, ",\"GFLOP/s\":%.3f", span->flops / ns));
    if (span->bytes > 0 && ns > 0)
        TRY(text_printf(out, ",\"GB/s\":%.3f", span->bytes / ns));
    return text_append_string(out, "}}");
}

static status span_event(struct text *out, const struct meter_track *track,
                         const struct meter_span *span, int rank, int number)
{
    const struct meter_row *row = &track->rows[span->row];
    char name[64];

    snprintf(name, sizeof name, "%s%s%s", row->name,
             row->label[0] != '\0' ? " " : "", row->label);
    TRY(text_append_string(out, "{\"ph\":\"X\",\"name\":"));
    TRY(quoted(out, name));
    TRY(text_append_string(out, ",\"cat\":"));
    TRY(quoted(out, row->kind == METER_OTHER ? "outline"
                                             : meter_kind_name(row->kind)));
    TRY(text_printf(out, ",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
                    rank, number, 1e-3 * (double)span->begin_ns,
                    1e-3 * (double)(span->end_ns - span->begin_ns)));
    return arguments(out, span, row);
}

static status flush(struct text *out, FILE *file, const char *path,
                    size_t most)
{
    if (out->length < most) return OK;
    if (fwrite(out->bytes, 1, out->length, file) != out->length)
        FAIL(ERR_IO, "%s: the trace cannot be written; the disk may be full",
             path);
    out->length = 0;
    return OK;
}

enum { FLUSH_BYTES = 1 << 20 };

static status write_spans(const struct meter *meter, int rank, FILE *file,
                          const char *path, struct text *out)
{
    int64_t dropped = 0, written = 0;

    for (int t = 0; t < meter->used; t++) {
        const struct meter_track *track = &meter->tracks[t];

        for (int64_t i = 0; i < track->span_count; i++) {
            if (written++ > 0) TRY(text_append_string(out, ",\n"));
            TRY(span_event(out, track, &track->spans[i], rank, t));
            TRY(flush(out, file, path, FLUSH_BYTES));
        }
        dropped += track->dropped;
    }
    TRY(text_printf(out, "\n],\"displayTimeUnit\":\"ms\",\"otherData\":"
                         "{\"spans_dropped\":%lld}}\n", (long long)dropped));
    return flush(out, file, path, 0);
}

static status write_all(const struct meter *meter, int rank,
                        const char *title, FILE *file, const char *path)
{
    struct text out = {0};
    char name[128];
    status result;

    snprintf(name, sizeof name, "rank %d, %s", rank, title);
    TRY_GOTO(done, result, text_append_string(&out, "{\"traceEvents\":[\n"));
    TRY_GOTO(done, result, name_event(&out, "process_name", rank, 0, name));
    for (int t = 0; t < meter->used; t++) {
        const char *own = meter->tracks[t].name;
        const bool plain = strcmp(own, "host") == 0 ||
                           strcmp(own, "kernels") == 0;

        snprintf(name, sizeof name, "%s%s", t == 0 || plain ? "" : "messages, ",
                 own);
        TRY_GOTO(done, result, name_event(&out, "thread_name", rank, t,
                                          t == 0 ? "steps" : name));
    }
    /* A last name, so that a comma may stand behind each of them. */
    TRY_GOTO(done, result, text_printf(
        &out, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,"
              "\"tid\":0,\"args\":{\"sort_index\":%d}}%s\n", rank, rank,
        meter->tracks[0].span_count > 0 ? "," : ""));
    TRY_GOTO(done, result, write_spans(meter, rank, file, path, &out));
done:
    text_free(&out);
    return result;
}

status trace_file_write(const struct meter *meter, int rank,
                        const char *title, const char *path)
{
    char draft[PATH_BYTES];
    FILE *file;
    status result;

    TRY(file_temporary_name(path, draft));
    TRY(file_create(draft, &file));
    temporary_note(draft);
    result = write_all(meter, rank, title, file, path);
    if (fclose(file) != 0 && result == OK)
        result = status_fail(ERR_IO, __FILE__, __LINE__,
                             "%s: the trace cannot be written; the disk may "
                             "be full", path);
    if (result == OK && rename(draft, path) != 0)
        result = status_fail(ERR_IO, __FILE__, __LINE__,
                             "%s cannot be put in place", path);
    if (result != OK) remove(draft);
    temporary_forget(draft);
    return result;
}

status trace_file_name(const char *path, int rank, int ranks, char *out,
                       size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash != NULL ? slash : path, '.');
    const int stem = (int)(dot != NULL ? dot - path : (long)strlen(path));
    const int length =
        ranks > 1 ? snprintf(out, size, "%.*s.rank-%d%s", stem, path, rank,
                             dot != NULL ? dot : "")
                  : snprintf(out, size, "%s", path);

    if (length < 0 || (size_t)length >= size)
        FAIL(ERR_CONFIG, "the name of the trace, %.40s..., is too long", path);
    return OK;
}
