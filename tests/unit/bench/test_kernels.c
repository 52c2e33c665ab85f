/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels.c - mirrors src/bench/kernels.c: rows are printed and written,
 * and say that fast kernels equal the reference. */
#include "bench/kernels.h"

#include "tests/test.h"

static const struct bench_kernels_settings rope_only = {
    .only = "rope", .seconds = 1e-6, .threads = 2, .every = true,
    .check = CHECK_ALL};

TEST(rows_are_printed)
{
    char text[4096] = "";
    FILE *out = fmemopen(text, sizeof text - 1, "w");

    CHECK(out != NULL);
    IS_OK(bench_kernels(&rope_only, out, NULL));
    fclose(out);
    CHECK(strstr(text, "2 threads") != NULL);
    CHECK(strstr(text, "4096 x 12 x 64") != NULL);
    CHECK(strstr(text, "EXACT") != NULL);
    CHECK(strstr(text, "bfloat16") != NULL);
    CHECK(strstr(text, "float16  ") == strstr(text, "bfloat16  ") + 1);
    CHECK(strstr(text, "adamw") == NULL);
}

TEST(rows_are_written)
{
    struct json_writer json;
    const struct json *root, *row;
    struct arena arena;
    double fraction, peak;
    const char *name;

    json_write_begin(&json, 0);
    IS_OK(bench_kernels(&rope_only, NULL, &json));
    IS_OK(json_write_end(&json));
    arena_init(&arena, "test", 0);
    IS_OK(json_read(&root, &arena, json.out.bytes, json.out.length, "bench"));
    IS_OK(json_get_real(root, "bench", "peak_flops", &peak));
    CHECK(peak > 1e6);
    EQUAL_INT(json_get(root, "kernels")->count, 2);
    row = json_get(root, "kernels")->items[0].kind == JSON_OBJECT
              ? &json_get(root, "kernels")->items[0] : NULL;
    CHECK(row != NULL);
    IS_OK(json_get_string(row, "bench", "kernel", &name));
    EQUAL_TEXT(name, "rope");
    IS_OK(json_get_string(row, "bench", "dtype", &name));
    EQUAL_TEXT(name, "float32");
    IS_OK(json_get_real(row, "bench", "limit_fraction", &fraction));
    CHECK(fraction > 0);
    EQUAL_INT(json_get(row, "exact")->kind, JSON_TRUE);
    json_writer_free(&json);
    arena_free(&arena);
}

TEST(unknown_names_are_refused)
{
    struct bench_kernels_settings settings = rope_only;
    char text[4096];
    FILE *out = fmemopen(text, sizeof text, "w");

    settings.only = "convolution";
    CHECK(out != NULL);
    FAILS(bench_kernels(&settings, out, NULL), ERR_CONFIG, "convolution");
    fclose(out);
}

TEST_MAIN(rows_are_printed, rows_are_written, unknown_names_are_refused)
