/* SPDX-License-Identifier: Apache-2.0 */
/* token_file.c - tokenised documents on disk, mapped for reading. */
#include "data/token_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fault.h"
#include "base/mapped_files.h"
#include "base/temporaries.h"
#include "data/little_endian.h"
#include "data/token_foreign.h"
#include "data/token_pages.h"

enum {
    HEADER_BYTES = 192,
    DIGEST_LENGTH = 64,
    TOKENS_AT_ONCE = 4096,
    READ_BYTES = 16 << 20
};
static const char magic[8] = {'L', 'S', 'T', 'O', 'K', 'E', 'N', '1'};

static void store(unsigned char *at, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> 8 * i);
}

/* ---- reading ---- */

static status bad(const struct token_file *file, const char *what)
{
    FAIL(ERR_FORMAT, "%s: %s; make it again from its text", file->path, what);
}

static status read_header(struct token_file *file, const unsigned char *h,
                          size_t length)
{
    uint64_t count, documents, body, mask;

    if (length < HEADER_BYTES || memcmp(h, magic, sizeof magic) != 0)
        return bad(file, "is not a token file (LSTOKEN1)");
    if (crc32c(0, h, 180) != load_u32(h + 180))
        return bad(file, "the header's checksum is wrong");
    file->bytes_per_token = (int)load_u32(h + 8);
    file->end_token = (int32_t)load_u32(h + 12);
    count = load_u64(h + 24);
    documents = load_u64(h + 32);
    file->vocab = (int64_t)load_u64(h + 16);
    file->crc = (uint32_t)load_u32(h + 176);
    file->text_bytes = (int64_t)load_u64(h + 40);
    memcpy(file->tokenizer, h + 48, DIGEST_LENGTH);
    memcpy(file->source, h + 112, DIGEST_LENGTH);
    if ((file->bytes_per_token != 2 && file->bytes_per_token != 4) ||
        file->vocab < 1 || file->vocab > INT32_MAX || count > length ||
        documents > count || file->end_token < 0 ||
        file->end_token >= file->vocab)
        return bad(file, "the header holds impossible numbers");
    body = (count * (uint64_t)file->bytes_per_token + 7) / 8 * 8;
    if (load_u64(h + 184) > 1) return bad(file, "the header has unknown flags");
    mask = load_u64(h + 184) == 1 ? (count + 7) / 8 : 0;
    if (length != HEADER_BYTES + body + 8 * (documents + 1) + mask)
        return bad(file, "the length does not match the header (truncated or "
                         "changed)");
    file->count = (int64_t)count;
    file->documents = (int64_t)documents;
    file->tokens = h + HEADER_BYTES;
    file->starts = file->tokens + body;
    if (mask > 0) file->mask = file->starts + 8 * (documents + 1);
    if (token_file_start(file, 0) != 0 ||
        token_file_start(file, file->documents) != file->count)
        return bad(file, "the table of documents does not span the tokens");
    return OK;
}

status token_file_parse(struct token_file *file, const unsigned char *bytes,
                        size_t length)
{
    file->image = bytes;
    file->length = length;
    TRY(read_header(file, bytes, length));
    file->largest = file->vocab - 1;
    return OK;
}

status token_file_open(struct token_file *file, const char *path)
{
    *file = (struct token_file){.path = path};
    if (token_foreign_is(path, true)) {
        TRY(token_foreign_open(file, path));
        return OK;
    }
    TRY(file_map_open(&file->map, path));
    return token_file_parse(file, file->map.bytes, file->map.length);
}

bool token_file_is(const char *path, bool named)
{
    return text_ends_with(path, ".tokens") || token_foreign_is(path, named);
}

void token_file_close(struct token_file *file)
{
    file_map_close(&file->map);
    file_map_close(&file->table);
    file_map_close(&file->starts_map);
    memory_free(file->found_image);
    token_pages_free(&file->pages);
    *file = (struct token_file){0};
}

int32_t token_file_at(const struct token_file *file, int64_t index)
{
    const unsigned char *at = file->tokens + index * file->bytes_per_token;
    const uint32_t low = (uint32_t)at[0] | (uint32_t)at[1] << 8;
    uint64_t id;

    if (file->bytes_per_token == 2) return (int32_t)low;
    id = load_bytes(at, file->bytes_per_token);
    return id > INT32_MAX ? -1 : (int32_t)id;
}

