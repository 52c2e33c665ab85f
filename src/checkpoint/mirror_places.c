/* SPDX-License-Identifier: Apache-2.0 */
/* mirror_places.c - the steps of a run that an object storage holds. */
#include "checkpoint/mirror_places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/local_stores.h"
#include "base/text.h"
#include "checkpoint/history.h"
#include "checkpoint/mirror.h"

void mirror_place_name(char out[MIRROR_NAME_BYTES],
                       const struct mirror_place *place)
{
    char step[32];

    CHECK(place->version >= 0 && place->version <= MIRROR_VERSIONS_MOST);
    step_name(step, place->step);
    if (place->version > 1)
        snprintf(out, MIRROR_NAME_BYTES, "%.28s-%d", step, place->version);
    else
        snprintf(out, MIRROR_NAME_BYTES, "%.31s", step);
}

bool mirror_place_parse(const char *name, struct mirror_place *out)
{
    char whole[MIRROR_NAME_BYTES], again[MIRROR_NAME_BYTES], *version;
    const size_t length = strcspn(name, "/");

    if (length >= sizeof whole) return false;
    snprintf(whole, sizeof whole, "%.*s", (int)length, name);
    snprintf(again, sizeof again, "%s", whole);
    out->version = 1;
    version = strchr(whole, '-');
    version = version != NULL ? strchr(version + 1, '-') : NULL;
    if (version != NULL) {
        *version++ = '\0';
        if (strlen(version) > 6 ||
            strspn(version, "0123456789") != strlen(version))
            return false;
        out->version = (int)strtol(version, NULL, 10);
        if (out->version < 2 || out->version > MIRROR_VERSIONS_MOST)
            return false;
    }
    if (!step_parse(whole, &out->step)) return false;
    mirror_place_name(whole, out); /* one name for each place */
    return strcmp(whole, again) == 0;
}

static status see(void *argument, const char *key)
{
    struct mirror_objects *all = argument;
    struct mirror_object found = {.manifest = false};
    const char *slash = strchr(key, '/');
    void *memory, *items = all->items;

    /* The name comes from the server, and becomes part of an address. */
    if (slash == NULL || !mirror_place_parse(key, &found.place) ||
        !file_name_is_safe(slash + 1))
        return OK;
    if (all->count == all->capacity) {
        all->capacity = 2 * all->capacity + 64;
        TRY(memory_grow(&items, (size_t)all->capacity, sizeof *all->items));
        all->items = items;
    }
    TRY(arena_take(&all->arena, strlen(key) + 1, &memory));
    memcpy(memory, key, strlen(key) + 1);
    found.key = memory;
    found.manifest = strcmp(slash, "/manifest.json") == 0;
    all->items[all->count++] = found;
    return OK;
}

status mirror_objects_read(struct mirror_objects *objects, struct s3 *s3)
{
    arena_init(&objects->arena, "names of objects", 0);
    return s3_list(s3, see, objects);
}

void mirror_objects_free(struct mirror_objects *objects)
{
    arena_free(&objects->arena);
    memory_free(objects->items);
    *objects = (struct mirror_objects){.items = NULL};
}

int mirror_version(const struct mirror_objects *objects, int64_t step)
{
    int version = 0;

    for (int i = 0; i < objects->count; i++) {
        const struct mirror_object *o = &objects->items[i];

        if (o->manifest && o->place.step == step && o->place.version > version)
            version = o->place.version;
    }
    return version;
}

bool mirror_holds(const struct mirror_objects *objects, const char *key)
{
    for (int i = 0; i < objects->count; i++)
        if (strcmp(objects->items[i].key, key) == 0) return true;
    return false;
}

/* ---- removing ---- */

/* An upload in parts that is not under way: all of steps up to the newest were
 * sent, or will not be. */
static bool is_stale(const void *newest, const char *key)
{
    const struct mirror_place *last = newest;
    const char *slash = strchr(key, '/');
    struct mirror_place place;

    for (int i = 0; i < STORES_MIRRORED_FILES && slash == NULL; i++)
        if (strcmp(key, stores_run_files[i]) == 0) return true;
    return slash != NULL && mirror_place_parse(key, &place) &&
           file_name_is_safe(slash + 1) && place.step <= last->step;
}

static int order(const void *left, const void *right)
{
    const struct mirror_place *a = left, *b = right;

    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    return a->version < b->version ? -1 : a->version > b->version;
}

/* Steps that are whole, ascending, each once in its newest version. A step
 * without its manifest was not sent whole: it takes no other's place. */
static status whole_steps(const struct mirror_objects *all,
                          struct mirror_place **steps, int *count)
{
    void *memory;
    int kept = 0;

    TRY(memory_take((size_t)all->count + 1, sizeof **steps, &memory));
    *steps = memory;
    *count = 0;
    for (int i = 0; i < all->count; i++)
        if (all->items[i].manifest) (*steps)[(*count)++] = all->items[i].place;
    if (*count > 0) qsort(*steps, (size_t)*count, sizeof **steps, order);
    for (int i = 0; i < *count; i++) {
        if (kept > 0 && (*steps)[kept - 1].step == (*steps)[i].step) kept--;
        (*steps)[kept++] = (*steps)[i];
    }
    *count = kept;
    return OK;
}

/* The first step that is kept because it is one of the last up to `newest`. */
static int64_t first_kept(const struct mirror_place *steps, int count,
                          int64_t newest, int64_t keep_last)
{
    while (count > 0 && steps[count - 1].step > newest) count--;
    if (keep_last < 1 || keep_last >= count) return INT64_MIN;
    return steps[count - keep_last].step;
}

static int version_of(const struct mirror_place *steps, int count, int64_t step)
{
    int from = 0, to = count;

    while (from < to) {
        const int middle = from + (to - from) / 2;

        if (steps[middle].step < step) from = middle + 1;
        else to = middle;
    }
    return from < count && steps[from].step == step ? steps[from].version : 0;
}

/* A step without its manifest is none, so manifests go first. */
static status remove_those(struct s3 *s3, const struct mirror_objects *all,
                           const bool *goes)
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < all->count; i++)
            if (goes[i] && all->items[i].manifest == (pass == 0))
                TRY(s3_delete(s3, all->items[i].key));
    return OK;
}

status mirror_prune(struct s3 *s3, const struct mirror_place *newest,
                    int64_t keep_last, int64_t keep_every, int64_t best)
{
    struct mirror_objects all = {.items = NULL};
    struct mirror_place *steps = NULL;
    int64_t first;
    void *memory = NULL;
    bool *goes;
    int count = 0;
    status result;

    TRY_GOTO(done, result, mirror_objects_read(&all, s3));
    TRY_GOTO(done, result, whole_steps(&all, &steps, &count));
    TRY_GOTO(done, result, memory_take((size_t)all.count + 1, sizeof *goes,
                                       &memory));
    goes = memory;
    first = first_kept(steps, count, newest->step, keep_last);
    for (int i = 0; i < all.count; i++) {
        const struct mirror_place *p = &all.items[i].place;
        const bool kept = p->step == best ||
                          (keep_every > 0 && p->step % keep_every == 0);

        goes[i] = (p->step < newest->step && p->step < first && !kept) ||
                  (p->step <= newest->step &&
                   p->version < version_of(steps, count, p->step));
    }
    TRY_GOTO(done, result, remove_those(s3, &all, goes));
    if (s3_drop_uploads(s3, is_stale, newest) != OK)
        status_clear(); /* not each storage, or user, may list them */
done:
    memory_free(memory);
    memory_free(steps);
    mirror_objects_free(&all);
    return result;
}
