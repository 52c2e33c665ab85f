/* SPDX-License-Identifier: Apache-2.0 */
/* test_format.c - mirrors src/tensor/format.c: every code, and a dense set of
 * inputs, against ml_dtypes and PyTorch (tests/golden/make_formats.py);
 * stochastic rounding is unbiased; rounding away never cuts off. */
#include "tensor/format.h"

#include <math.h>

#include "base/random.h"
#include "checkpoint/safetensors.h"
#include "tests/test.h"
#include "tests/unit/number_codes.h"

static const char *const path = "tests/golden/precision/formats.safetensors";

struct codes {
    uint32_t *inputs, *codes; /* bits of float32; both owned */
    int64_t count;
};

/* A tensor of 1 or 4 bytes an element, widened. */
static int64_t read_words(struct safetensors *file, const char *name,
                          uint32_t **out)
{
    const struct safetensors_entry *entry = safetensors_find(file, name);
    const size_t bytes = (size_t)(entry->bytes / entry->elements);
    void *words, *raw;
    FILE *stream = fopen(path, "rb");

    IS_OK(memory_take((size_t)entry->elements, sizeof **out, &words));
    IS_OK(memory_take((size_t)entry->elements, bytes, &raw));
    CHECK(stream != NULL && fseek(stream, (long)entry->first, SEEK_SET) == 0);
    EQUAL_INT(fread(raw, bytes, (size_t)entry->elements, stream),
              entry->elements);
    fclose(stream);
    *out = words;
    for (int64_t i = 0; i < entry->elements; i++)
        (*out)[i] = bytes == 1 ? ((uint8_t *)raw)[i] : ((uint32_t *)raw)[i];
    memory_free(raw);
    return entry->elements;
}

static struct codes codes_open(const char *name)
{
    struct safetensors file = {0};
    struct codes codes;

    IS_OK(safetensors_open(&file, path, true));
    codes.count = read_words(&file, "inputs", &codes.inputs);
    EQUAL_INT(read_words(&file, name, &codes.codes), codes.count);
    safetensors_close(&file);
    return codes;
}

