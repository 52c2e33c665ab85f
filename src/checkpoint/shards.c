/* SPDX-License-Identifier: Apache-2.0 */
/* shards.c - a checkpoint of which each machine keeps a part. */
#include "checkpoint/shards.h"

#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/history.h"

enum { FOUND_MOST = 1 << 20, NODES_BYTES_MOST = 1 << 20,
       READ_BYTES = 1 << 20, NAMES_BYTES = 192 };

/* ---- places ---- */

static status list_here(void *argument, struct text *out)
{
    return stores_list(argument, out);
}

static status read_here(void *argument, const char *path, int64_t offset,
                        void *bytes, size_t length, size_t *got)
{
    return stores_read(argument, path, offset, bytes, length, got);
}

struct shard_place shard_place_here(const char *name,
                                    const struct stores *stores)
{
    struct shard_place place = {.argument = (void *)(uintptr_t)stores,
                                .list = list_here, .read = read_here};

    snprintf(place.name, sizeof place.name, "%s", name);
    return place;
}

status shard_place_read(const struct shard_place *place, const char *path,
                        size_t bytes_most, struct text *out)
{
    size_t got = READ_BYTES;
    void *buffer;
    status result = OK;

    TRY(memory_take(READ_BYTES, 1, &buffer));
    while (result == OK && got == READ_BYTES) {
        result = place->read(place->argument, path, (int64_t)out->length,
                             buffer, READ_BYTES, &got);
        if (result == OK && out->length + got > bytes_most)
            result = status_fail(ERR_FORMAT, __FILE__, __LINE__, "%s of %s: "
                                 "has more than %zu bytes", path, place->name,
                                 bytes_most);
        if (result == OK) result = text_append(out, buffer, got);
    }
    memory_free(buffer);
    return result;
}

/* ---- lists ---- */

static status add_found(struct shard_list *list, const struct shard_place *at,
                        const struct shard_found *found)
{
    void *items = list->items;

    for (int i = 0; i < list->count; i++) {
        struct shard_found *known = &list->items[i];

        if (strcmp(known->store, found->store) != 0 ||
            known->place == found->place)
            continue;
        /* The same disk, or an old copy of it. */
        if (strcmp(at->name, found->store) != 0) return OK;
        known->store[0] = '\0';
    }
    if (list->count == FOUND_MOST)
        FAIL(ERR_FORMAT, "more than %d steps of stores", FOUND_MOST);
    if (list->count == list->room) {
        list->room = 2 * list->room + 32;
        TRY(memory_grow(&items, (size_t)list->room, sizeof *list->items));
        list->items = items;
    }
    list->items[list->count++] = *found;
    return OK;
}

static bool parse_found(const char *line, size_t length,
                        struct shard_found *found)
{
    char text[STORE_PATH_BYTES], *slash;

    if (length >= sizeof text) return false;
    snprintf(text, sizeof text, "%.*s", (int)length, line);
    slash = strchr(text, '/');
    if (slash == NULL || slash - text >= STORE_NAME_BYTES ||
        strncmp(slash, "/ckpt/", 6) != 0)
        return false;
    *slash = '\0';
    if (!store_name_is_plain(text)) return false;
    snprintf(found->store, sizeof found->store, "%.47s", text);
    found->step = -1;
    return strcmp(slash + 6, ".none") == 0 ||
           step_parse(slash + 6, &found->step);
}

status shard_list_add(struct shard_list *list, const struct shard_place *places,
                      int place)
{
    const struct shard_place *at = &places[place];
    struct shard_found found = {.place = place};
    struct text text = {0};
    status result;

    TRY_GOTO(done, result, at->list(at->argument, &text));
    for (size_t i = 0; i < text.length;) {
        const size_t length = strcspn(text.bytes + i, "\n");

        if (parse_found(text.bytes + i, length, &found))
            TRY_GOTO(done, result, add_found(list, at, &found));
        i += length + 1;
    }
done:
    text_free(&text);
    return result;
}

