/* SPDX-License-Identifier: Apache-2.0 */
/* local_records.c - metrics and records of a run that follow rank 0 from
 * machine to machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/text.h"
#include "checkpoint/history.h"
#include "control/run_number.h"
#include "train/local_run.h"

static const size_t file_most = (size_t)1 << 40;

/* The number in the text of RUN/records; 0: none. */
static int64_t number_in(const struct text *text)
{
    const uint64_t number = run_number_in(text);

    return number <= INT64_MAX ? (int64_t)number : 0;
}

static int64_t number_at(const struct shard_place *place)
{
    struct text text = {0};
    int64_t number = 0;

    if (shard_place_read(place, "run/records", RUN_NUMBER_BYTES, &text) == OK)
        number = number_in(&text);
    else
        status_clear();
    text_free(&text);
    return number;
}

static status store(const char *run, const char *name, const struct text *text)
{
    char path[PATH_BYTES];

    TRY(path_join(path, sizeof path, run, name));
    return file_write_atomic(path, text->bytes != NULL ? text->bytes : "",
                             text->length);
}

/* One file of another machine's RUN; there need be none. */
static status bring_file(const struct shard_place *place, const char *run,
                         const char *name)
{
    char path[STORE_PATH_BYTES];
    struct text text = {0};
    status result;

    snprintf(path, sizeof path, "run/%s", name);
    result = shard_place_read(place, path, file_most, &text);
    if (result == OK) result = store(run, name, &text);
    else if (result == ERR_MISSING) {
        status_clear();
        result = OK;
    }
    text_free(&text);
    return result;
}

static bool has(const char *run, const char *name)
{
    char path[PATH_BYTES];

    if (path_join(path, sizeof path, run, name) == OK)
        return file_exists(path);
    status_clear();
    return false;
}

/* ---- the configuration ---- */

static bool is_configuration(const char *name)
{
    return !text_ends_with(name, ".jsonl") && strcmp(name, "records") != 0;
}

/* config.yaml last: where it is, the rest is there, too. */
static status bring_all(const struct shard_place *place, const char *run)
{
    TRY(directory_make_private(run));
    for (int i = 0; stores_run_files[i] != NULL; i++)
        if (is_configuration(stores_run_files[i]) &&
            strcmp(stores_run_files[i], "config.yaml") != 0)
            TRY(bring_file(place, run, stores_run_files[i]));
    return bring_file(place, run, "config.yaml");
}

status local_bring_configuration(const char *run)
{
    struct far_nodes far;
    struct local_run local = {.used = true};
    struct local_places places;
    status result;

    if (!far_nodes_find(&far) || has(run, "config.yaml")) return OK;
    snprintf(local.node, sizeof local.node, "%s", far.own);
    result = local_places_open(&places, &local, NULL);
    for (int i = 1; i < places.count && result == OK; i++) {
        char byte;
        size_t got = 0;

        if (places.places[i].read(places.places[i].argument, "run/config.yaml",
                                  0, &byte, 1, &got) != OK) {
            status_clear();
            continue;
        }
        result = bring_all(&places.places[i], run);
        break;
    }
    local_places_close(&places);
    return result;
}

/* ---- records ---- */

/* Takes the records of a machine that is here. */
static status bring_from(struct local_run *local,
                         const struct shard_place *place, int64_t number)
{
    for (int i = 0; stores_run_files[i] != NULL; i++)
        if (!is_configuration(stores_run_files[i]))
            TRY(bring_file(place, local->stores.run, stores_run_files[i]));
    local->records = number;
    return OK;
}

/* A file of the step, if it has one of that name. */
static status take_file(const struct local_run *local,
                        const struct shard_set *shards, const char *name)
{
    struct text text = {0};
    status result = shards_read_file(shards, name, file_most, &text);

    if (result == OK) result = store(local->stores.run, name, &text);
    else if (result == ERR_MISSING) {
        status_clear();
        result = OK;
    }
    text_free(&text);
    return result;
}

