/* SPDX-License-Identifier: Apache-2.0 */
/* meter.c - where the time of a thread goes: spans that nest, added up by
 * name. */
#include "base/meter.h"

#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "base/clock.h"

_Thread_local struct meter_thread meter_thread;

int64_t meter_now_ns(void)
{
    return clock_ns();
}

const char *meter_kind_name(enum meter_kind kind)
{
    static const char *const names[METER_KINDS] = {
        "matmul", "attention", "memory-bound", "communication", "optimizer",
        "data", "idle", "unaccounted"};

    return names[kind];
}

/* ---- building ---- */

static status build_spans(struct meter *meter, int64_t spans)
{
    const int64_t each = spans / 8;
    struct meter_span *at;

    if (spans == 0) return OK;
    TRY(memory_take((size_t)(spans + each * (meter->track_count - 1)),
                    sizeof *at, &meter->spans));
    at = meter->spans;
    for (int i = 0; i < meter->track_count; i++) {
        struct meter_track *track = &meter->tracks[i];

        track->spans = at;
        track->span_most = i == 0 ? spans : each;
        at += track->span_most;
    }
    return OK;
}

status meter_build(struct meter *meter, int background, int64_t spans)
{
    void *tracks = NULL;

    *meter = (struct meter){.track_count = 1 + background, .used = 1};
    TRY(memory_take((size_t)meter->track_count, sizeof *meter->tracks,
                    &tracks));
    meter->tracks = tracks;
    for (int i = 0; i < meter->track_count; i++) {
        meter->tracks[i].scope = METER_MEMORY;
        meter->tracks[i].instruction = -1;
        meter->tracks[i].counts = i > 0;
    }
    snprintf(meter->tracks[0].name, METER_LABEL_BYTES, "rank");
    return build_spans(meter, spans);
}

void meter_free(struct meter *meter)
{
    if (meter_thread.meter == meter) meter_thread = (struct meter_thread){0};
    memory_free(meter->spans);
    memory_free(meter->tracks);
    *meter = (struct meter){0};
}

void meter_attach(struct meter_track *track)
{
    meter_thread.track = track;
}

struct meter_track *meter_background(const void *owner, const char *name)
{
    struct meter *meter = meter_thread.meter;

    if (meter == NULL) return NULL;
    for (int i = 1; i < meter->used; i++)
        if (meter->tracks[i].owner == owner) return &meter->tracks[i];
    if (meter->used == meter->track_count) return NULL;
    struct meter_track *track = &meter->tracks[meter->used++];

    track->owner = owner;
    track->instruction = -1;
    snprintf(track->name, METER_LABEL_BYTES, "%s", name);
    track->records = meter->tracks[0].records;
    return track;
}

/* ---- spans ---- */

enum meter_kind meter_scope(enum meter_kind kind)
{
    struct meter_track *track = meter_thread.track;
    enum meter_kind old = METER_MEMORY;

    if (track == NULL) return old;
    old = track->scope;
    track->scope = kind;
    return old;
}

void meter_instruction(int number)
{
    if (meter_thread.track != NULL) meter_thread.track->instruction = number;
}

int meter_instruction_now(void)
{
    return meter_thread.track != NULL ? meter_thread.track->instruction : -1;
}

void meter_push(struct meter_track *track)
{
    CHECK(track->depth < METER_DEPTH_MAX);
    track->inside_ns[track->depth] = 0;
    track->began_ns[track->depth++] = meter_now_ns();
}

static uint32_t hash_of(const struct meter_what *what)
{
    uint64_t h = (uint64_t)(uintptr_t)what->name * 0x9E3779B97F4A7C15u;

    for (int i = 0; i < 3; i++)
        h = (h ^ (uint64_t)what->shape[i]) * 0x9E3779B97F4A7C15u;
    if (what->label != NULL)
        for (const char *c = what->label; *c != '\0'; c++)
            h = (h ^ (uint64_t)*c) * 0x9E3779B97F4A7C15u;
    return (uint32_t)((h ^ (uint64_t)what->kind * 0x9E3779B97F4A7C15u) >> 32);
}

static bool is_row(const struct meter_row *row, const struct meter_what *what)
{
    return row->name == what->name && row->kind == what->kind &&
           memcmp(row->shape, what->shape, sizeof row->shape) == 0 &&
           strncmp(row->label, what->label != NULL ? what->label : "",
                   METER_LABEL_BYTES - 1) == 0;
}

