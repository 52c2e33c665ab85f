/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - which documents are held out. */
#include "data/split.h"

#include <string.h>

#include "base/arena.h"
#include "base/random.h"

/* Sets with fewer documents throw their coins each time. */
enum { KEPT_DOCUMENTS = 1 << 18, FACTS = 8 };
static const uint64_t magic = UINT64_C(0x314C50534B434F4C);

/* Room for the numbers of `count` documents. */
static status make_room(struct split *split, int64_t count)
{
    void *memory = split->held;

    TRY(memory_grow(&memory, (size_t)count + 1, sizeof(int64_t)));
    split->held = memory;
    memory = split->before;
    TRY(memory_grow(&memory, (size_t)count + 1, sizeof(int64_t)));
    split->before = memory;
    return OK;
}

static bool is_held(struct random_key key, const struct split_request *r,
                    int64_t document)
{
    return random_uniform(key, (uint64_t)document) < r->share;
}

static status throw_coins(struct split *split, const struct token_set *set,
                          const struct split_request *r)
{
    const struct random_key key = random_key_make(r->seed, "data.split");
    int64_t room = (int64_t)((double)set->documents * r->share) + 1024;

    TRY(make_room(split, room));
    split->before[0] = 0;
    for (int64_t i = 1; i < set->documents; i++) {
        int64_t *before;

        if (!is_held(key, r, i)) continue;
        if (split->count == room) TRY(make_room(split, room *= 2));
        before = &split->before[split->count];
        before[1] = before[0] + token_set_start(set, i + 1) -
                    token_set_start(set, i);
        split->held[split->count++] = i;
    }
    return OK;
}

/* ---- the list in a file: facts, held, before, CRC-32C ---- */

static void facts_of(const struct token_set *set,
                     const struct split_request *r, int64_t count,
                     uint64_t facts[FACTS])
{
    memset(facts, 0, FACTS * sizeof *facts);
    facts[0] = magic;
    facts[1] = set->key;
    facts[2] = (uint64_t)set->documents;
    facts[3] = (uint64_t)set->tokens;
    facts[4] = r->seed;
    memcpy(&facts[5], &r->share, sizeof r->share);
    facts[6] = (uint64_t)count;
}

static status list_path(const struct token_set *set,
                        const struct split_request *r, char path[PATH_BYTES])
{
    uint64_t facts[FACTS];
    char hex[65], name[32];

    facts_of(set, r, 0, facts);
    sha256_hex(facts, sizeof facts, hex);
    snprintf(name, sizeof name, "%.16s.split", hex);
    return path_join(path, PATH_BYTES, r->cache, name);
}

/* A list that is not whole or not of this set is thrown again. */
static bool list_parse(struct split *split, const struct token_set *set,
                       const struct split_request *r,
                       const struct file_map *map)
{
    uint64_t facts[FACTS], expected[FACTS];
    uint32_t crc;
    size_t bytes;

    if (map->length < sizeof facts + sizeof(int64_t) + sizeof crc)
        return false;
    memcpy(facts, map->bytes, sizeof facts);
    facts_of(set, r, (int64_t)facts[6], expected);
    if (memcmp(facts, expected, sizeof facts) != 0 ||
        facts[6] > (uint64_t)set->documents || facts[6] > map->length / 16)
        return false;
    bytes = (size_t)facts[6] * sizeof(int64_t);
    if (map->length != sizeof facts + 2 * bytes + sizeof(int64_t) + sizeof crc)
        return false;
    memcpy(&crc, map->bytes + map->length - sizeof crc, sizeof crc);
    if (crc32c(0, map->bytes, map->length - sizeof crc) != crc) return false;
    if (make_room(split, (int64_t)facts[6]) != OK) return false;
    split->count = (int64_t)facts[6];
    memcpy(split->held, map->bytes + sizeof facts, bytes);
    memcpy(split->before, map->bytes + sizeof facts + bytes,
           bytes + sizeof(int64_t));
    return true;
}

static bool list_read(struct split *split, const struct token_set *set,
                      const struct split_request *r, const char *path)
{
    struct file_map map = {0};
    bool read = false;

    if (file_exists(path) && file_map_open(&map, path) == OK)
        read = list_parse(split, set, r, &map);
    file_map_close(&map);
    status_clear();
    return read;
}

static status list_write(const struct split *split,
                         const struct token_set *set,
                         const struct split_request *r, const char *path)
{
    const size_t bytes = (size_t)split->count * sizeof(int64_t);
    uint64_t facts[FACTS];
    struct text out = {0};
    uint32_t crc;
    status result;

    facts_of(set, r, split->count, facts);
    TRY_GOTO(done, result, text_append(&out, facts, sizeof facts));
    TRY_GOTO(done, result, text_append(&out, split->held, bytes));
    TRY_GOTO(done, result,
             text_append(&out, split->before, bytes + sizeof(int64_t)));
    crc = crc32c(0, out.bytes, out.length);
    TRY_GOTO(done, result, text_append(&out, &crc, sizeof crc));
    TRY_GOTO(done, result, directory_make(r->cache));
    TRY_GOTO(done, result, file_write_atomic(path, out.bytes, out.length));
done:
    text_free(&out);
    return result;
}

status split_build(struct split *split, const struct token_set *set,
                   const struct split_request *r)
{
    const bool kept = r->cache != NULL && set->documents >= KEPT_DOCUMENTS;
    char path[PATH_BYTES];

    *split = (struct split){0};
    if (kept) {
        TRY(list_path(set, r, path));
        if (list_read(split, set, r, path)) return OK;
        split_free(split);
    }
    TRY(throw_coins(split, set, r));
    /* A place that cannot be written costs the next opening a pass. */
    if (kept && list_write(split, set, r, path) != OK) status_clear();
    return OK;
}

void split_free(struct split *split)
{
    memory_free(split->held);
    memory_free(split->before);
    *split = (struct split){0};
}

/* held[h] - h is the number of documents that train before held[h]. */
int64_t split_held_before(const struct split *split, int64_t k)
{
    int64_t low = 0, high = split->count;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;

        if (split->held[middle] - middle > k) high = middle;
        else low = middle + 1;
    }
    return low;
}

int64_t split_trained(const struct split *split, int64_t k)
{
    return k + split_held_before(split, k);
}
