/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - which documents are held out. */
#include "data/split.h"

#include <string.h>

#include "base/arena.h"
#include "base/log.h"
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

/* A coin whose first bits are beyond those of the share is not held; the others
 * are looked at. */
static status throw_coins(struct split *split, int64_t documents,
                          const struct split_request *r)
{
    const struct random_key key = random_key_make(r->seed, "data.split");
    const double most = r->share * 0x1p32;
    int64_t room = (int64_t)((double)documents * r->share) + 1024;
    uint32_t tops[RANDOM_MANY];

    TRY(make_room(split, room));
    for (int64_t at = 0; at < documents; at += RANDOM_MANY) {
        const int64_t left = documents - at;
        const int count = left < RANDOM_MANY ? (int)left : RANDOM_MANY;

        random_uniform_tops(key, (uint64_t)at, tops);
        if (split->count + RANDOM_MANY > room)
            TRY(make_room(split, room *= 2));
        for (int i = at == 0; i < count; i++)
            if ((double)tops[i] <= most && is_held(key, r, at + i))
                split->held[split->count++] = at + i;
    }
    return OK;
}

/* Apart from the coins: the processor then waits for several places of the
 * table at once. */
static void count_tokens(struct split *split, const struct token_set *set)
{
    split->before[0] = 0;
    for (int64_t i = 0; i < split->count; i++)
        split->before[i + 1] = split->before[i] +
                               token_set_start(set, split->held[i] + 1) -
                               token_set_start(set, split->held[i]);
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

/* Whether the image is a whole list; then its facts. */
static bool list_whole(const struct file_map *map, uint64_t facts[FACTS])
{
    const size_t head = FACTS * sizeof *facts;
    uint64_t bytes;
    uint32_t crc;

    if (map->length < head + sizeof(int64_t) + sizeof crc) return false;
    memcpy(facts, map->bytes, head);
    if (facts[0] != magic || facts[6] > facts[2] ||
        facts[6] > map->length / 16)
        return false;
    bytes = 2 * facts[6] * sizeof(int64_t);
    if (map->length != head + bytes + sizeof(int64_t) + sizeof crc)
        return false;
    memcpy(&crc, map->bytes + map->length - sizeof crc, sizeof crc);
    return crc32c(0, map->bytes, map->length - sizeof crc) == crc;
}

/* Whether documents rise and are of the set, and so are their tokens: who reads
 * the list relies on it. */
static bool list_sound(const struct split *split, const struct token_set *set)
{
    int64_t next = 0;

    for (int64_t i = 0; i < split->count; i++) {
        if (split->held[i] < next || split->held[i] >= set->documents ||
            split->before[i] < 0 || split->before[i] > split->before[i + 1])
            return false;
        next = split->held[i] + 1;
    }
    return split->before[0] == 0 && split->before[split->count] <= set->tokens;
}

/* A list of another set lies under another name. */
static bool list_read(struct split *split, const struct token_set *set,
                      const struct split_request *r, const char *path)
{
    uint64_t facts[FACTS], expected[FACTS];
    struct file_map map = {0};
    bool read = false;

    if (file_exists(path) && file_map_open(&map, path) == OK &&
        list_whole(&map, facts)) {
        const int64_t count = (int64_t)facts[6];
        const size_t bytes = (size_t)count * sizeof(int64_t);

        facts_of(set, r, count, expected);
        read = memcmp(facts, expected, sizeof facts) == 0 &&
               make_room(split, count) == OK;
        if (read) {
            split->count = count;
            memcpy(split->held, map.bytes + sizeof facts, bytes);
            memcpy(split->before, map.bytes + sizeof facts + bytes,
                   bytes + sizeof(int64_t));
            read = list_sound(split, set);
        }
    }
    if (!read && file_exists(path))
        LOG(WARNING, "data", "%s: the list of held-out documents is damaged; "
            "made again", path);
    file_map_close(&map);
    status_clear();
    return read;
}

status split_verify(const char *path, int64_t *documents, int64_t *tokens)
{
    uint64_t facts[FACTS] = {0};
    struct file_map map = {0};
    bool whole;

    TRY(file_map_open(&map, path));
    whole = list_whole(&map, facts);
    file_map_close(&map);
    if (!whole)
        FAIL(ERR_FORMAT, "damaged: it is not a complete list of held-out "
             "documents");
    *documents = (int64_t)facts[2];
    *tokens = (int64_t)facts[3];
    return OK;
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
    TRY_GOTO(done, result, file_write_cache(path, out.bytes, out.length));
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
    TRY(throw_coins(split, set->documents, r));
    count_tokens(split, set);
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
