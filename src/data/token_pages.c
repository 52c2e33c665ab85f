/* SPDX-License-Identifier: Apache-2.0 */
/* token_pages.c - checksums of the pages of a token file. */
#include "data/token_pages.h"

#include <string.h>

#include "base/arena.h"
#include "data/little_endian.h"

enum { HEAD = 32, PAGES_FILE_MOST = 1 << 28 };
static const char magic[8] = {'L', 'S', 'P', 'A', 'G', 'E', 'S', '1'};

static status push(struct token_pages *pages)
{
    if (pages->count == pages->room) {
        const int64_t room = 2 * pages->room + 16;
        void *grown = pages->crcs;

        TRY(memory_grow(&grown, (size_t)room, sizeof *pages->crcs));
        pages->crcs = grown;
        pages->room = room;
    }
    pages->total = crc32c_combine(pages->total, pages->crc, pages->bytes);
    pages->crcs[pages->count++] = pages->crc;
    pages->crc = 0;
    pages->bytes = 0;
    return OK;
}

status token_pages_feed(struct token_pages *pages, const void *bytes,
                        size_t length)
{
    const unsigned char *at = bytes;

    while (length > 0) {
        const size_t room = TOKEN_PAGE_BYTES - pages->bytes;
        const size_t here = length < room ? length : room;

        pages->crc = crc32c(pages->crc, at, here);
        pages->bytes += here;
        at += here;
        length -= here;
        if (pages->bytes == TOKEN_PAGE_BYTES) TRY(push(pages));
    }
    return OK;
}

status token_pages_end(struct token_pages *pages)
{
    return pages->bytes > 0 ? push(pages) : OK;
}

void token_pages_free(struct token_pages *pages)
{
    memory_free(pages->crcs);
    *pages = (struct token_pages){0};
}

/* ---- the file ---- */

static void store(char *at, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++) at[i] = (char)(value >> 8 * i);
}

status token_pages_keep(const struct token_file *file, const char *cache)
{
    const struct token_pages *pages = &file->pages;
    char path[PATH_BYTES], head[HEAD] = "", number[4];
    struct text text = {0};
    status result;

    if (pages->count == 0) return OK;
    TRY(token_file_seal_path(file, cache, ".pages", path));
    memcpy(head, magic, sizeof magic);
    store(head + 8, 8, (uint64_t)pages->count);
    store(head + 16, 4, file->crc);
    TRY_GOTO(done, result, text_append(&text, head, HEAD));
    for (int64_t i = 0; i < pages->count; i++) {
        store(number, 4, pages->crcs[i]);
        TRY_GOTO(done, result, text_append(&text, number, 4));
    }
    store(number, 4, crc32c(0, text.bytes, text.length));
    TRY_GOTO(done, result, text_append(&text, number, 4));
    result = file_write_cache(path, text.bytes, text.length);
done:
    text_free(&text);
    return result;
}

/* Bytes of the file that pages cover. */
static size_t first_byte(const struct token_file *file)
{
    return file->layout == TOKENS_OWN
               ? (size_t)(file->tokens - file->image) : 0;
}

static bool is_theirs(const struct token_file *file, const struct text *text)
{
    const size_t covered = file->length - first_byte(file);
    const uint64_t count = (covered + TOKEN_PAGE_BYTES - 1) / TOKEN_PAGE_BYTES;
    const unsigned char *bytes = (const unsigned char *)text->bytes;

    return text->length == HEAD + 4 * count + 4 &&
           memcmp(bytes, magic, sizeof magic) == 0 &&
           load_u64(bytes + 8) == count && load_u32(bytes + 16) == file->crc &&
           load_u32(bytes + text->length - 4) ==
               crc32c(0, bytes, text->length - 4);
}

static bool read_kept(struct token_file *file, const char *cache)
{
    char path[PATH_BYTES];
    struct text text = {0};
    bool found = false;
    void *memory;

    if (token_file_seal_path(file, cache, ".pages", path) == OK &&
        file_exists(path) && file_read(path, PAGES_FILE_MOST, &text) == OK &&
        is_theirs(file, &text)) {
        const int64_t count = (int64_t)(text.length - HEAD) / 4 - 1;

        if (memory_take((size_t)count + 1, sizeof *file->pages.crcs,
                        &memory) == OK) {
            token_pages_free(&file->pages);
            file->pages.crcs = memory;
            for (int64_t i = 0; i < count; i++)
                file->pages.crcs[i] = (uint32_t)load_u32(
                    (const unsigned char *)text.bytes + HEAD + 4 * i);
            file->pages.count = file->pages.room = count;
            found = true;
        }
    }
    text_free(&text);
    status_clear();
    return found;
}

void token_pages_find(struct token_file *file, const char *cache)
{
    if (file->pages.count == 0 && !read_kept(file, NULL) && cache != NULL)
        (void)read_kept(file, cache);
}

/* ---- comparing ---- */

static status check_page(const struct token_file *file, int64_t page)
{
    const size_t from = first_byte(file) + (size_t)page * TOKEN_PAGE_BYTES;
    const size_t left = file->length - from;
    const size_t bytes = left < TOKEN_PAGE_BYTES ? left : TOKEN_PAGE_BYTES;
    const uint32_t crc = crc32c(0, file->image + from, bytes);

    file_map_drop(&file->map);
    if (crc == file->pages.crcs[page]) return OK;
    FAIL(ERR_FORMAT, "%s: bytes %zu to %zu are not what they were when the "
         "file was sealed (checksum %08x, it was %08x), though size and time "
         "of change are; make it again from its text", file->path, from,
         from + bytes - 1, crc, file->pages.crcs[page]);
}

static uint64_t next_draw(uint64_t draw)
{
    return draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

/* Page `index` of all files. */
static status check_nth(const struct token_file *files, int64_t index)
{
    while (index >= files->pages.count) index -= files++->pages.count;
    return check_page(files, index);
}

status token_pages_check_all(const struct token_file *files, int count,
                             uint64_t draw)
{
    int64_t pages = 0;

    for (int i = 0; i < count; i++) pages += files[i].pages.count;
    if (pages <= TOKEN_PAGES_AT_ONCE) {
        for (int64_t i = 0; i < pages; i++) TRY(check_nth(files, i));
        return OK;
    }
    for (int i = 0; i < TOKEN_PAGES_AT_ONCE; i++) {
        draw = next_draw(draw);
        TRY(check_nth(files, (int64_t)((draw >> 16) % (uint64_t)pages)));
    }
    return OK;
}

status token_pages_check(const struct token_file *file, uint64_t draw)
{
    return token_pages_check_all(file, 1, draw);
}
