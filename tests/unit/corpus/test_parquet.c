/* SPDX-License-Identifier: Apache-2.0 */
/* test_parquet.c - mirrors src/corpus/parquet.c: files of pyarrow, Polars,
 * DuckDB and fastparquet (tests/golden/make_data.py) in every encoding and
 * packing; what is not read or is damaged is refused. */
#include "corpus/parquet.h"

#include "base/text.h"
#include "tests/fuzz/parquet_shape.h"
#include "tests/test.h"

enum { FILE_ROWS = 300 };

static const char *const names[] = {
    "snappy", "snappy_v2", "none_plain", "none_plain_v2", "gzip", "zstd_v2",
    "zstd_plain", "delta_length", "delta_bytes_v2", "empty_group",
    "polars_zstd", "polars_snappy", "duckdb_v1", "duckdb_v2", "fastparquet"};

static void path_of(const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "tests/golden/data/%s.parquet", name);
}

/* The rule of make_data.py. */
static void expected_text(int64_t i, struct text *out)
{
    out->length = 0;
    IS_OK(text_printf(out, "row %lld ", (long long)i));
    for (int64_t k = 0; k < i % 5; k++)
        IS_OK(text_append_string(out, "\xC3\xA9"));
    for (int64_t k = 0; k < i % 11 % 4; k++)
        IS_OK(text_append_string(out, " the ship"));
}

struct seen {
    int64_t rows, next;
    struct text text;
};

static status take_text(void *context, const struct parquet_row *row)
{
    struct seen *seen = context;

    if (seen->next % 7 == 3) seen->next++;
    EQUAL_INT(row->number, seen->next);
    expected_text(seen->next++, &seen->text);
    EQUAL_INT(row->length, seen->text.length);
    EQUAL_BYTES(row->text, seen->text.bytes, row->length);
    seen->rows++;
    return OK;
}

static status take_ids(void *context, const struct parquet_row *row)
{
    struct seen *seen = context;
    const int64_t i = seen->rows++;

    CHECK(row->text == NULL);
    EQUAL_INT(row->number, i);
    EQUAL_INT(row->count, i % 10 == 9 ? 0 : i % 6);
    for (int64_t k = 0; k < row->count; k++)
        EQUAL_INT(row->ids[k], i * 1000 + k);
    return OK;
}

static status take_few(void *context, const struct parquet_row *row)
{
    struct seen *seen = context;
    char expected[16];

    snprintf(expected, sizeof expected, "kind %lld",
             (long long)(seen->rows++ % 3));
    EQUAL_INT(row->length, strlen(expected));
    EQUAL_BYTES(row->text, expected, row->length);
    return OK;
}

static status read_column(const char *name, const char *column,
                          parquet_take *take, struct seen *seen)
{
    char path[PATH_BYTES];
    struct file_map map;
    int64_t at;
    status result;

    *seen = (struct seen){0};
    path_of(name, path);
    IS_OK(file_map_open(&map, path));
    result = parquet_read(&(struct parquet_file){path, map.bytes, map.length},
                          column, take, seen, &at);
    file_map_close(&map);
    text_free(&seen->text);
    return result;
}

TEST(columns_are_what_was_written)
{
    struct seen seen;

    for (int i = 0; i < ROWS(names); i++) {
        IS_OK(read_column(names[i], "text", take_text, &seen));
        EQUAL_INT(seen.rows, FILE_ROWS - 43);
        IS_OK(read_column(names[i], "few", take_few, &seen));
        EQUAL_INT(seen.rows, FILE_ROWS);
        if (strcmp(names[i], "fastparquet") == 0) continue; /* has no lists */
        IS_OK(read_column(names[i], "ids", take_ids, &seen));
        EQUAL_INT(seen.rows, FILE_ROWS);
        IS_OK(read_column(names[i], "wide", take_ids, &seen));
        EQUAL_INT(seen.rows, FILE_ROWS);
    }
}

static status take_any(void *context, const struct parquet_row *row)
{
    (void)row;
    (*(int64_t *)context)++;
    return OK;
}

TEST(what_is_not_read_is_named)
{
    struct seen seen;

    FAILS(read_column("snappy", "body", take_text, &seen), ERR_CONFIG,
          "no column \"body\"; there are url, text, ids.list.element");
    status_clear();
    FAILS(read_column("snappy", "score", take_text, &seen), ERR_CONFIG,
          "score has DOUBLE; text (BYTE_ARRAY) or lists");
    status_clear();
    FAILS(read_column("brotli", "text", take_text, &seen), ERR_CONFIG,
          "packed with Brotli (codec 4)");
    status_clear();
    FAILS(read_column("null_id", "ids", take_any, &seen), ERR_FORMAT,
          "row 1, item 1 is null");
}

/* Damage is an error or shows in the rows; it is never a crash. */
TEST(damage_is_refused_or_harmless)
{
    char path[PATH_BYTES];
    struct text bytes;
    int64_t rows = 0, at;
    int refused = 0;

    path_of("snappy_v2", path); /* pages have checksums */
    IS_OK(file_read(path, 1 << 20, &bytes));
    struct parquet_file file = {"a.parquet", (unsigned char *)bytes.bytes,
                                bytes.length};

    for (size_t i = 0; i < bytes.length; i += 7) {
        bytes.bytes[i] ^= 0x40;
        refused += parquet_read(&file, "text", take_any, &rows, &at) != OK;
        status_clear();
        bytes.bytes[i] ^= 0x40;
    }
    CHECK(refused > 300);
    for (file.length = 0; file.length < bytes.length; file.length += 101)
        CHECK(parquet_read(&file, "text", take_any, &rows, &at) == ERR_FORMAT);
    text_free(&bytes);
}