/* The row of a span, new if there was none. */
static int row_of(struct meter_track *track, const struct meter_what *what)
{
    const uint32_t slots = sizeof track->index;
    uint32_t at = hash_of(what) % slots;

    for (; track->index[at] != 0; at = (at + 1) % slots)
        if (is_row(&track->rows[track->index[at] - 1], what))
            return track->index[at] - 1;
    if (track->row_count == METER_ROWS_MAX) return METER_ROWS_MAX - 1;
    struct meter_row *row = &track->rows[track->row_count++];

    *row = (struct meter_row){.kind = what->kind, .name = what->name};
    memcpy(row->shape, what->shape, sizeof row->shape);
    memcpy(row->turned, what->turned, sizeof row->turned);
    snprintf(row->label, METER_LABEL_BYTES, "%s",
             what->label != NULL ? what->label : "");
    track->index[at] = (uint8_t)track->row_count;
    return track->row_count - 1;
}

static void keep_span(struct meter_track *track, const struct meter_span *span)
{
    if (!track->records) return;
    if (track->span_count == track->span_most) track->dropped++;
    else track->spans[track->span_count++] = *span;
}

/* Counts a span inside which others took inside_ns. */
static void count_span(struct meter_track *track,
                       const struct meter_what *original,
                       const struct meter_span *span, int64_t inside_ns)
{
    const int64_t own = span->end_ns - span->begin_ns - inside_ns;
    struct meter_what what = *original;

    if (track->row_count >= METER_SHAPES_MAX)
        memset(what.shape, 0, sizeof what.shape);
    const int at = row_of(track, &what);
    struct meter_row *row = &track->rows[at];

    row->calls++;
    row->own_ns += own;
    if (span->instruction >= 0 && own > row->longest_ns) {
        row->longest_ns = own;
        row->longest_in = span->instruction;
    }
    row->flops += what.flops;
    row->lane_flops += what.lane_flops;
    row->bytes += what.bytes;
    keep_span(track, &(struct meter_span){span->begin_ns, span->end_ns,
                                          what.flops, what.bytes, at,
                                          what.number, span->instruction});
}

void meter_add(struct meter_track *track, const struct meter_what *what,
               const struct meter_span *span)
{
    count_span(track, what, span, 0);
}

/* Ends the innermost span; returns its nanoseconds. */
static int64_t close_span(struct meter_track *track,
                          const struct meter_what *original)
{
    const int64_t now = meter_now_ns();
    struct meter_what what = *original;
    const int depth = --track->depth;
    const int64_t began = track->began_ns[depth];

    if (what.kind == METER_MEMORY) what.kind = track->scope;
    if (depth > 0) track->inside_ns[depth - 1] += now - began;
    if (track->later != NULL)
        track->later(track->later_owner, track, &what);
    else
        count_span(track, &what, &(struct meter_span){
            .begin_ns = began, .end_ns = now,
            .instruction = track->instruction}, track->inside_ns[depth]);
    return now - began;
}

void meter_pop(struct meter_track *track, const struct meter_what *what)
{
    close_span(track, what);
}

/* ---- steps ---- */

/* Tracks of the background count always: a message may outlive its step. They
 * are read when nothing is under way. */
void meter_step_begin(struct meter *meter)
{
    struct meter_track *track = &meter->tracks[0];

    meter_thread = (struct meter_thread){track, meter};
    track->depth = 0; /* whatever an error left open */
    track->scope = METER_MEMORY;
    track->counts = true;
    meter_push(track);
}

void meter_step_end(struct meter *meter)
{
    struct meter_track *track = &meter->tracks[0];
    const struct meter_what step = {.kind = METER_OTHER, .name = "step"};

    CHECK(track->counts && track->depth == 1);
    track->steps++;
    track->total_ns += close_span(track, &step);
    track->counts = false;
    meter_thread.track = NULL;
}

void meter_clear(struct meter *meter)
{
    for (int i = 0; i < meter->track_count; i++) {
        struct meter_track *track = &meter->tracks[i];

        for (int r = 0; r < track->row_count; r++) {
            track->rows[r].calls = track->rows[r].own_ns = 0;
            track->rows[r].flops = track->rows[r].lane_flops =
                track->rows[r].bytes = 0;
        }
        track->steps = track->total_ns = 0;
    }
}

void meter_record(struct meter *meter, bool records)
{
    const bool now = records && meter->spans != NULL;

    for (int i = 0; i < meter->track_count; i++) /* others read it meanwhile */
        if (meter->tracks[i].records != now) meter->tracks[i].records = now;
}
