/* SPDX-License-Identifier: Apache-2.0 */
/* token_seal.c - a note that a token file was read and found whole.
 *
 * One line: the version, bytes and time of change of the file and of its
 * table, checksum, largest id. It holds as long as size and time do. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "data/token_file.h"
#include "data/token_foreign.h"
#include "data/token_pages.h"

enum { SEAL_BYTES_MAX = 256, LARGE = 64 << 20 /* bytes: read in 50 ms */ };

struct seal {
    int64_t bytes, changed_ns, table_bytes, table_ns;
    uint32_t crc;
    int64_t largest;
};

static bool facts_of(const char *path, int64_t *bytes, int64_t *changed_ns)
{
    struct stat facts;

    if (stat(path, &facts) != 0) return false;
    *bytes = (int64_t)facts.st_size;
    *changed_ns = (int64_t)facts.st_mtim.tv_sec * 1000000000 +
                  (int64_t)facts.st_mtim.tv_nsec;
    return true;
}

/* Both halves of a pair; a file alone is its own half. */
static bool measure(const struct token_file *file, struct seal *seal)
{
    char other[PATH_BYTES];
    size_t length;

    *seal = (struct seal){.crc = file->crc, .largest = file->largest};
    if (!facts_of(file->path, &seal->bytes, &seal->changed_ns)) return false;
    length = strlen(file->path);
    if (length + 8 > sizeof other) return false;
    memcpy(other, file->path, length + 1);
    if (file->layout == TOKENS_NANOSET)
        memcpy(other + length, ".index", 7);
    else if (file->layout == TOKENS_MEGATRON)
        memcpy(other + length - 3,
               text_ends_with(file->path, ".idx") ? "bin" : "idx", 3);
    else
        return true;
    return facts_of(other, &seal->table_bytes, &seal->table_ns);
}

/* cache NULL: beside the file. */
status token_file_seal_path(const struct token_file *file, const char *cache,
                            const char *ending, char out[PATH_BYTES])
{
    char hex[65], name[32];

    if (cache == NULL) {
        if (snprintf(out, PATH_BYTES, "%s.seal%s", file->path, ending) >=
            PATH_BYTES)
            FAIL(ERR_CONFIG, "%.60s...: the path is too long", file->path);
        return OK;
    }
    sha256_hex(file->path, strlen(file->path), hex);
    snprintf(name, sizeof name, "%.16s.seal%s", hex, ending);
    return path_join(out, PATH_BYTES, cache, name);
}

static bool seal_read(const struct token_file *file, const char *cache,
                      struct seal *seal)
{
    char path[PATH_BYTES];
    struct text text = {0};
    int version = 0;
    bool read = false;

    if (token_file_seal_path(file, cache, "", path) == OK &&
        file_exists(path) &&
        file_read_regular(path, SEAL_BYTES_MAX, &text) == OK)
        read = sscanf(text.bytes,
                      "lockstep-seal %d %" SCNd64 " %" SCNd64 " %" SCNd64
                      " %" SCNd64 " %" SCNx32 " %" SCNd64, &version,
                      &seal->bytes, &seal->changed_ns, &seal->table_bytes,
                      &seal->table_ns, &seal->crc, &seal->largest) == 7;
    text_free(&text);
    status_clear();
    return read && version == 1;
}

static bool holds(const struct token_file *file, const char *cache,
                  const struct seal *now, struct seal *seal)
{
    return seal_read(file, cache, seal) && seal->bytes == now->bytes &&
           seal->changed_ns == now->changed_ns &&
           seal->table_bytes == now->table_bytes &&
           seal->table_ns == now->table_ns &&
           (file->layout != TOKENS_OWN || seal->crc == file->crc);
}

/* The system's times of change come in ticks of some milliseconds. A file that
 * was written in this tick could be written again with the same time. */