void shard_list_free(struct shard_list *list)
{
    memory_free(list->items);
    *list = (struct shard_list){0};
}

int64_t shard_list_newest(const struct shard_list *list, int64_t below)
{
    int64_t newest = -1;

    for (int i = 0; i < list->count; i++) {
        const struct shard_found *found = &list->items[i];

        if (found->store[0] != '\0' && found->step < below &&
            found->step > newest)
            newest = found->step;
    }
    return newest;
}

/* ---- opening ---- */

static void path_of(char out[STORE_PATH_BYTES], const char *store,
                    int64_t step, const char *file)
{
    char name[32];

    step_name(name, step);
    snprintf(out, STORE_PATH_BYTES, "%s/ckpt/%s/%.120s", store, name, file);
}

/* The bytes stay in the arena. */
static status read_text(struct shard_set *shards,
                        const struct shard_store *store, const char *path,
                        struct text *out)
{
    struct text text = {0};
    void *memory;
    status result;

    TRY_GOTO(done, result, shard_place_read(store->place, path,
                                            MANIFEST_BYTES_MAX, &text));
    TRY_GOTO(done, result, arena_take(&shards->arena, text.length + 1,
                                      &memory));
    if (text.length > 0) memcpy(memory, text.bytes, text.length);
    *out = (struct text){.bytes = memory, .length = text.length};
done:
    text_free(&text);
    return result;
}

static status read_list(struct shard_set *shards,
                        const struct shard_store *store, int64_t step,
                        const char *name, struct manifest *out,
                        struct text *text)
{
    char path[STORE_PATH_BYTES];

    path_of(path, store->name, step, name);
    TRY(read_text(shards, store, path, text));
    TRY(manifest_read(out, &shards->arena, text->bytes, text->length, path));
    if (out->step == step) return OK;
    FAIL(ERR_FORMAT, "%s: is of step %lld", path, (long long)out->step);
}

static bool is_same_tensor(const struct manifest *a, const struct manifest *b,
                           int i)
{
    const struct manifest_tensor *x = &a->tensors[i], *y = &b->tensors[i];

    return strcmp(x->name, y->name) == 0 && strcmp(x->kind, y->kind) == 0 &&
           x->dtype == y->dtype && x->bytes == y->bytes &&
           x->first == y->first && x->blocks == y->blocks &&
           strcmp(a->files[x->file].name, b->files[y->file].name) == 0;
}

/* The list of a machine is of the whole, as another machine lists it. */
static status check_own(const struct shard_set *shards,
                        const struct shard_store *store)
{
    const struct manifest *whole = &shards->whole, *own = &store->own;
    bool same = own->tensor_count == whole->tensor_count &&
                strcmp(own->model, whole->model) == 0;

    for (int i = 0; same && i < whole->tensor_count; i++)
        same = is_same_tensor(whole, own, i);
    if (same) return OK;
    FAIL(ERR_FORMAT, "%s: what it lists for step %lld is of another model or "
         "run", store->name, (long long)whole->step);
}

static status open_store(struct shard_set *shards, struct shard_store *store,
                         int64_t step)
{
    struct manifest whole;
    struct text text;

    TRY(read_list(shards, store, step, CHECKPOINT_SHARDS, &store->own, &text));
    TRY(read_list(shards, store, step, CHECKPOINT_MANIFEST, &whole, &text));
    if (shards->count > 0 && (text.length != shards->length ||
                              memcmp(text.bytes, shards->text, text.length)))
        FAIL(ERR_FORMAT, "%s: its manifest of step %lld is another than that "
             "of %s", store->name, (long long)step, shards->stores[0].name);
    if (shards->count == 0) {
        shards->whole = whole;
        shards->text = text.bytes;
        shards->length = text.length;
    }
    return check_own(shards, store);
}

static uint32_t zeros_of(const struct manifest_tensor *tensor, int64_t block)
{
    const int64_t left = tensor->bytes - block * CHECKPOINT_BLOCK_BYTES;

    return crc32c_zeros((uint64_t)(left < CHECKPOINT_BLOCK_BYTES
                                       ? left : CHECKPOINT_BLOCK_BYTES));
}

