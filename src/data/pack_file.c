/* SPDX-License-Identifier: Apache-2.0 */
/* pack_file.c - which fragments share a sample, kept in a file that is
 * mapped. */
#include "data/pack_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/mapped_files.h"

enum { HEADER = 128, FACTS_AT = 8, TOTALS_AT = 72, CRC_AT = 96, BLOCK = 4096 };
static const char magic[8] = {'L', 'S', 'P', 'A', 'C', 'K', '0', '1'};
_Static_assert(sizeof(struct pack_facts) == TOTALS_AT - FACTS_AT, "header");
_Static_assert(sizeof(struct pack_fragment) == 16, "fragments");

static void name_of(const struct pack_facts *facts, char name[32])
{
    char hex[65];

    sha256_hex(facts, sizeof *facts, hex);
    snprintf(name, 32, "%.16s.pack", hex);
}

status pack_file_path(const struct pack_facts *facts, const char *cache,
                      char out[PATH_BYTES])
{
    char name[32];

    name_of(facts, name);
    return path_join(out, PATH_BYTES, cache, name);
}

/* Bytes behind the header that have checksums. */
static uint64_t body_bytes(uint64_t samples, uint64_t fragments)
{
    return sizeof(struct pack_fragment) * fragments +
           sizeof(int64_t) * (samples + 1);
}

static uint64_t blocks_of(uint64_t body)
{
    return (body + BLOCK - 1) / BLOCK;
}

/* ---- reading ---- */

bool pack_file_parse(struct pack *pack, const struct pack_facts *facts,
                     const unsigned char *bytes, size_t length)
{
    uint64_t totals[3], body;
    uint32_t crc;

    *pack = (struct pack){0};
    if (length < HEADER || memcmp(bytes, magic, sizeof magic) != 0 ||
        memcmp(bytes + FACTS_AT, facts, sizeof *facts) != 0)
        return false;
    memcpy(&crc, bytes + CRC_AT, sizeof crc);
    if (crc != crc32c(0, bytes, CRC_AT)) return false;
    memcpy(totals, bytes + TOTALS_AT, sizeof totals);
    if (totals[0] > length / 8 || totals[1] > length / 16 ||
        totals[2] > INT64_MAX)
        return false;
    body = body_bytes(totals[0], totals[1]);
    if (length != HEADER + body + 4 * blocks_of(body)) return false;
    pack->samples = (int64_t)totals[0];
    pack->fragment_count = (int64_t)totals[1];
    pack->padding = (int64_t)totals[2];
    pack->sequence = (int64_t)facts->sequence;
    pack->tokens = (int64_t)facts->tokens;
    pack->image = bytes;
    pack->fragments = (struct pack_fragment *)(uintptr_t)(bytes + HEADER);
    pack->first = (int64_t *)(uintptr_t)(bytes + HEADER +
                                         sizeof(struct pack_fragment) *
                                             totals[1]);
    return true;
}

static status damaged(int64_t sample, const char *what)
{
    FAIL(ERR_FORMAT, "damaged at sample %lld: %s", (long long)sample, what);
}

/* Checksums of the blocks that hold [at, at + length) of the body. */
static bool whole(const struct pack *pack, uint64_t at, uint64_t length)
{
    const uint64_t body = body_bytes((uint64_t)pack->samples,
                                     (uint64_t)pack->fragment_count);
    const unsigned char *crcs = pack->image + HEADER + body;

    for (uint64_t b = at / BLOCK; b * BLOCK < at + length; b++) {
        const uint64_t left = body - b * BLOCK;
        uint32_t crc;

        memcpy(&crc, crcs + 4 * b, sizeof crc);
        if (crc != crc32c(0, pack->image + HEADER + b * BLOCK,
                          left < BLOCK ? (size_t)left : BLOCK))
            return false;
    }
    return true;
}

status pack_file_check(const struct pack *pack, int64_t sample)
{
    const uint64_t firsts = sizeof(struct pack_fragment) *
                            (uint64_t)pack->fragment_count;
    int64_t from, to, left = pack->sequence;

    if (pack->image == NULL) return OK;
    if (!whole(pack, firsts + 8 * (uint64_t)sample, 16))
        return damaged(sample, "a checksum of its table is wrong");
    from = pack->first[sample];
    to = pack->first[sample + 1];
    if (from < 0 || from > to || to > pack->fragment_count ||
        to - from > pack->sequence)
        return damaged(sample, "its fragments are out of order");
    if (!whole(pack, 16 * (uint64_t)from, 16 * (uint64_t)(to - from)))
        return damaged(sample, "a checksum of its fragments is wrong");
    for (int64_t i = from; i < to; i++) {
        const struct pack_fragment *fragment = &pack->fragments[i];

        if (fragment->count < 1 || fragment->count > left || fragment->at < 0 ||
            fragment->at > pack->tokens - fragment->count)
            return damaged(sample, "a fragment lies outside the tokens");
        left -= fragment->count;
    }
    return OK;
}

