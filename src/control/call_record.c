/* SPDX-License-Identifier: Apache-2.0 */
/* call_record.c - RUN/control/calls-GENERATION.jsonl. */
#include "control/call_record.h"

#include <stdio.h>
#include <unistd.h>
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/status_kept.h"

/* The number of the newest call; 0: there is none. A rank that died may have
 * left nonsense, which is no call where it lies. */
static uint64_t newest_of(const struct flight *flight)
{
    uint64_t newest = 0;

    for (uint64_t i = 0; i < FLIGHT_ENTRIES; i++) {
        const uint64_t number = flight->entries[i].number;

        if (number % FLIGHT_ENTRIES == i && number > newest) newest = number;
    }
    return newest;
}

static void write_time(struct json_writer *w, const char *key, int64_t at_ns,
                       int64_t seen_ns)
{
    json_write_key(w, key);
    if (at_ns <= 0) json_write_null(w);
    else json_write_integer(w, (at_ns - seen_ns) / 1000);
}

static status write_call(struct text *out, int rank,
                         const struct flight_entry *e, int64_t seen_ns)
{
    struct json_writer w;
    status result;

    json_write_begin(&w, 0);
    json_write_object(&w);
    json_write_key_integer(&w, "rank", rank);
    json_write_key_integer(&w, "call", (int64_t)e->call);
    json_write_key_text(&w, "kind", comm_kind_name((enum comm_kind)e->kind));
    json_write_key_text(&w, "group", e->group);
    json_write_key_integer(&w, "size", e->size);
    write_time(&w, "began_us", e->began_ns, seen_ns);
    write_time(&w, "ended_us", e->ended_ns, seen_ns);
    json_write_key_integer(&w, "bytes", e->bytes);
    json_write_key(&w, "peer");
    if (e->peer < 0) json_write_null(&w);
    else json_write_integer(&w, e->peer);
    json_write_key(&w, "background");
    json_write_bool(&w, e->channel != CHANNEL_NOW);
    json_write_object_end(&w);
    result = json_write_line(&w, out);
    json_writer_free(&w);
    return result;
}

static status write_rank(struct text *out, const struct flight *flight,
                         int rank, uint64_t each, int64_t seen_ns)
{
    const uint64_t newest = newest_of(flight);

    for (uint64_t left = newest < each ? newest : each; left > 0; left--) {
        const struct flight_entry e = flight_call(flight, newest - left + 1);

        if (e.number != 0) TRY(write_call(out, rank, &e, seen_ns));
    }
    return OK;
}

static status write_all(struct text *out, const struct board *board,
                        int ranks, uint64_t generation, int64_t seen_ns)
{
    const uint64_t share = CALLS_MOST / (uint64_t)(ranks > 0 ? ranks : 1);
    const uint64_t each = share > CALLS_EACH ? CALLS_EACH : share;

    TRY(text_printf(out, "{\"generation\": %" PRIu64 ", \"ranks\": %d}\n",
                    generation, ranks));
    for (int i = 0; i < ranks && each > 0; i++)
        TRY(write_rank(out, &board->pages[i].flight, i, each, seen_ns));
    return OK;
}

static bool is_record(const char *name, uint64_t *generation)
{
    int used = 0;

    return sscanf(name, "calls-%" SCNu64 ".jsonl%n", generation, &used) == 1 &&
           used > 0 && name[used] == '\0';
}

static int count_newer(char *const *names, int count, uint64_t generation)
{
    int newer = 0;

    for (int i = 0; i < count; i++) {
        uint64_t other;

        newer += is_record(names[i], &other) && other > generation;
    }
    return newer;
}

static status drop_old(const char *directory)
{
    char path[PATH_BYTES];
    char **names;
    int count;

    TRY(directory_list(directory, &names, &count));
    for (int i = 0; i < count; i++) {
        uint64_t generation;

        if (is_record(names[i], &generation) &&
            count_newer(names, count, generation) >= CALLS_FILES &&
            path_join(path, sizeof path, directory, names[i]) == OK)
            unlink(path);
    }
    directory_list_free(names, count);
    return OK;
}

static status keep(const char *directory, const struct text *lines,
                   uint64_t generation)
{
    char path[PATH_BYTES], name[64];

    snprintf(name, sizeof name, CALLS_NAME, generation);
    TRY(path_join(path, sizeof path, directory, name));
    TRY(file_write_cache(path, lines->bytes, lines->length));
    return drop_old(directory);
}

void call_record_keep(const char *run, const struct board *board, int ranks,
                      uint64_t generation, int64_t seen_ns)
{
    char directory[PATH_BYTES];
    struct text lines = {0};
    struct status_trace kept; /* of a failure that is being recorded */
    status result;

    status_keep(&kept);
    result = path_join(directory, sizeof directory, run, "control");
    if (result == OK && file_is_directory(directory)) {
        result = write_all(&lines, board, ranks, generation, seen_ns);
        if (result == OK) result = keep(directory, &lines, generation);
    }
    if (result != OK)
        LOG(WARNING, "supervise", "the last calls of the ranks are not kept: "
            "%s", status_message());
    text_free(&lines);
    (void)status_again(OK, &kept);
}
