/* SPDX-License-Identifier: Apache-2.0 */
/* token_starts.c - where documents begin in a token file that has no table of
 * them: found by one pass, and kept for large files.
 *
 *    offset  bytes
 *         0      8   "LSSTARTS"                  all as this machine has them
 *         8     32   key of the file, end token, tokens, documents d
 *        40      4   CRC-32C of what follows the header
 *        44      4   CRC-32C of bytes 0 to 43
 *        48     16   zero
 *        64  8*(d+1) first token of each document; then the tokens */
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "data/token_foreign.h"

enum {
    HEADER = 64, BODY_CRC = 40, HEADER_CRC = 44,
    LARGE = 64 << 20,        /* bytes; smaller files are split each time */
    DROPPED = 8 << 20,       /* tokens, after which pages are given back */
    LOOKED = 256,            /* tokens; DROPPED is a multiple */
    GPT2_BEGINS = 50256,     /* llm.c: first token of each document */
    LLAMA3_BEGINS = 128000
};
static const char magic[8] = {'L', 'S', 'S', 'T', 'A', 'R', 'T', 'S'};

static void make_header(const struct token_file *file, int32_t end,
                        int64_t documents, unsigned char header[HEADER])
{
    const int64_t facts[4] = {(int64_t)token_file_key(file), end, file->count,
                              documents};

    memset(header, 0, HEADER);
    memcpy(header, magic, sizeof magic);
    memcpy(header + sizeof magic, facts, sizeof facts);
}

static void put_crcs(unsigned char *image, size_t length)
{
    uint32_t crc = crc32c(0, image + HEADER, length - HEADER);

    memcpy(image + BODY_CRC, &crc, sizeof crc);
    crc = crc32c(0, image, HEADER_CRC);
    memcpy(image + HEADER_CRC, &crc, sizeof crc);
}

/* Whether the image is a whole table, of whatever file. */
static bool is_whole(const unsigned char *bytes, size_t length)
{
    uint32_t crc;

    if (length < HEADER || length % sizeof(int64_t) != 0 ||
        memcmp(bytes, magic, sizeof magic) != 0)
        return false;
    memcpy(&crc, bytes + HEADER_CRC, sizeof crc);
    if (crc != crc32c(0, bytes, HEADER_CRC)) return false;
    memcpy(&crc, bytes + BODY_CRC, sizeof crc);
    return crc == crc32c(0, bytes + HEADER, length - HEADER);
}

bool token_starts_parse(struct token_file *file, int32_t end,
                        const unsigned char *bytes, size_t length)
{
    unsigned char expected[HEADER];
    const int64_t *starts = (const int64_t *)(const void *)(bytes + HEADER);
    const int64_t documents = (int64_t)(length / sizeof *starts) -
                              (int64_t)(HEADER / sizeof *starts) - 1;

    if (documents < 1 || !is_whole(bytes, length)) return false;
    make_header(file, end, documents, expected);
    if (memcmp(bytes, expected, BODY_CRC) != 0 || starts[0] != 0 ||
        starts[documents] != file->count)
        return false;
    for (int64_t i = 0; i < documents; i++)
        if (starts[i] >= starts[i + 1]) return false;
    file->found = starts;
    file->documents = documents;
    return true;
}

status token_starts_verify(const char *path, int64_t *documents,
                           int64_t *tokens)
{
    enum { COUNT_AT = 24, DOCUMENTS_AT = 32 };
    struct file_map map = {0};
    bool whole;

    TRY(file_map_open(&map, path));
    whole = is_whole(map.bytes, map.length);
    if (whole) {
        memcpy(tokens, map.bytes + COUNT_AT, sizeof *tokens);
        memcpy(documents, map.bytes + DOCUMENTS_AT, sizeof *documents);
    }
    file_map_close(&map);
    if (!whole)
        FAIL(ERR_FORMAT, "damaged: it is not a complete table of documents "
             "(LSSTARTS)");
    return OK;
}