static bool map_file(struct pack *pack, const struct pack_facts *facts,
                     const char *path)
{
    struct file_map map = {0};
    bool whole_file = false;

    if (file_exists(path) && file_map_open(&map, path) == OK)
        whole_file = pack_file_parse(pack, facts, map.bytes, map.length);
    status_clear();
    if (whole_file) pack->map = map;
    else file_map_close(&map);
    return whole_file;
}

/* Checks the parts of the header that pack_file_parse needs, against the facts
 * that it has. */
static status verify_image(const struct file_map *map,
                           struct pack_facts *facts)
{
    struct pack pack;
    status result = OK;

    if (map->length < HEADER || memcmp(map->bytes, magic, sizeof magic) != 0)
        FAIL(ERR_FORMAT, "%zu bytes without the header of packed samples "
             "(LSPACK01)", map->length);
    memcpy(facts, map->bytes + FACTS_AT, sizeof *facts);
    if (facts->sequence < 1 || facts->sequence > INT64_MAX ||
        facts->tokens > INT64_MAX ||
        !pack_file_parse(&pack, facts, map->bytes, map->length))
        FAIL(ERR_FORMAT, "damaged: the header or a length is wrong");
    for (int64_t s = 0; s < pack.samples && result == OK; s++)
        result = pack_file_check(&pack, s);
    if (result == OK &&
        !whole(&pack, 0, body_bytes((uint64_t)pack.samples,
                                    (uint64_t)pack.fragment_count)))
        FAIL(ERR_FORMAT, "damaged: a checksum is wrong");
    return result;
}

status pack_file_verify(const char *path, struct pack_facts *facts)
{
    struct file_map map = {0};
    char name[32];
    status result;

    TRY(file_map_open(&map, path));
    result = verify_image(&map, facts);
    file_map_close(&map);
    TRY(result);
    name_of(facts, name);
    if (!text_ends_with(path, name))
        FAIL(ERR_FORMAT, "holds what belongs into %s", name);
    return OK;
}

/* ---- writing ---- */

/* Fragments go into the file at once; the table of samples, and the checksums
 * of what is written, wait in files that have no name. */
struct writing {
    char temporary[PATH_BYTES];
    FILE *file, *firsts, *crcs; /* owned */
    uint32_t crc;               /* of the block that is not full */
    uint64_t bytes;             /* of the body so far */
};

static status put(struct writing *w, const void *from, size_t length)
{
    const unsigned char *at = from;

    if (fwrite(from, 1, length, w->file) != length)
        FAIL(ERR_IO, "%s: %s", w->temporary, strerror(errno));
    while (length > 0) {
        const size_t room = BLOCK - (size_t)(w->bytes % BLOCK);
        const size_t count = length < room ? length : room;

        w->crc = crc32c(w->crc, at, count);
        w->bytes += count;
        at += count;
        length -= count;
        if (w->bytes % BLOCK != 0) continue;
        if (fwrite(&w->crc, 1, sizeof w->crc, w->crcs) != sizeof w->crc)
            FAIL(ERR_IO, "%s: %s", w->temporary, strerror(errno));
        w->crc = 0;
    }
    return OK;
}

static status take(void *sink, const struct pack *window, int64_t before)
{
    struct writing *w = sink;
    const size_t count = (size_t)window->samples;

    for (size_t i = 0; i < count; i++) window->first[i] += before;
    TRY(put(w, window->fragments,
            sizeof *window->fragments * (size_t)window->fragment_count));
    if (fwrite(window->first, sizeof *window->first, count, w->firsts) !=
        count)
        FAIL(ERR_IO, "%s: %s", w->temporary, strerror(errno));
    return OK;
}

/* Appends the waiting parts: `counted`, with checksums of their own. */
static status append(struct writing *w, FILE *from, bool counted)
{
    unsigned char bytes[BLOCK];
    size_t got;

    rewind(from);
    while ((got = fread(bytes, 1, sizeof bytes, from)) > 0) {
        if (counted) {
            TRY(put(w, bytes, got));
        } else if (fwrite(bytes, 1, got, w->file) != got) {
            FAIL(ERR_IO, "%s: %s", w->temporary, strerror(errno));
        }
    }
    if (ferror(from)) FAIL(ERR_IO, "%s: %s", w->temporary, strerror(errno));
    return OK;
}