/* ---- files that lie, made of one with 8 rows of which 6 are texts ---- */

struct lie {
    struct shape shape;
    struct text seed;
    uint8_t bytes[1 << 19];
    size_t length;
};

static struct page *lie_begin(struct lie *lie, const char *name)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, "tests/fuzz/seeds/parquet/%s", name);
    IS_OK(file_read(path, 1 << 16, &lie->seed));
    CHECK(shape_read(&lie->shape, (const uint8_t *)lie->seed.bytes,
                     lie->seed.length));
    EQUAL_INT(lie->shape.chunk_count, 1);
    return lie->shape.chunks[0].pages;
}

static status lie_read(struct lie *lie, int64_t *rows)
{
    int64_t at;

    lie->length = shape_write(&lie->shape, lie->bytes, sizeof lie->bytes, true);
    CHECK(lie->length > 0);
    *rows = 0;
    return parquet_read(&(struct parquet_file){"a.parquet", lie->bytes,
                                               lie->length},
                        "text", take_any, rows, &at);
}

static void lie_end(struct lie *lie)
{
    status_clear();
    text_free(&lie->seed);
    free(mutate_pool);
    mutate_pool = NULL;
}

/* Guards the table of chunks: it had room for one list of each row group. */
TEST(a_row_group_has_one_list_of_columns)
{
    static struct lie lie;
    struct node *list;
    int64_t rows;

    (void)lie_begin(&lie, "small_words");
    list = node_get(node_get(lie.shape.footer, 4)->first, 1);
    for (int i = 0; i < 4000; i++) {
        struct node *copy = node_copy(list);

        copy->next = list->next;
        list->next = copy;
    }
    FAILS(lie_read(&lie, &rows), ERR_FORMAT, "two lists of columns");
    EQUAL_INT(rows, 0);
    lie_end(&lie);
}

/* Guards the places of the page before, whose memory may be gone. */
TEST(a_page_without_values_takes_none_of_another)
{
    static struct lie lie;
    struct page *words = lie_begin(&lie, "small_words"), *data = words->next;
    struct page *copy = mutate_take(sizeof *copy);
    int64_t rows;

    CHECK(data != NULL && data->next == NULL);
    *copy = *data;
    copy->header = node_copy(data->header);
    data->next = copy;
    /* Levels of version 1: a length, then runs; the values go. */
    copy->length = 4 + data->body[0];
    FAILS(lie_read(&lie, &rows), ERR_FORMAT, "its texts end too early");
    EQUAL_INT(rows, 6);
    lie_end(&lie);
}

/* One run of levels, and of places, that says `count` values. */
static status read_run(struct lie *lie, int64_t count, bool null,
                       int64_t *rows)
{
    struct page *data = lie_begin(lie, "small_words")->next;
    struct out out = {.room = 64};

    out.bytes = mutate_take(64);
    put(&out, "\0\0\0", 4);
    put_varint(&out, (uint64_t)count << 1);
    put_byte(&out, !null);
    out.bytes[0] = (uint8_t)(out.at - 4);
    put_byte(&out, 1); /* bits of a place */
    put_varint(&out, (uint64_t)count << 1);
    put_byte(&out, 0);
    data->body = out.bytes;
    data->length = out.at;
    node_set(node_get(data->header, 5), 1, count);
    return lie_read(lie, rows);
}

/* Guards runs: 2^57 nulls never ended, 2^40 words filled the disk. */
TEST(counts_are_what_an_int_holds)
{
    static struct lie lie;
    int64_t rows;

    FAILS(read_run(&lie, (int64_t)1 << 57, true, &rows), ERR_FORMAT,
          "says 144115188075855872 rows");
    lie_end(&lie);
    FAILS(read_run(&lie, (int64_t)1 << 40, false, &rows), ERR_FORMAT,
          "at most 2147483647");
    lie_end(&lie);
    IS_OK(read_run(&lie, INT32_MAX, true, &rows)); /* at once */
    EQUAL_INT(rows, 0);
    lie_end(&lie);
    IS_OK(read_run(&lie, 100000, false, &rows));
    EQUAL_INT(rows, 100000);
    lie_end(&lie);
}

/* Guards rows: those of the footer, of a row group and of a column agree, and
 * no bytes belong to two row groups. */
TEST(the_footer_agrees_with_the_pages)
{
    static struct lie lie;
    struct node *group, *copy;
    int64_t rows, at;

    (void)lie_begin(&lie, "small_words");
    IS_OK(lie_read(&lie, &rows));
    EQUAL_INT(rows, 6);
    group = node_get(lie.shape.footer, 4)->first;
    copy = node_copy(group);
    group->next = copy;
    FAILS(lie_read(&lie, &rows), ERR_FORMAT, "share the bytes");
    status_clear();
    group->next = NULL;
    node_set(group, 3, 7);
    lie.length = shape_write(&lie.shape, lie.bytes, sizeof lie.bytes, false);
    FAILS(parquet_read(&(struct parquet_file){"a.parquet", lie.bytes,
                                              lie.length},
                       "text", take_any, &rows, &at),
          ERR_FORMAT, "says 7 rows and 8 values");
    lie_end(&lie);
}

TEST_MAIN(columns_are_what_was_written, what_is_not_read_is_named,
          damage_is_refused_or_harmless, a_row_group_has_one_list_of_columns,
          a_page_without_values_takes_none_of_another,
          counts_are_what_an_int_holds, the_footer_agrees_with_the_pages)