int64_t token_file_start(const struct token_file *file, int64_t index)
{
    const uint64_t start = file->layout != TOKENS_OWN
                               ? token_foreign_start(file, index)
                               : load_u64(file->starts + 8 * index);

    return start > (uint64_t)file->count ? file->count : (int64_t)start;
}

bool token_file_learned(const struct token_file *file, int64_t index)
{
    return file->mask == NULL ||
           (file->mask[index / 8] >> index % 8 & 1) != 0;
}

/* ---- reading it whole ---- */

static uint64_t id_at(const struct token_file *file, int64_t index)
{
    return load_bytes(file->tokens + index * file->bytes_per_token,
                      file->bytes_per_token);
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids are copied");

/* The largest of `count` ids, at most TOKENS_AT_ONCE. They need not be aligned
 * in the file; in an array the loops vectorize. */
static uint64_t largest(const struct token_file *file, int64_t first,
                        int64_t count)
{
    const size_t size = (size_t)file->bytes_per_token;
    const unsigned char *from = file->tokens + (size_t)first * size;
    union {
        uint16_t narrow[TOKENS_AT_ONCE];
        uint32_t middle[TOKENS_AT_ONCE];
    } ids;
    uint64_t most = 0;

    if (size == 2) {
        uint16_t top = 0;

        memcpy(ids.narrow, from, (size_t)count * size);
        _Pragma("omp simd reduction(max : top)") for (
            int64_t i = 0; i < count; i++)
            top = ids.narrow[i] > top ? ids.narrow[i] : top;
        return top;
    }
    if (size == 4) {
        uint32_t top = 0;

        memcpy(ids.middle, from, (size_t)count * size);
        _Pragma("omp simd reduction(max : top)") for (
            int64_t i = 0; i < count; i++)
            top = ids.middle[i] > top ? ids.middle[i] : top;
        return top;
    }
    for (int64_t i = first; i < first + count; i++) {
        const uint64_t id = id_at(file, i);

        most = id > most ? id : most;
    }
    return most;
}

static int64_t first_from(const struct token_file *file, int64_t first,
                          uint64_t limit)
{
    while (id_at(file, first) < limit) first++;
    return first;
}

/* Above all ids that the file may hold; one that says nothing, 31 bits. */
static uint64_t limit_of(const struct token_file *file)
{
    return file->vocab > 0 ? (uint64_t)file->vocab : (uint64_t)INT32_MAX + 1;
}

static status outside(const struct token_file *file, int64_t index)
{
    const uint64_t id = id_at(file, index);

    if ((int64_t)id < 0) /* as numpy writes what a mask leaves out */
        FAIL(ERR_FORMAT, "%s: token %lld is %lld; ids are 0 or more",
             file->path, (long long)index, (long long)id);
    if (id < limit_of(file))
        FAIL(ERR_CONFIG, "%s: token %lld is %llu, outside the model's "
             "vocabulary of %lld", file->path, (long long)index,
             (unsigned long long)id, (long long)file->model_vocab);
    FAIL(ERR_FORMAT, "%s: token %lld is %llu, outside the vocabulary of %llu",
         file->path, (long long)index, (unsigned long long)id,
         (unsigned long long)limit_of(file));
}

static bool stopped(const struct token_file *file)
{
    return file->stop != NULL &&
           atomic_load_explicit(file->stop, memory_order_relaxed);
}

/* *wrong: the first id that cannot be, if it is still -1. */
static void check_ids(struct token_file *file, int64_t first, int64_t count,
                      int64_t *wrong)
{
    uint64_t limit = limit_of(file);

    if (file->model_vocab > 0 && (uint64_t)file->model_vocab < limit)
        limit = (uint64_t)file->model_vocab;
    for (int64_t at = first; at < first + count; at += TOKENS_AT_ONCE) {
        const int64_t left = first + count - at;
        const int64_t here = left < TOKENS_AT_ONCE ? left : TOKENS_AT_ONCE;
        const uint64_t most = largest(file, at, here);

        if (most >= limit) {
            if (*wrong < 0) *wrong = first_from(file, at, limit);
        } else if ((int64_t)most > file->largest) {
            file->largest = (int64_t)most;
        }
    }
}

/* Called for each part of a pass: what was read is given back, because a file
 * may be larger than what a run may take. */
static status part_read(const struct token_file *file, size_t bytes)
{
    file_map_drop(&file->map);
    if (file->progress != NULL)
        file->progress(file->argument, (int64_t)bytes);
    return stopped(file) ? ERR_STOPPED : OK;
}

static status read_bytes(struct token_file *file, size_t from, size_t to)
{
    for (size_t at = from; at < to; at += READ_BYTES) {
        const size_t bytes = to - at < READ_BYTES ? to - at : READ_BYTES;

        TRY(token_pages_feed(&file->pages, file->image + at, bytes));
        TRY(part_read(file, bytes));
    }
    return OK;
}

/* Every byte once. Ends at the first wrong id of a file that says nothing of
 * its checksum; one that does is read on, for that says more. */
static status read_through(struct token_file *file, uint32_t *crc,
                           int64_t *wrong)
{
    const bool own = file->layout == TOKENS_OWN;
    const size_t first = (size_t)(file->tokens - file->image);
    const size_t size = (size_t)file->bytes_per_token;
    const int64_t part = READ_BYTES / (int64_t)size;

    token_pages_free(&file->pages);
    *wrong = file->largest = -1;
    TRY(read_bytes(file, own ? HEADER_BYTES : 0, first));
    for (int64_t at = 0; at < file->count; at += part) {
        const int64_t left = file->count - at;
        const int64_t count = left < part ? left : part;

        TRY(token_pages_feed(&file->pages, file->tokens + (size_t)at * size,
                             (size_t)count * size));
        check_ids(file, at, count, wrong);
        if (!own && *wrong >= 0) return outside(file, *wrong);
        TRY(part_read(file, (size_t)count * size));
    }
    TRY(read_bytes(file, first + (size_t)file->count * size, file->length));
    TRY(token_pages_end(&file->pages));
    *crc = file->pages.total;
    if (file->table.length > 0)
        *crc = crc32c(*crc, file->table.bytes, file->table.length);
    return OK;
}

status token_file_verify_table(const struct token_file *file)
{
    int64_t before = 0;

    if (file->layout != TOKENS_OWN) return token_foreign_verify(file);
    for (int64_t i = 1; i <= file->documents; i++) {
        const int64_t start = token_file_start(file, i);

        if (start <= before)
            return bad(file, "the table of documents does not ascend");
        before = start;
    }
    return OK;
}

status token_file_verify(struct token_file *file)
{
    const bool own = file->layout == TOKENS_OWN;
    uint32_t crc = 0;
    int64_t wrong;

    if (!own) TRY(token_file_verify_table(file));
    TRY(read_through(file, &crc, &wrong));
    if (own && crc != file->crc)
        return bad(file, "the checksum of the tokens is wrong");
    file->crc = crc;
    if (own) TRY(token_file_verify_table(file));
    return wrong >= 0 ? outside(file, wrong) : OK;
}

/* A file that was checked for another vocabulary is searched again, to find the
 * place of a bad id. */
static status find_outside(const struct token_file *file, int64_t vocab)
{
    struct token_file search = *file;
    int64_t wrong = -1;

    search.model_vocab = vocab;
    search.progress = NULL;
    for (int64_t at = 0; at < file->count && wrong < 0; at += READ_BYTES) {
        const int64_t left = file->count - at;

        check_ids(&search, at, left < READ_BYTES ? left : READ_BYTES, &wrong);
        TRY(part_read(&search, 0));
    }
    if (wrong >= 0) return outside(&search, wrong);
    FAIL(ERR_CONFIG, "%s: holds the id %lld by its seal, but the model's "
         "vocabulary is %lld; `lockstep data verify` looks for it",
         file->path, (long long)file->largest, (long long)vocab);
}

status token_file_fits(const struct token_file *file, const char *tokenizer,
                       int64_t vocab)
{
    if (tokenizer != NULL && file->tokenizer[0] != 0 &&
        strcmp(tokenizer, file->tokenizer) != 0)
        FAIL(ERR_CONFIG, "%s was made with another tokenizer (digest %.12s..., "
                         "this run's is %.12s...)", file->path,
             file->tokenizer, tokenizer);
    if (vocab == 0) return OK;
    if (file->vocab > vocab)
        FAIL(ERR_CONFIG, "%s has ids below %lld, but the model's vocabulary is "
                         "%lld", file->path, (long long)file->vocab,
             (long long)vocab);
    return file->largest >= vocab ? find_outside(file, vocab) : OK;
}

/* ---- writing ---- */

static status system_failure(const struct token_writer *writer)
{
    if (errno == ENOSPC) FAIL(ERR_IO, "%s: disk full", writer->path);
    FAIL(ERR_IO, "%s: %s", writer->path, strerror(errno));
}

static void copy_digest(char out[TOKEN_DIGEST_BYTES], const char *digest)
{
    memset(out, 0, TOKEN_DIGEST_BYTES);
    if (digest != NULL)
        memcpy(out, digest, strnlen(digest, DIGEST_LENGTH));
}

static status put(struct token_writer *writer, const void *bytes,
                  size_t length)
{
    TRY(token_pages_feed(&writer->pages, bytes, length));
    if (fwrite(bytes, 1, length, writer->file) != length)
        return system_failure(writer);
    return OK;
}

status token_writer_open(struct token_writer *writer, const char *path,
                         int64_t vocab, int32_t end_token,
                         const char *tokenizer, const char *source)
{
    static const unsigned char empty[HEADER_BYTES];

    *writer = (struct token_writer){
        .bytes_per_token = vocab <= 65536 ? 2 : 4, .end_token = end_token,
        .vocab = vocab};
    CHECK(end_token >= 0 && end_token < vocab);
    copy_digest(writer->tokenizer, tokenizer);
    copy_digest(writer->source, source);
    TRY(file_temporary_name(path, writer->temporary)); /* so `path` fits, too */
    snprintf(writer->path, PATH_BYTES, "%s", path);
    temporary_note(writer->temporary);
    TRY(file_create(writer->temporary, &writer->file));
    if (fwrite(empty, 1, sizeof empty, writer->file) != sizeof empty)
        return system_failure(writer);
    return OK;
}

static status add_start(struct token_writer *writer)
{
    if (writer->documents + 1 >= writer->start_capacity) {
        const int64_t capacity =
            writer->start_capacity ? 2 * writer->start_capacity : 1024;
        void *starts = writer->starts;

        TRY(memory_grow(&starts, (size_t)capacity, sizeof(int64_t)));
        writer->starts = starts;
        writer->start_capacity = capacity;
    }
    writer->starts[writer->documents++] = writer->count;
    return OK;
}

static status put_tokens(struct token_writer *writer, const int32_t *ids,
                         int64_t count)
{
    unsigned char bytes[4 * TOKENS_AT_ONCE];

    for (int64_t at = 0; at < count; at += TOKENS_AT_ONCE) {
        const int64_t left = count - at;
        const int64_t n = left < TOKENS_AT_ONCE ? left : TOKENS_AT_ONCE;

        for (int64_t i = 0; i < n; i++) {
            if (ids[at + i] < 0 || ids[at + i] >= writer->vocab)
                FAIL(ERR_FORMAT, "%s: id %d is outside the vocabulary of "
                                 "%lld", writer->path, ids[at + i],
                     (long long)writer->vocab);
            store(bytes + i * writer->bytes_per_token, writer->bytes_per_token,
                  (uint64_t)ids[at + i]);
        }
        TRY(put(writer, bytes, (size_t)(n * writer->bytes_per_token)));
    }
    writer->count += count;
    return OK;
}

/* Bits for `count` more tokens. */
static status put_mask(struct token_writer *writer, const bool *learned,
                       int64_t count)
{
    for (int64_t i = 0; i < count; i++, writer->mask_bits++) {
        const int64_t at = writer->mask_bits;

        if (at % 8 == 0) TRY(text_append(&writer->mask, "", 1));
        if (learned == NULL || learned[i])
            writer->mask.bytes[at / 8] = (char)(writer->mask.bytes[at / 8] |
                                                1 << at % 8);
    }
    return OK;
}

status token_writer_add_masked(struct token_writer *writer, const int32_t *ids,
                               const bool *learned, int64_t count,
                               int64_t text_bytes)
{
    const bool last = learned == NULL || count == 0 || learned[count - 1];

    if (learned != NULL && writer->mask_bits == 0)
        TRY(put_mask(writer, NULL, writer->count));
    if (learned != NULL || writer->mask_bits > 0) {
        TRY(put_mask(writer, learned, count));
        TRY(put_mask(writer, &last, 1));
    }
    TRY(add_start(writer));
    TRY(put_tokens(writer, ids, count));
    TRY(put_tokens(writer, &writer->end_token, 1));
    writer->text_bytes += text_bytes;
    return OK;
}

status token_writer_add(struct token_writer *writer, const int32_t *ids,
                        int64_t count, int64_t text_bytes)
{
    return token_writer_add_masked(writer, ids, NULL, count, text_bytes);
}

static void fill_header(const struct token_writer *w,
                        unsigned char h[HEADER_BYTES])
{
    memset(h, 0, HEADER_BYTES);
    memcpy(h, magic, sizeof magic);
    store(h + 8, 4, (uint64_t)w->bytes_per_token);
    store(h + 12, 4, (uint64_t)w->end_token);
    store(h + 16, 8, (uint64_t)w->vocab);
    store(h + 24, 8, (uint64_t)w->count);
    store(h + 32, 8, (uint64_t)w->documents);
    store(h + 40, 8, (uint64_t)w->text_bytes);
    memcpy(h + 48, w->tokenizer, DIGEST_LENGTH);
    memcpy(h + 112, w->source, DIGEST_LENGTH);
    store(h + 176, 4, w->pages.total);
    store(h + 180, 4, crc32c(0, h, 180));
    store(h + 184, 8, w->mask_bits > 0 ? 1 : 0);
}

/* The writer already knows the content of the new file, so nothing is read. */
static status seal_written(const struct token_writer *writer)
{
    const struct token_file file = {.path = writer->path,
                                    .crc = writer->pages.total,
                                    .pages = writer->pages,
                                    .largest = writer->vocab - 1};

    if (token_file_seal(&file, NULL) != OK ||
        token_pages_keep(&file, NULL) != OK)
        status_clear();
    return OK;
}

status token_writer_close(struct token_writer *writer)
{
    static const unsigned char zeros[8];
    const int64_t body = writer->count * writer->bytes_per_token;
    unsigned char header[HEADER_BYTES], entry[8];
    FILE *file = writer->file;

    TRY(fault_point("tokens.write"));
    TRY(put(writer, zeros, (size_t)((8 - body % 8) % 8)));
    for (int64_t i = 0; i <= writer->documents; i++) {
        store(entry, 8, (uint64_t)(i < writer->documents ? writer->starts[i]
                                                         : writer->count));
        TRY(put(writer, entry, sizeof entry));
    }
    if (writer->mask_bits > 0)
        TRY(put(writer, writer->mask.bytes, writer->mask.length));
    TRY(token_pages_end(&writer->pages));
    fill_header(writer, header);
    if (fseek(file, 0, SEEK_SET) != 0 ||
        fwrite(header, 1, sizeof header, file) != sizeof header ||
        fflush(file) != 0 || fsync(fileno(file)) != 0)
        return system_failure(writer);
    TRY(mapped_check()); /* the text may have been mapped */
    writer->file = NULL;
    if (fclose(file) != 0 || rename(writer->temporary, writer->path) != 0)
        return system_failure(writer);
    temporary_forget(writer->temporary);
    writer->temporary[0] = 0;
    return seal_written(writer);
}

void token_writer_free(struct token_writer *writer)
{
    if (writer->file != NULL) fclose(writer->file);
    if (writer->temporary[0] != 0) {
        unlink(writer->temporary);
        temporary_forget(writer->temporary);
    }
    memory_free(writer->starts);
    token_pages_free(&writer->pages);
    text_free(&writer->mask);
    *writer = (struct token_writer){0};
}