static status finish(struct writing *w, const struct pack *pack,
                     const struct pack_facts *facts)
{
    const int64_t totals[3] = {pack->samples, pack->fragment_count,
                               pack->padding};
    unsigned char header[HEADER] = {0};
    uint32_t crc;

    TRY(append(w, w->firsts, true));
    TRY(put(w, &pack->fragment_count, sizeof pack->fragment_count));
    if (w->bytes % BLOCK != 0 &&
        fwrite(&w->crc, 1, sizeof w->crc, w->crcs) != sizeof w->crc)
        FAIL(ERR_IO, "%s: %s", w->temporary, strerror(errno));
    TRY(append(w, w->crcs, false));
    memcpy(header, magic, sizeof magic);
    memcpy(header + FACTS_AT, facts, sizeof *facts);
    memcpy(header + TOTALS_AT, totals, sizeof totals);
    crc = crc32c(0, header, CRC_AT);
    memcpy(header + CRC_AT, &crc, sizeof crc);
    if (fseek(w->file, 0, SEEK_SET) != 0 ||
        fwrite(header, 1, sizeof header, w->file) != sizeof header ||
        fflush(w->file) != 0 || fsync(fileno(w->file)) != 0)
        FAIL(ERR_IO, "%s: %s", w->temporary, strerror(errno));
    return OK;
}

/* In the directory of the index: what is temporary elsewhere may be memory. */
static status nameless(const char *path, FILE **file)
{
    char name[PATH_BYTES];

    TRY(file_temporary_name(path, name));
    TRY(file_create(name, file));
    unlink(name);
    return OK;
}

static status write_file(struct writing *w, const struct pack_source *source,
                         const struct pack_facts *facts, const char *path)
{
    static const unsigned char empty[HEADER];
    struct pack_source windows = *source;
    struct pack pack = {0};
    status result = OK;

    TRY(file_temporary_name(path, w->temporary));
    TRY(file_create(w->temporary, &w->file));
    TRY(nameless(path, &w->firsts));
    TRY(nameless(path, &w->crcs));
    if (fwrite(empty, 1, HEADER, w->file) != HEADER)
        FAIL(ERR_IO, "%s: %s", w->temporary, strerror(errno));
    windows.take = take;
    windows.sink = w;
    TRY_GOTO(done, result, pack_build(&pack, &windows));
    TRY_GOTO(done, result, finish(w, &pack, facts));
    TRY_GOTO(done, result, mapped_check());
    if (rename(w->temporary, path) != 0)
        FAIL_GOTO(done, result, ERR_IO, "%s: %s", path, strerror(errno));
    w->temporary[0] = '\0';
done:
    pack_free(&pack);
    return result;
}

static void writing_free(struct writing *w)
{
    if (w->file != NULL) fclose(w->file);
    if (w->firsts != NULL) fclose(w->firsts);
    if (w->crcs != NULL) fclose(w->crcs);
    if (w->temporary[0] != '\0') unlink(w->temporary);
}

/* *kept false: there is no place for it. */
static status make_file(struct pack *pack, const struct pack_source *source,
                        const struct pack_facts *facts, const char *path,
                        bool *kept)
{
    struct writing writing = {0};
    const status result = write_file(&writing, source, facts, path);

    writing_free(&writing);
    if (result == ERR_MEMORY) return result;
    /* A place that cannot be written costs the next opening a pass. */
    if (result != OK) status_clear();
    *kept = result == OK && map_file(pack, facts, path);
    return OK;
}

status pack_file_open(struct pack *pack, const struct pack_source *source,
                      const struct pack_facts *facts, const char *cache,
                      bool *kept)
{
    char path[PATH_BYTES];

    TRY(pack_file_path(facts, cache, path));
    *kept = map_file(pack, facts, path);
    if (*kept) return OK;
    if (file_exists(path))
        LOG(WARNING, "data", "%s: packed samples, damaged: the header or a "
            "length is wrong; the file is made again", path);
    if (directory_make(cache) != OK) status_clear();
    return make_file(pack, source, facts, path, kept);
}

status pack_file_renew(struct pack *pack, const struct pack_source *source,
                       const struct pack_facts *facts, const char *cache,
                       int64_t sample)
{
    const int64_t samples = pack->samples;
    char path[PATH_BYTES];
    bool kept;

    TRY(pack_file_path(facts, cache, path));
    LOG(WARNING, "data", "%s: packed samples, %s; made again", path,
        status_message());
    status_clear();
    pack_free(pack);
    kept = map_file(pack, facts, path) && pack_file_check(pack, sample) == OK;
    status_clear();
    if (!kept) {
        pack_free(pack);
        TRY(make_file(pack, source, facts, path, &kept));
    }
    if (!kept) TRY(pack_build(pack, source));
    if (pack->samples != samples)
        FAIL(ERR_FORMAT, "%s: %lld packed samples, and %lld when they are "
             "packed again; remove the file and begin a new run", path,
             (long long)samples, (long long)pack->samples);
    return OK;
}