static void codes_close(struct codes *codes)
{
    memory_free(codes->inputs);
    memory_free(codes->codes);
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static bool same_number(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

/* Every code stands for the value that ml_dtypes gives it, and is the code of
 * that value. */
TEST(every_code_is_that_of_ml_dtypes)
{
    static const char *const names[] = {"e4m3", "e5m2", "e4m3b11", "e2m1",
                                        "e8m0"};
    const struct format_cast cast = {0};
    struct safetensors file = {0};

    IS_OK(safetensors_open(&file, path, true));
    for (int i = 0; i < ROWS(names); i++) {
        enum number_format format;
        char name[32];
        uint32_t *values;
        int64_t count;

        CHECK(format_parse(names[i], &format));
        snprintf(name, sizeof name, "%s.values", names[i]);
        count = read_words(&file, name, &values);
        EQUAL_INT(count, 1 << number_formats[format].bits);
        for (uint32_t code = 0; code < count; code++) {
            const float value = format_decode(format, code);

            if (!same_number(value, float_of(values[code])))
                print_error("%s: code %u\n", names[i], code);
            CHECK(same_number(value, float_of(values[code])));
            if (isnan(value)) continue;
            EQUAL_INT(format_encode(format, value, &cast), code);
        }
        memory_free(values);
    }
    safetensors_close(&file);
}

/* Formats that ml_dtypes lacks, too: encoding what was decoded gives the code
 * back, and magnitudes ascend with their codes. */
TEST(codes_come_back)
{
    const struct format_cast cast = {0};

    for (int i = FORMAT_E4M3; i < FORMAT_E8M0; i++) {
        const struct format *f = &number_formats[i];
        float before = -1;

        for (uint32_t code = 0; code <= f->most; code++) {
            const float x = format_decode((enum number_format)i, code);

            CHECK(x > before);
            before = x;
            EQUAL_INT(format_encode((enum number_format)i, x, &cast), code);
            if (code == 0) continue;
            CHECK(format_decode((enum number_format)i,
                                format_encode((enum number_format)i, -x,
                                              &cast)) == -x);
        }
        CHECK(before == f->largest);
    }
}

/* Bits of what torch and ml_dtypes round, and of exact distances. */
TEST(numbers_round_as_ml_dtypes_and_torch_round_them)
{
    static const struct { const char *name; bool saturate; } rows[] = {
        {"e4m3.codes", false}, {"e5m2.codes", false}, {"e4m3b11.codes", false},
        {"e2m1.codes", false}, {"e8m0.codes", false}, {"e5m6.codes", false},
        {"e3m0.codes", false}, {"int8.codes", false}, {"ternary.codes", false},
        {"e4m3.torch", true}, {"e5m2.torch", false}, {"e8m0.torch", false}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct codes codes = codes_open(rows[i].name);
        const struct format_cast cast = {.saturate = rows[i].saturate};
        enum number_format format;
        char name[32];

        snprintf(name, sizeof name, "%s", rows[i].name);
        *strchr(name, '.') = '\0';
        CHECK(format_parse(name, &format));
        for (int64_t j = 0; j < codes.count; j++) {
            const float x = float_of(codes.inputs[j]);
            const uint32_t code = format_encode(format, x, &cast);

            if (isnan(x) && format == FORMAT_E2M1) continue;
            if (!(x > 0) && format == FORMAT_E8M0) continue;
            if (isnan(format_decode(format, code)) &&
                isnan(format_decode(format, codes.codes[j])))
                continue;
            if (code != codes.codes[j])
                print_error("%s: %a is %u, not %u\n", rows[i].name, (double)x,
                            code, codes.codes[j]);
            EQUAL_INT(code, codes.codes[j]);
        }
        codes_close(&codes);
    }
}

TEST(rounding_away_cuts_nothing_off)
{
    const struct format_cast cast = {.rounding = ROUND_AWAY};

    for (int i = 0; i < 20000; i++) {
        const float x = float_of(0x38000000u + (uint32_t)i * 6719u);

        for (int f = FORMAT_E4M3; f < FORMAT_COUNT; f++) {
            if (x > number_formats[f].largest) continue;
            const uint32_t code =
                format_encode((enum number_format)f, x, &cast);

            CHECK(format_decode((enum number_format)f, code) >= x);
            if (code > 0 && f != FORMAT_E8M0)
                CHECK(format_decode((enum number_format)f, code - 1) < x);
        }
    }
}

/* The mean over draws is the number itself, within 5 sigma of a coin, and only
 * the two neighbours are drawn. */
TEST(stochastic_rounding_is_unbiased)
{
    enum { DRAWS = 20000 };
    const struct random_key key = random_key_make(5, "test");
    static const float parts[] = {0.03f, 0.25f, 0.5f, 0.77f};

    for (int f = FORMAT_E4M3; f < FORMAT_E8M0; f++)
        for (int i = 0; i < ROWS(parts); i++) {
            const uint32_t lower = (uint32_t)i % number_formats[f].most;
            const float a = format_decode((enum number_format)f, lower);
            const float b = format_decode((enum number_format)f, lower + 1);
            const float x = a + (b - a) * parts[i];
            int64_t up = 0;

            for (uint64_t n = 0; n < DRAWS; n++) {
                uint32_t words[4], code;

                random_block(key, n, (uint64_t)f, words);
                const struct format_cast cast = {
                    .rounding = ROUND_STOCHASTIC, .random = words[0]};

                code = format_encode((enum number_format)f, x, &cast);
                CHECK(code == lower || code == lower + 1);
                up += code == lower + 1;
            }
            const double p = (double)parts[i];

            CHECK(fabs((double)up - DRAWS * p) <
                  5 * sqrt(DRAWS * p * (1 - p)));
        }
}

TEST_MAIN(every_code_is_that_of_ml_dtypes, codes_come_back,
          numbers_round_as_ml_dtypes_and_torch_round_them,
          rounding_away_cuts_nothing_off, stochastic_rounding_is_unbiased)
