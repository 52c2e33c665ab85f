/* SPDX-License-Identifier: Apache-2.0 */
/* test_table.c - mirrors src/cli/table.c. */
#include "cli/table.h"
#include "tests/test.h"

static const struct table_column columns[] = {
    {"name", "name", false}, {"size", "bytes", true}, {"fits", "fits", false}};

static void fill(struct table *table)
{
    table_begin(table, columns, 3);
    table_text(table, "caf\xC3\xA9");
    table_bytes(table, 1536);
    table_bool(table, true);
    table_text(table, NULL);
    table_real(table, 0.125, 3);
    table_integer(table, 1234567);
}

static void read_back(FILE *file, char *out, size_t size)
{
    rewind(file);
    out[fread(out, 1, size - 1, file)] = '\0';
    fclose(file);
}

TEST(columns_line_up)
{
    struct table table;
    FILE *file = tmpfile();
    char text[512];

    fill(&table);
    IS_OK(table_print(&table, file));
    table_free(&table);
    read_back(file, text, sizeof text);
    EQUAL_TEXT(text, "name     size  fits\n"
                     "caf\xC3\xA9  1.5 KiB  yes\n"
                     "-       0.125  1,234,567\n");
}

TEST(json_has_the_whole_values)
{
    struct table table;
    struct json_writer writer = {0};
    FILE *file = tmpfile();
    char text[512];

    fill(&table);
    json_write_begin(&writer, 0);
    IS_OK(table_json(&table, &writer));
    IS_OK(json_print(&writer, file));
    table_free(&table);
    read_back(file, text, sizeof text);
    EQUAL_TEXT(text, "[{\"name\": \"caf\xC3\xA9\", \"bytes\": 1536, "
                     "\"fits\": true}, {\"name\": null, \"bytes\": 0.125, "
                     "\"fits\": 1234567}]\n");
}

TEST_MAIN(columns_line_up, json_has_the_whole_values)