static void wait_for_tick(const struct seal *seal)
{
    const struct timespec tick = {.tv_nsec = 20000000};
    const int64_t last = seal->changed_ns > seal->table_ns ? seal->changed_ns
                                                           : seal->table_ns;

    if (clock_wall_ns() - last < tick.tv_nsec)
        nanosleep(&tick, NULL);
}

status token_file_seal(const struct token_file *file, const char *cache)
{
    char path[PATH_BYTES], line[SEAL_BYTES_MAX];
    struct seal seal;

    if (!measure(file, &seal))
        FAIL(ERR_IO, "%s: its time of change cannot be read", file->path);
    wait_for_tick(&seal);
    TRY(token_file_seal_path(file, cache, "", path));
    if (cache != NULL) TRY(directory_make(cache));
    const int length = snprintf(
        line, sizeof line, "lockstep-seal 1 %" PRId64 " %" PRId64 " %" PRId64
        " %" PRId64 " %08" PRIx32 " %" PRId64 "\n", seal.bytes,
        seal.changed_ns, seal.table_bytes, seal.table_ns, seal.crc,
        seal.largest);

    return file_write_atomic(path, line, (size_t)length);
}

status token_file_compare(const struct token_file *file, const char *cache)
{
    struct seal now, seal;

    if (!measure(file, &now) || (!seal_read(file, NULL, &seal) &&
                                 (cache == NULL ||
                                  !seal_read(file, cache, &seal))))
        return OK;
    if (seal.bytes != now.bytes || seal.table_bytes != now.table_bytes)
        FAIL(ERR_FORMAT, "%s: has %" PRId64 " bytes and had %" PRId64 " when "
             "it was sealed", file->path, now.bytes + now.table_bytes,
             seal.bytes + seal.table_bytes);
    if (seal.crc != now.crc)
        FAIL(ERR_FORMAT, "%s: the checksum is %08" PRIx32 " and was %08" PRIx32
             " when the file was sealed", file->path, now.crc, seal.crc);
    return OK;
}

bool token_file_sealed(struct token_file *file, const char *cache)
{
    struct seal now, seal;

    if (!measure(file, &now) ||
        (!holds(file, NULL, &now, &seal) &&
         (cache == NULL || !holds(file, cache, &now, &seal))))
        return false;
    file->crc = seal.crc;
    file->largest = seal.largest;
    return true;
}

/* A file that had a seal was changed since: that is to be known at once. */
static bool was_sealed(const struct token_file *file, const char *cache)
{
    struct seal seal;

    return seal_read(file, NULL, &seal) ||
           (cache != NULL && seal_read(file, cache, &seal));
}

/* Other pages at each opening; which ones changes no result. */
static uint64_t draw_now(void)
{
    return (uint64_t)clock_wall_ns();
}

status token_file_trust(struct token_file *file, const char *cache,
                        enum token_trust trust)
{
    if (token_file_sealed(file, cache)) {
        token_pages_find(file, cache);
        return token_pages_check(file, draw_now());
    }
    if (trust == TRUST_LATER && file->length >= LARGE &&
        !was_sealed(file, cache)) {
        TRY(token_file_verify_table(file));
        file->unread = true;
        return OK;
    }
    TRY(token_file_verify(file));
    /* A place that cannot be written costs the next opening a pass. */
    if (token_file_seal(file, cache) != OK ||
        token_pages_keep(file, cache) != OK)
        status_clear();
    return OK;
}

uint64_t token_key(const void *facts, size_t bytes)
{
    char hex[65];

    sha256_hex(facts, bytes, hex);
    hex[16] = '\0';
    return strtoull(hex, NULL, 16);
}

uint64_t token_file_key(const struct token_file *file)
{
    struct seal now;

    if (file->layout == TOKENS_OWN || !measure(file, &now)) return file->crc;
    const int64_t facts[5] = {now.bytes, now.changed_ns, now.table_bytes,
                              now.table_ns, (int64_t)file->layout};

    return token_key(facts, sizeof facts);
}