status local_bring_from_step(struct local_run *local,
                             const struct shard_set *shards)
{
    struct text text = {0};
    int64_t number = 0;
    status result = OK;

    if (shards_read_file(shards, "records", RUN_NUMBER_BYTES, &text) == OK)
        number = number_in(&text);
    else
        status_clear();
    text_free(&text);
    for (int i = 0; stores_run_files[i] != NULL && result == OK; i++) {
        const char *name = stores_run_files[i];
        const bool wanted = is_configuration(name)
                                ? !has(local->stores.run, name)
                                : number > local->records;

        if (wanted) result = take_file(local, shards, name);
    }
    local->behind = number > local->records;
    if (local->behind) local->records = number;
    return result;
}

/* No line of the ledger is ever dropped, and every machine with ranks has
 * written it: the longest one, without a torn line. */
static status bring_ledger(const struct local_run *local,
                           const struct local_places *places)
{
    struct text best = {0};
    status result = OK;

    for (int i = 0; i < places->count && result == OK; i++) {
        struct text text = {0};

        result = shard_place_read(&places->places[i], "run/ledger.jsonl",
                                  (size_t)1 << 30, &text);
        if (result != OK) {
            status_clear();
            text.length = 0;
            result = OK;
        }
        while (text.length > 0 && text.bytes[text.length - 1] != '\n')
            text.length--;
        if (text.length > best.length) {
            text_free(&best);
            best = text;
        } else {
            text_free(&text);
        }
    }
    if (best.length > 0)
        result = store(local->stores.run, "ledger.jsonl", &best);
    text_free(&best);
    return result;
}

static status bring_newest(struct local_run *local)
{
    struct local_source source;
    struct text notice = {0};
    int64_t most, step;
    int best = 0;
    status result;

    TRY_GOTO(done, result, local_source_list(&source, local, NULL, &notice));
    most = local->records = number_at(&source.places.places[0]);
    for (int i = 1; i < source.places.count; i++) {
        const int64_t number = number_at(&source.places.places[i]);

        if (number > most) best = i;
        if (number > most) most = number;
    }
    if (best > 0)
        TRY_GOTO(done, result, bring_from(local, &source.places.places[best],
                                          most));
    TRY_GOTO(done, result,
             local_source_any(&source, &step));
    if (step >= 0)
        TRY_GOTO(done, result, local_bring_from_step(local, &source.shards));
    if (local->records > 0) result = bring_ledger(local, &source.places);
done:
    local_source_close(&source);
    text_free(&notice);
    return result;
}

/* ---- for other machines ---- */

/* "NAME LENGTH\n" and bytes. */
static status collect(const struct local_run *local, const char *name,
                      struct text *out)
{
    struct text text = {0};
    char path[PATH_BYTES];
    status result;

    TRY(path_join(path, sizeof path, local->stores.run, name));
    if (!file_exists(path)) return OK;
    result = file_read_own(path, file_most, &text);
    if (result == OK) result = text_printf(out, "%s %zu\n", name, text.length);
    if (result == OK && text.length > 0)
        result = text_append(out, text.bytes, text.length);
    text_free(&text);
    return result;
}

/* Every step has its own. */
static bool is_in_checkpoint(const char *name)
{
    return strcmp(name, "config.json") == 0 ||
           strcmp(name, "tekken.json") == 0 ||
           strncmp(name, "tokenizer.", 10) == 0 ||
           text_ends_with(name, ".tiktoken");
}

status local_collect_records(const struct local_run *local, struct text *out)
{
    for (int i = 0; stores_run_files[i] != NULL; i++)
        if (!is_in_checkpoint(stores_run_files[i]))
            TRY(collect(local, stores_run_files[i], out));
    return OK;
}

bool local_next_record(const char **at, const char *end,
                       struct local_record *record)
{
    if (*at >= end) return false;
    const size_t name = strcspn(*at, " ");

    snprintf(record->name, sizeof record->name, "%.*s", (int)name, *at);
    record->length = strtoul(*at + name + 1, NULL, 10);
    record->bytes = *at + strcspn(*at, "\n") + 1;
    *at = record->bytes + record->length;
    return true;
}

