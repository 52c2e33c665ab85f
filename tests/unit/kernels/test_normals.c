/* SPDX-License-Identifier: Apache-2.0 */
/* test_normals.c - mirrors src/kernels/cpu/normals.c: every instruction set
 * that this machine has gives, bit for bit, what one number after the other
 * gives by base/random.h and kernels/math.h. */
#include <math.h>
#include <string.h>
#include "kernels/isa.h"
#include "kernels/kernels.h"
#include "kernels/math.h"
#include "tests/test.h"

enum { PAIRS = 300 };

static double uniform(const uint32_t word[2])
{
    return ((double)word[0] * 0x1p21 + (double)(word[1] >> 11)) * 0x1p-53;
}

/* Elements of a call that differ from the definition. */
static int count_wrong(enum isa isa, const struct normals *normals)
{
    double out[2 * PAIRS + 1];
    int wrong = 0;

    out[2 * normals->pairs] = 7;
    kernels_normals(isa, normals, out);
    for (int64_t i = 0; i < normals->pairs; i++) {
        uint32_t word[4];

        random_block(normals->key, (uint64_t)(normals->first + i), 0, word);
        const double radius = normals->deviation *
                              sqrt(-2 * math_log(1 - uniform(word)));
        const double angle = 0x1.921fb54442d18p+2 * uniform(word + 2);
        const double want[2] = {radius * math_cos(angle),
                                radius * math_sin(angle)};

        wrong += memcmp(want, out + 2 * i, sizeof want) != 0;
    }
    return wrong + (out[2 * normals->pairs] != 7); /* nothing beyond */
}

TEST(all_instruction_sets_keep_the_definition)
{
    /* Counters below and beyond 32 bits, whole vectors and what is left. */
    static const struct {
        const char *name;
        uint64_t seed;
        int64_t first, pairs;
        double deviation;
    } rows[] = {{"embedding", 1, 0, PAIRS, 0.02},
                {"embedding", 2, 7, 1, 1},
                {"layers.0.ffn.w2", 3, 1000003, 23, 0.02 / 7},
                {"head", UINT64_MAX, 0xfffffff0, 64, 0.02},
                {"head", 0, INT64_MAX - 100, 99, 3}};
    struct kernels kernels;

    for (enum isa isa = ISA_AUTO; isa < ISA_COUNT; isa++) {
        if (kernels_get(&kernels, DTYPE_F32, isa) != OK) {
            status_clear(); /* not of this machine */
            continue;
        }
        for (int i = 0; i < ROWS(rows); i++) {
            const struct normals normals = {
                random_key_make(rows[i].seed, rows[i].name), rows[i].first,
                rows[i].pairs, rows[i].deviation};

            if (count_wrong(isa, &normals) != 0)
                print_error("%s, row %d\n", isa_name(isa), i);
            CHECK(count_wrong(isa, &normals) == 0);
        }
    }
}

TEST(numbers_are_normal)
{
    enum { CALLS = 2000 };
    double sum = 0, squares = 0, fourths = 0, out[2 * PAIRS];
    const double count = 2.0 * PAIRS * CALLS;

    for (int call = 0; call < CALLS; call++) {
        const struct normals normals = {random_key_make(5, "moments"),
                                        (int64_t)call * PAIRS, PAIRS, 1};

        kernels_normals(ISA_AUTO, &normals, out);
        for (int i = 0; i < 2 * PAIRS; i++) {
            const double square = out[i] * out[i];

            sum += out[i];
            squares += square;
            fourths += square * square;
        }
    }
    CHECK(fabs(sum / count) < 0.004);
    CHECK(fabs(squares / count - 1) < 0.006);
    CHECK(fabs(fourths / count - 3) < 0.04);
}

TEST_MAIN(all_instruction_sets_keep_the_definition, numbers_are_normal)