/* Whether the stores make the block: checksums without their zeros are joined
 * by exclusive or. */
static bool is_whole(const struct shard_set *shards, int tensor, int64_t block)
{
    const struct manifest_tensor *t = &shards->whole.tensors[tensor];
    const uint32_t zeros = zeros_of(t, block);
    uint32_t sum = t->crcs[block] ^ zeros;

    for (int i = 0; i < shards->count; i++)
        sum ^= shards->stores[i].own.tensors[tensor].crcs[block] ^ zeros;
    return sum == 0;
}

/* Names of machines in nodes.json that none of the stores is of. */
static void missing_nodes(const struct shard_set *shards, char out[NAMES_BYTES])
{
    struct text text = {0};
    struct arena arena;
    const struct json *root = NULL, *nodes = NULL;
    size_t used = 0;

    out[0] = '\0';
    arena_init(&arena, "nodes", 0);
    if (shards_read_file(shards, "nodes.json", NODES_BYTES_MOST, &text) == OK &&
        json_read(&root, &arena, text.bytes, text.length, "nodes.json") == OK)
        nodes = json_get(root, "nodes");
    for (int i = 0; nodes != NULL && nodes->kind == JSON_ARRAY &&
                    i < nodes->count; i++) {
        const struct json *name = json_get(&nodes->items[i], "name");
        bool here = name == NULL || name->kind != JSON_STRING;

        for (int j = 0; !here && j < shards->count; j++)
            here = strcmp(shards->stores[j].name, name->string) == 0;
        if (!here && used < NAMES_BYTES)
            used += (size_t)snprintf(out + used, NAMES_BYTES - used, "%s%.40s",
                                     used > 0 ? ", " : "", name->string);
    }
    status_clear();
    arena_free(&arena);
    text_free(&text);
}

status shards_check_whole(const struct shard_set *shards)
{
    const struct manifest *whole = &shards->whole;
    const struct manifest_tensor *first = NULL;
    char names[NAMES_BYTES];
    int64_t blocks = 0;
    int tensors = 0;

    for (int i = 0; i < whole->tensor_count; i++) {
        const int64_t before = blocks;

        for (int64_t b = 0; b < whole->tensors[i].blocks; b++)
            blocks += !is_whole(shards, i, b);
        if (blocks == before) continue;
        if (first == NULL) first = &whole->tensors[i];
        tensors++;
    }
    if (first == NULL) return OK;
    missing_nodes(shards, names);
    FAIL(ERR_MISSING, "step %lld is not whole: %lld blocks of %d of its %d "
         "tensors are missing, first of %.80s (%s); the shards of %s are not "
         "here", (long long)whole->step, (long long)blocks, tensors,
         whole->tensor_count, first->name, first->kind,
         names[0] != '\0' ? names : "a machine with a damaged list");
}

status shards_open(struct shard_set *shards, const struct shard_place *places,
                   const struct shard_list *list, int64_t step)
{
    char why[512] = "no store has it";
    void *memory;
    status result;

    memset(shards, 0, sizeof *shards);
    arena_init(&shards->arena, "shards", (size_t)4 << 30);
    TRY(memory_take((size_t)list->count + 1, sizeof *shards->stores,
                    &memory));
    shards->stores = memory;
    for (int i = 0; i < list->count; i++) {
        const struct shard_found *found = &list->items[i];
        struct shard_store *store = &shards->stores[shards->count];

        if (found->step != step || found->store[0] == '\0') continue;
        *store = (struct shard_store){.place = &places[found->place]};
        memcpy(store->name, found->store, sizeof store->name);
        result = open_store(shards, store, step);
        if (result == OK) shards->count++;
        if (result == OK) continue;
        snprintf(why, sizeof why, "%s", status_message());
        if (result == ERR_MEMORY) return status_pass(result, __FILE__,
                                                     __LINE__);
        status_clear();
    }
    if (shards->count == 0)
        FAIL(ERR_MISSING, "step %lld is not there: %s", (long long)step, why);
    return OK;
}

