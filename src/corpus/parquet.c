/* SPDX-License-Identifier: Apache-2.0 */
/* parquet.c - one column of a Parquet file, row by row: its pages. */
#include "corpus/parquet.h"

#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "corpus/parquet_footer.h"
#include "corpus/snappy.h"

enum { PAGE_DATA = 0, PAGE_INDEX = 1, PAGE_DICTIONARY = 2, PAGE_DATA_2 = 3 };
enum { PLAIN_BYTES, SNAPPY, GZIP, ZSTD = 6 };
enum { GZIP_OR_ZLIB = 15 + 32, IDS_MAX = 1 << 26 };
static const int64_t page_bytes_max = (int64_t)1 << 29;

struct page_header {
    int64_t type, unpacked, packed, crc, values, encoding;
    int64_t rows, definition_bytes, repetition_bytes; /* version 2 */
    bool has_crc, unpacked_values;
};

struct reading {
    const char *path;
    const unsigned char *bytes;
    struct parquet_footer footer;
    const struct parquet_chunk *chunk;
    size_t page;                /* where it begins in the file */
    unsigned char *buffer;      /* owned [buffer_room]: a page, unpacked */
    size_t buffer_room;
    unsigned char *words;       /* owned [word_room]: the dictionary */
    size_t word_room;
    uint32_t *starts;           /* owned [start_room] of it */
    int64_t start_room;
    struct parquet_dictionary dictionary;
    struct parquet_values values;
    int32_t *ids;               /* owned [id_room]: of the row */
    int64_t id_count, id_room;
    bool open;                  /* a list has begun */
    int64_t row;
    parquet_take *take;
    void *context;
};

static status damaged(const struct reading *r, const char *what)
{
    FAIL(ERR_FORMAT, "%s: the page at byte %zu (row %lld) is damaged: %s",
         r->path, r->page, (long long)r->row, what);
}

/* ---- headers ---- */

static void read_part(struct thrift *in, struct page_header *h, bool second)
{
    enum thrift_kind kind;
    int number = 0;

    h->unpacked_values = false;
    while (thrift_field(in, &number, &kind)) {
        const int64_t value = kind == THRIFT_STRUCT ? 0
                                                    : thrift_integer(in, kind);

        if (kind == THRIFT_STRUCT) thrift_skip(in, kind);
        else if (number == 1) h->values = value;
        else if (number == (second ? 4 : 2)) h->encoding = value;
        else if (second && number == 3) h->rows = value;
        else if (second && number == 5) h->definition_bytes = value;
        else if (second && number == 6) h->repetition_bytes = value;
        else if (second && number == 7) h->unpacked_values = value == 0;
    }
}

static void read_header(struct thrift *in, struct page_header *h)
{
    enum thrift_kind kind;
    int number = 0;

    *h = (struct page_header){.type = -1};
    while (thrift_field(in, &number, &kind)) {
        if (number == 1) h->type = thrift_integer(in, kind);
        else if (number == 2) h->unpacked = thrift_integer(in, kind);
        else if (number == 3) h->packed = thrift_integer(in, kind);
        else if (number == 4) {
            h->crc = thrift_integer(in, kind);
            h->has_crc = true;
        } else if (kind == THRIFT_STRUCT &&
                   (number == 5 || number == 7 || number == 8))
            read_part(in, h, number == 8);
        else
            thrift_skip(in, kind);
    }
}

/* ---- unpacking ---- */

/* No packing makes less of a page than one byte of so many. It is compared
 * before room for the page is taken. */
static bool may_unpack(int codec, int64_t packed, int64_t length)
{
    enum { SNAPPY_RATIO = 64, GZIP_RATIO = 1032, ZSTD_RATIO = 1 << 16 };
    switch (codec) {
    case PLAIN_BYTES: return length <= packed;
    case SNAPPY: return length / SNAPPY_RATIO <= packed;
    case GZIP: return length / GZIP_RATIO <= packed;
    case ZSTD: return length / ZSTD_RATIO <= packed;
    default: return true; /* is refused by name */
    }
}

static status make_room(unsigned char **buffer, size_t *room, size_t needed)
{
    void *grown = *buffer;

    if (needed <= *room && *buffer != NULL) return OK;
    TRY(memory_grow(&grown, needed + 64, 1));
    *buffer = grown;
    *room = needed + 64;
    return OK;
}