static bool find_kept(struct token_file *file, int32_t end, const char *path)
{
    bool found = false;

    if (file_exists(path) && file_map_open(&file->starts_map, path) == OK) {
        const struct file_map *map = &file->starts_map;

        found = token_starts_parse(file, end, map->bytes, map->length);
        if (!found && !is_whole(map->bytes, map->length))
            LOG(WARNING, "data", "%s: the documents found in %s, damaged; "
                "made again", path, file->path);
    }
    if (!found) file_map_close(&file->starts_map);
    status_clear();
    return found;
}

/* image: the header's place, then the starts; *room in numbers. */
static status add_start(unsigned char **image, int64_t *room, int64_t index,
                        int64_t start)
{
    const int64_t at = HEADER / (int64_t)sizeof start + index;

    if (at >= *room) {
        const int64_t more = 2 * at + 1024;
        void *grown = *image;

        TRY(memory_grow(&grown, (size_t)more, sizeof start));
        *image = grown;
        *room = more;
    }
    memcpy(*image + (size_t)at * sizeof start, &start, sizeof start);
    return OK;
}

static void part_read(const struct token_file *file, int64_t tokens)
{
    file_map_drop(&file->map);
    if (file->progress != NULL)
        file->progress(file->argument, tokens * file->bytes_per_token);
}

/* Whether one of the tokens [first, first + count), at most LOOKED, is `id`:
 * most stretches have none. */
static bool has(const struct token_file *file, int64_t first, int64_t count,
                int32_t id)
{
    const size_t size = (size_t)file->bytes_per_token;
    const unsigned char *from = file->tokens + (size_t)first * size;
    uint16_t narrow[LOOKED];
    uint32_t middle[LOOKED];
    unsigned any = 0;

    if (size == 2) {
        memcpy(narrow, from, (size_t)count * size);
        _Pragma("omp simd reduction(| : any)") for (
            int64_t i = 0; i < count; i++)
            any |= narrow[i] == id;
        return any != 0;
    }
    if (size != 4) return true;
    memcpy(middle, from, (size_t)count * size);
    _Pragma("omp simd reduction(| : any)") for (int64_t i = 0; i < count; i++)
        any |= middle[i] == (uint32_t)id;
    return any != 0;
}

/* A document begins at each such token, or behind it. */
static status find(struct token_file *file, int32_t end, int64_t *documents)
{
    const bool before = file->layout == TOKENS_LLMC;
    const int64_t behind = before ? 0 : 1;
    int64_t room = 0, count = 0;

    TRY(add_start(&file->found_image, &room, count++, 0));
    if (before) end = file->bytes_per_token == 2 ? GPT2_BEGINS : LLAMA3_BEGINS;
    for (int64_t at = 0; at < file->count; at += LOOKED) {
        const int64_t left = file->count - at;
        const int64_t here = left < LOOKED ? left : LOOKED;

        if (at > 0 && at % DROPPED == 0) part_read(file, DROPPED);
        if (!has(file, at, here, end)) continue;
        for (int64_t i = at; i < at + here; i++) {
            const int64_t start = i + behind;

            if (token_file_at(file, i) == end && start > 0 &&
                start < file->count)
                TRY(add_start(&file->found_image, &room, count++, start));
        }
    }
    part_read(file, file->count - (file->count - 1) / DROPPED * DROPPED);
    TRY(add_start(&file->found_image, &room, count, file->count));
    *documents = count;
    return OK;
}

status token_file_split(struct token_file *file, int32_t end,
                        const char *cache)
{
    const bool kept = cache != NULL && file->length >= LARGE;
    char path[PATH_BYTES];
    int64_t documents;
    size_t length;

    if (file->starts != NULL || file->layout == TOKENS_OWN) return OK;
    if (kept) {
        TRY(token_file_seal_path(file, cache, ".starts", path));
        if (find_kept(file, end, path)) return OK;
    }
    TRY(find(file, end, &documents));
    file->found = (const int64_t *)(const void *)(file->found_image + HEADER);
    file->documents = documents;
    if (!kept) return OK;
    length = HEADER + (size_t)(documents + 1) * sizeof *file->found;
    make_header(file, end, documents, file->found_image);
    put_crcs(file->found_image, length);
    /* A place that cannot be written costs the next opening a pass. */
    if (directory_make(cache) != OK ||
        file_write_cache(path, file->found_image, length) != OK)
        status_clear();
    return OK;
}