void shards_close(struct shard_set *shards)
{
    memory_free(shards->stores);
    arena_free(&shards->arena);
    memset(shards, 0, sizeof *shards);
}

/* ---- reading ---- */

static status read_store(const struct shard_store *store, int tensor,
                         int64_t block, unsigned char *out, size_t length)
{
    const struct manifest_tensor *t = &store->own.tensors[tensor];
    char path[STORE_PATH_BYTES];
    size_t got = 0;
    uint32_t crc;

    path_of(path, store->name, store->own.step,
            store->own.files[t->file].name);
    TRY(store->place->read(store->place->argument, path,
                           t->first + block * CHECKPOINT_BLOCK_BYTES, out,
                           length, &got));
    crc = crc32c(0, out, got);
    if (got == length && crc == t->crcs[block]) return OK;
    FAIL(ERR_FORMAT, "%s on %s: is damaged: block %lld of %s (%s) has checksum "
         "%08x, its list says %08x", path, store->place->name,
         (long long)block, t->name, t->kind, crc, t->crcs[block]);
}

static void join(unsigned char *out, const unsigned char *more, size_t length)
{
    for (size_t i = 0; i < length; i++) out[i] ^= more[i];
}

status shards_read_block(const struct shard_set *shards, int tensor,
                         int64_t block, unsigned char *out)
{
    const struct manifest_tensor *t = &shards->whole.tensors[tensor];
    const int64_t left = t->bytes - block * CHECKPOINT_BLOCK_BYTES;
    const size_t length = (size_t)(left < CHECKPOINT_BLOCK_BYTES
                                       ? left : CHECKPOINT_BLOCK_BYTES);
    const uint32_t zeros = zeros_of(t, block);
    void *more = NULL;
    status result = OK;
    int joined = 0;

    for (int i = 0; i < shards->count && result == OK; i++) {
        const struct shard_store *store = &shards->stores[i];

        if (store->own.tensors[tensor].crcs[block] == zeros) continue;
        if (joined > 0 && more == NULL)
            result = memory_take(length, 1, &more);
        if (result == OK)
            result = read_store(store, tensor, block,
                                joined > 0 ? more : out, length);
        if (result == OK && joined > 0) join(out, more, length);
        joined++;
    }
    memory_free(more);
    if (joined == 0) memset(out, 0, length);
    return result;
}

static const struct manifest_file *listed(const struct manifest *manifest,
                                          const char *name)
{
    for (int i = 0; i < manifest->file_count; i++)
        if (strcmp(manifest->files[i].name, name) == 0)
            return &manifest->files[i];
    return NULL;
}

static status read_file(const struct shard_store *store, const char *name,
                        size_t bytes_most, struct text *out)
{
    const struct manifest_file *file = listed(&store->own, name);
    char path[STORE_PATH_BYTES];

    out->length = 0;
    if (file == NULL)
        FAIL(ERR_MISSING, "%s has no %s", store->name, name);
    path_of(path, store->name, store->own.step, name);
    TRY(shard_place_read(store->place, path, bytes_most, out));
    TRY(text_append(out, "", 0)); /* an empty file is a text, too */
    if ((int64_t)out->length == file->bytes &&
        crc32c(0, out->bytes, out->length) == file->crc)
        return OK;
    FAIL(ERR_FORMAT, "%s on %s: is damaged", path, store->place->name);
}

status shards_read_file(const struct shard_set *shards, const char *name,
                        size_t bytes_most, struct text *out)
{
    status result = status_fail(ERR_MISSING, __FILE__, __LINE__,
                                "no store has %s", name);

    for (int i = 0; i < shards->count && result != OK; i++) {
        status_clear();
        result = read_file(&shards->stores[i], name, bytes_most, out);
    }
    return result;
}