static bool unpack_gzip(const unsigned char *from, size_t packed,
                        unsigned char *to, size_t length)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)from,
                  .avail_in = (unsigned)packed, .next_out = to,
                  .avail_out = (unsigned)length};
    int code;

    if (inflateInit2(&z, GZIP_OR_ZLIB) != Z_OK) return false;
    code = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    return code == Z_STREAM_END && z.total_out == length;
}

static status unpack(struct reading *r, const unsigned char *from,
                     size_t packed, unsigned char *to, size_t length)
{
    static const char *const others[] = {"", "", "", "LZO", "Brotli", "LZ4",
                                         "", "LZ4_RAW"};
    const int codec = r->chunk->codec;
    bool good = false;

    if (codec == PLAIN_BYTES) {
        good = packed == length;
        if (good && length > 0) memcpy(to, from, length);
    } else if (codec == SNAPPY) {
        good = snappy_unpack(from, packed, to, length);
    } else if (codec == GZIP) {
        good = unpack_gzip(from, packed, to, length);
    } else if (codec == ZSTD) {
        good = ZSTD_decompress(to, length, from, packed) == length;
    } else {
        FAIL(ERR_CONFIG, "%s: pages are packed with %s (codec %d); none, "
             "snappy, gzip and zstd are read", r->path,
             codec > 0 && codec < 8 ? others[codec] : "something unknown",
             codec);
    }
    return good ? OK : damaged(r, "it does not unpack to the size in its "
                                  "header");
}

/* The page into `buffer`; the first `plain` bytes are never packed. */
static status unpack_page(struct reading *r, const struct page_header *h,
                          const unsigned char *from, size_t plain,
                          unsigned char *buffer)
{
    const size_t packed = (size_t)h->packed, length = (size_t)h->unpacked;

    if (plain > packed || plain > length)
        return damaged(r, "its levels are longer than the page");
    if (h->has_crc &&
        (uint32_t)crc32(0, from, (unsigned)packed) != (uint32_t)h->crc)
        return damaged(r, "its checksum is wrong");
    if (plain > 0) memcpy(buffer, from, plain);
    if (length == plain) return OK; /* nulls only: nothing behind the levels */
    if (!h->unpacked_values)
        return unpack(r, from + plain, packed - plain, buffer + plain,
                      length - plain);
    if (packed != length) return damaged(r, "two sizes of what is not packed");
    memcpy(buffer + plain, from + plain, length - plain);
    return OK;
}

/* ---- the dictionary ---- */

static status text_starts(struct reading *r, int64_t count)
{
    struct parquet_dictionary *d = &r->dictionary;
    size_t at = 0;

    if (count > r->start_room || r->starts == NULL) {
        void *grown = r->starts;

        TRY(memory_grow(&grown, (size_t)count + 1, sizeof *r->starts));
        r->starts = grown;
        r->start_room = count;
    }
    for (int64_t i = 0; i < count; i++) {
        size_t length = 0;

        if (d->length - at < 4) return damaged(r, "a dictionary entry");
        for (size_t b = 4; b > 0; b--)
            length = length << 8 | d->bytes[at + b - 1];
        at += 4;
        if (length > d->length - at) return damaged(r, "a dictionary entry");
        r->starts[i] = (uint32_t)at;
        at += length;
    }
    r->starts[count] = (uint32_t)at;
    d->starts = r->starts;
    return OK;
}

static status read_dictionary(struct reading *r, const struct page_header *h,
                              const unsigned char *from)
{
    const int64_t least = r->footer.type == PARQUET_INT64 ? 8 : 4;

    if (h->encoding != ENCODING_PLAIN &&
        h->encoding != ENCODING_PLAIN_DICTIONARY)
        return damaged(r, "a dictionary that is not plain");
    if (h->values < 0 || h->values > h->unpacked / least)
        return damaged(r, "more dictionary entries than bytes");
    TRY(make_room(&r->words, &r->word_room, (size_t)h->unpacked));
    TRY(unpack_page(r, h, from, 0, r->words));
    r->dictionary = (struct parquet_dictionary){
        .bytes = r->words, .count = h->values, .length = (size_t)h->unpacked};
    return r->footer.type == PARQUET_BYTES ? text_starts(r, h->values) : OK;
}

/* ---- rows ---- */

static status end_list(struct reading *r)
{
    const struct parquet_row row = {.number = r->row, .ids = r->ids,
                                    .count = r->id_count};

    if (!r->open) return OK;
    if (r->row >= r->footer.rows)
        return damaged(r, "more lists than the footer says rows");
    r->open = false;
    r->id_count = 0;
    TRY(r->take(r->context, &row));
    r->row++;
    return OK;
}