static status store_records(const struct local_run *local,
                            const struct text *records)
{
    const char *at = records->bytes, *end = at + records->length;
    struct local_record record;

    while (local_next_record(&at, end, &record)) {
        const struct text text = {(char *)record.bytes, record.length, 0};

        if (!is_configuration(record.name))
            TRY(store(local->stores.run, record.name, &text));
    }
    return OK;
}

/* The step of this machine's newest checkpoint; -1: it has none. */
static int64_t newest_step(const struct local_run *local)
{
    char directory[PATH_BYTES];
    int64_t step = -1;

    if (checkpoint_find_newest(local->store, directory, &step) == OK)
        return step;
    status_clear();
    return -1;
}

/* Rank 0 hears from the first rank of each machine which checkpoint it has; the
 * newest of all. */
static status hear_steps(const struct local_run *local, struct group *world,
                         int64_t *steps, int64_t *most)
{
    int64_t step = newest_step(local);
    const struct tensor t = tensor_1d(&step, DTYPE_I64, 1);

    if (world->rank > 0)
        return local->lead == world->rank ? comm_send(world, t, 0, 0) : OK;
    *most = step;
    for (int i = 1; i < world->size; i++) {
        if (!local_is_lead(local, i)) continue;
        TRY(comm_recv(world, t, i, 0));
        steps[i] = step;
        if (step > *most) *most = step;
    }
    return OK;
}

/* A machine that joined after the newest checkpoint was saved has no records of
 * the steps before it. */
static status hand_out(const struct local_run *local, struct group *world,
                       const int64_t *steps, int64_t most,
                       const struct text *records)
{
    static const struct text none = {0};

    for (int i = 1; i < world->size; i++)
        if (local_is_lead(local, i))
            TRY(local_give(world, steps[i] < most ? records : &none, i));
    return OK;
}

static bool any_is_behind(const struct local_run *local,
                          const struct group *world, const int64_t *steps,
                          int64_t most)
{
    for (int i = 1; i < world->size; i++)
        if (local_is_lead(local, i) && steps[i] < most) return true;
    return false;
}

static status share_records(struct local_run *local, struct group *world)
{
    struct text records = {0};
    int64_t *steps = NULL, most = -1;
    status result;

    TRY(memory_take((size_t)world->size, sizeof *steps, (void **)&steps));
    result = hear_steps(local, world, steps, &most);
    if (result == OK && world->rank == 0 &&
        any_is_behind(local, world, steps, most))
        result = local_collect_records(local, &records);
    TRY_GOTO(done, result, comm_agree(world, result));
    if (world->rank == 0)
        result = hand_out(local, world, steps, most, &records);
    else if (local->lead == world->rank)
        result = local_take(world, &records);
    if (result == OK && world->rank > 0)
        result = store_records(local, &records);
    result = comm_agree(world, result);
done:
    memory_free(steps);
    text_free(&records);
    return result;
}

status local_bring_records(struct local_run *local, struct group *world)
{
    struct text ledger = {0};
    char path[PATH_BYTES];
    const bool first = world == NULL || world->rank == 0;
    status result = first ? bring_newest(local) : OK;

    if (world == NULL) return result;
    if (result == OK)
        result = path_join(path, sizeof path, local->stores.run,
                           "ledger.jsonl");
    if (first && result == OK && file_exists(path))
        result = file_read_own(path, (size_t)1 << 30, &ledger);
    TRY_GOTO(done, result, comm_agree(world, result));
    TRY_GOTO(done, result, share_records(local, world));
    TRY_GOTO(done, result, local_spread(local, world, &ledger));
    if (!first && local->lead == world->rank && ledger.length > 0)
        result = store(local->stores.run, "ledger.jsonl", &ledger);
    result = comm_agree(world, result);
done:
    text_free(&ledger);
    return result;
}

status local_raise_records(struct local_run *local)
{
    struct text text = {0};
    status result;

    local->records++;
    result = text_printf(&text, "%lld\n", (long long)local->records);
    if (result == OK) result = store(local->stores.run, "records", &text);
    text_free(&text);
    return result;
}