static status add_id(struct reading *r)
{
    int64_t value;

    if (!parquet_values_number(&r->values, &value))
        return damaged(r, "its numbers end too early");
    if (value < 0 || value > INT32_MAX)
        FAIL(ERR_FORMAT, "%s: row %lld, item %lld is %lld, no token id",
             r->path, (long long)r->row, (long long)r->id_count,
             (long long)value);
    if (r->id_count == IDS_MAX)
        FAIL(ERR_FORMAT, "%s: row %lld has more than %d ids", r->path,
             (long long)r->row, IDS_MAX);
    if (r->id_count == r->id_room) {
        const int64_t room = 2 * r->id_room + 1024;
        void *grown = r->ids;

        TRY(memory_grow(&grown, (size_t)room, sizeof *r->ids));
        r->ids = grown;
        r->id_room = room;
    }
    r->ids[r->id_count++] = (int32_t)value;
    return OK;
}

static status take_text(struct reading *r)
{
    struct parquet_row row = {.number = r->row};
    size_t bad;

    if (!parquet_values_text(&r->values, &row.text, &row.length))
        return damaged(r, "its texts end too early");
    if (text_utf8_invalid(row.text, row.length, &bad))
        FAIL(ERR_FORMAT, "%s: row %lld is not UTF-8 text: byte %zu is 0x%02x",
             r->path, (long long)r->row, bad, (unsigned char)row.text[bad]);
    TRY(r->take(r->context, &row));
    r->row++;
    return OK;
}

/* The row is null, and so are those of the same run of levels behind it, at
 * most `left` with it. How many come behind it. */
static int64_t skip_nulls(struct reading *r, struct hybrid *definition,
                          int64_t left)
{
    const int64_t run = hybrid_rest(definition);
    const int64_t more = run < left - 1 ? run : left - 1;

    hybrid_skip(definition, more);
    r->row += 1 + more;
    return more;
}

/* Levels and then values of a page. */
static status read_values(struct reading *r, int64_t count,
                          struct hybrid *repetition, struct hybrid *definition)
{
    const uint32_t depth = (uint32_t)r->footer.depth;
    const bool list = r->footer.list;

    for (int64_t i = 0; i < count; i++) {
        uint32_t level = depth, again = 0;

        if (list && !hybrid_next(repetition, &again))
            return damaged(r, "its repetition levels end too early");
        if (depth > 0 && !hybrid_next(definition, &level))
            return damaged(r, "its definition levels end too early");
        if (level > depth || again > (list && r->open))
            return damaged(r, "a level is too high");
        if (list && again == 0) {
            TRY(end_list(r));
            r->open = true;
        }
        if (level == depth)
            TRY(list ? add_id(r) : take_text(r));
        else if (list && level >= (uint32_t)r->footer.items)
            FAIL(ERR_FORMAT, "%s: row %lld, item %lld is null, no token id",
                 r->path, (long long)r->row, (long long)r->id_count);
        else if (!list)
            i += skip_nulls(r, definition, count - i);
    }
    return OK;
}

/* Bits that hold 0 to `level`. */
static int bits_of(int level)
{
    return level == 0 ? 0 : 32 - __builtin_clz((unsigned)level);
}

/* Levels of version 1: a length of four bytes, then runs. */
static status levels_1(struct reading *r, const unsigned char **at,
                       const unsigned char *end, int most,
                       struct hybrid *levels)
{
    size_t length = 0;

    *levels = (struct hybrid){0};
    if (most == 0) return OK;
    if (end - *at < 4) return damaged(r, "no room for levels");
    for (int i = 3; i >= 0; i--) length = length << 8 | (*at)[i];
    *at += 4;
    if (length > (size_t)(end - *at)) return damaged(r, "levels too long");
    hybrid_begin(levels, *at, *at + length, bits_of(most));
    *at += length;
    return OK;
}

static status read_data(struct reading *r, const struct page_header *h,
                        const unsigned char *from)
{
    const bool second = h->type == PAGE_DATA_2;
    const size_t plain = second ? (size_t)(h->definition_bytes +
                                           h->repetition_bytes) : 0;
    struct hybrid repetition, definition;
    const unsigned char *at, *end;
    bool known;

    TRY(make_room(&r->buffer, &r->buffer_room, (size_t)h->unpacked));
    TRY(unpack_page(r, h, from, plain, r->buffer));
    at = r->buffer;
    end = at + h->unpacked;
    if (second) {
        hybrid_begin(&repetition, at, at + h->repetition_bytes, 1);
        hybrid_begin(&definition, at + h->repetition_bytes, at + plain,
                     bits_of(r->footer.depth));
        at += plain;
    } else {
        TRY(levels_1(r, &at, end, r->footer.list, &repetition));
        TRY(levels_1(r, &at, end, r->footer.depth, &definition));
    }
    r->values.type = r->footer.type;
    r->values.encoding = (int)h->encoding;
    r->values.dictionary = &r->dictionary;
    r->values.count = h->values;
    if (!parquet_values_begin(&r->values, at, end, &known)) {
        if (known) return damaged(r, "its values do not begin");
        FAIL(ERR_CONFIG, "%s: the page at byte %zu has encoding %lld%s; plain, "
             "dictionary and delta are read", r->path, r->page,
             (long long)h->encoding,
             h->encoding == 9 ? " (BYTE_STREAM_SPLIT)" : "");
    }
    return read_values(r, h->values, &repetition, &definition);
}

/* ---- the file ---- */

static status check_header(const struct reading *r, const struct thrift *in,
                           const struct page_header *h)
{
    const int64_t left = in->end - in->at;

    if (in->failed) return damaged(r, "its header");
    if (h->packed < 0 || h->packed > left || h->unpacked < 0 ||
        h->unpacked > page_bytes_max || h->values < 0)
        FAIL(ERR_FORMAT, "%s: the page at byte %zu says %lld bytes, unpacked "
             "%lld, %lld values; %lld bytes are left and %lld the most that is "
             "read", r->path, r->page, (long long)h->packed,
             (long long)h->unpacked, (long long)h->values, (long long)left,
             (long long)page_bytes_max);
    if (h->type == PAGE_DATA_2 &&
        (h->definition_bytes < 0 || h->repetition_bytes < 0 ||
         h->definition_bytes > h->packed || h->repetition_bytes > h->packed))
        return damaged(r, "its levels are longer than the page");
    if (!may_unpack(r->chunk->codec, h->packed, h->unpacked) &&
        h->type != PAGE_INDEX)
        FAIL(ERR_FORMAT, "%s: the page at byte %zu says that its %lld bytes "
             "unpack to %lld, more than its packing can", r->path, r->page,
             (long long)h->packed, (long long)h->unpacked);
    return OK;
}

/* Rows of lists are counted by their levels, so only now. */
static status end_chunk(struct reading *r, int64_t before)
{
    TRY(end_list(r));
    if (r->row - before != r->chunk->rows)
        FAIL(ERR_FORMAT, "%s: the column has %lld rows in the row group at "
             "byte %lld, which says %lld", r->path,
             (long long)(r->row - before), (long long)r->chunk->at,
             (long long)r->chunk->rows);
    return OK;
}

static status read_chunk(struct reading *r, int64_t *at)
{
    struct thrift in = {.at = r->bytes + r->chunk->at,
                        .end = r->bytes + r->chunk->at + r->chunk->bytes};
    const int64_t before = r->row;
    int64_t left = r->chunk->values;

    r->dictionary = (struct parquet_dictionary){.count = -1};
    while (left > 0) {
        struct page_header h;

        r->page = (size_t)(in.at - r->bytes);
        *at = (int64_t)r->page;
        read_header(&in, &h);
        TRY(check_header(r, &in, &h));
        if (h.type == PAGE_DICTIONARY) {
            TRY(read_dictionary(r, &h, in.at));
        } else if (h.type == PAGE_DATA || h.type == PAGE_DATA_2) {
            if (h.values > left)
                return damaged(r, "more values than its row group has");
            TRY(read_data(r, &h, in.at));
            left -= h.values;
        } else if (h.type != PAGE_INDEX) {
            return damaged(r, "an unknown kind of page");
        }
        in.at += h.packed;
    }
    return end_chunk(r, before);
}

status parquet_read(const struct parquet_file *file, const char *column,
                    parquet_take *take, void *context, int64_t *at)
{
    struct reading r = {.path = file->path, .bytes = file->bytes,
                        .take = take, .context = context};
    status result;

    TRY_GOTO(done, result,
             parquet_footer_read(&r.footer, file->path, file->bytes,
                                 file->length, column));
    for (int64_t i = 0; i < r.footer.chunk_count; i++) {
        r.chunk = &r.footer.chunks[i];
        TRY_GOTO(done, result, read_chunk(&r, at));
    }
done:
    parquet_footer_free(&r.footer);
    memory_free(r.buffer);
    memory_free(r.words);
    memory_free(r.starts);
    memory_free(r.ids);
    text_free(&r.values.text);
    return result;
}
