/* SPDX-License-Identifier: Apache-2.0 */
/* test_machine.c - mirrors src/planner/machine.c and profile_file.c. */
#include "planner/machine.h"

#include <stdlib.h>

#include "planner/cost_parts.h"
#include "tests/test.h"

static status open_text(struct machine *m, const char *text, const char *key,
                        bool foreign)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    status result;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "machine.txt"));
    IS_OK(file_write_atomic(path, text, strlen(text)));
    result = machine_open(m, &(struct machine_choice){path, key, foreign,
                                                      NULL});
    IS_OK(directory_remove(directory));
    return result;
}

TEST(what_is_written_reads_back)
{
    struct machine m, again;
    struct text text = {0};

    IS_OK(machine_open(&m, &(struct machine_choice){"h100,gemm=0.72", "",
                                                    false, NULL}));
    CHECK(m.value[M_GEMM] == 0.72 && m.mark[M_GEMM] == MARK_BY_HAND);
    IS_OK(machine_write(&m, &text));
    IS_OK(open_text(&again, text.bytes, "", false));
    for (int i = 0; i < M_CONSTANTS; i++)
        CHECK(m.value[i] == again.value[i] && m.mark[i] == again.mark[i]);
    text_free(&text);
    machine_free(&m);
    machine_free(&again);
}

TEST(a_person_corrects_one_constant)
{
    struct machine m;

    IS_OK(open_text(&m, "# ours\nfrom: h100\ngemm: 0.72 # seen\n", "", false));
    CHECK(m.value[M_GEMM] == 0.72 && m.value[M_PEAK_16] == 989e12);
    machine_free(&m);
}

TEST(bad_files_get_a_sentence)
{
    static const struct { const char *text, *words; status code; } rows[] = {
        {"", "is empty", ERR_FORMAT},
        {"gemm: 0.5\n", "before the constants", ERR_FORMAT},
        {"from: h101\n", "is no preset", ERR_CONFIG},
        {"from: h100\ngem: 0.5\n", "the nearest is gemm", ERR_CONFIG},
        {"from: h100\ngemm: -1\n", "expected 1e-06 to 1", ERR_CONFIG},
        {"from: h100\ngemm: fast\n", "is not a number", ERR_FORMAT},
        {"{}", "version", ERR_FORMAT},
        {"{\"version\": 2, \"constants\": {}}", "version is 2", ERR_FORMAT},
        {"{\"version\": 1, \"constants\": 3}", "constants: expected an object",
         ERR_FORMAT},
        {"{\"version\": 1, \"roundings\": [{\"how\": \"\", \"rows\": 1, "
         "\"width\": 1, \"seconds\": 1}]}", "how is \"\"", ERR_FORMAT},
        {"{\"version\": 1, \"roundings\": [{\"how\": \"rotate rows\", "
         "\"rows\": 0, \"width\": 1, \"seconds\": 1}]}", "0 rows of 1",
         ERR_FORMAT},
        {"{\"version\": 1, \"roundings\": [{\"how\": \"rotate rows\", "
         "\"rows\": 1, \"width\": 1, \"seconds\": -1}]}",
         "roundings: seconds is -1", ERR_FORMAT},
        {"{\"version\": 1, \"constants\": {\"gemm\": -0.5}}", "gemm is -0.5",
         ERR_CONFIG},
        {"{\"version\": 1, \"constants\": {\"gemm\": \"a\"}}",
         "expected a number", ERR_FORMAT},
        {"{\"version\": 1, \"constants\": {}, \"products\": [{\"m\": 1}]}",
         "n", ERR_FORMAT},
        {"{\"version\": 1, \"constants\": {}, \"products\": [{\"m\": 1, "
         "\"n\": 1, \"k\": 1, \"bits\": 32, \"seconds\": -2}]}",
         "expected 1e-12 to 1e+06", ERR_FORMAT},
        {"{\"version\": 1, \"constants\": {}, \"products\": [{\"m\": 1, "
         "\"n\": 1, \"k\": 1, \"bits\": 32, \"kind\": \"tt\", "
         "\"seconds\": 1}]}",
         "kind is tt; expected one like nt", ERR_FORMAT},
        {"{\"version\": 1, \"constants\": {}, \"works\": "
         "[{\"work\": \"rest\"}]}",
         "work is rest; expected one like attention", ERR_FORMAT},
        {"{\"version\": 1, \"constants\": {}, \"works\": "
         "[{\"work\": \"norm\", \"rows\": 0, \"width\": 1}]}",
         "0 rows of 1 elements", ERR_FORMAT},
        {"{\"version\": 1, \"constants\": {}, \"works\": "
         "[{\"work\": \"norm\", \"rows\": 8, \"width\": 1, "
         "\"amount\": 0, \"seconds\": 1}]}",
         "works: amount is 0", ERR_FORMAT},
        {"{\"version\": 1, \"constants\": {}, \"works\": "
         "[{\"work\": \"norm\", \"rows\": 8, \"width\": 1, "
         "\"amount\": 8, \"seconds\": 1e308}]}",
         "works: seconds is 1e+308; expected 1e-12 to 1e+06", ERR_FORMAT},
        {"{\"version\": 1, \"constants\": {}, \"works\": "
         "[{\"work\": \"norm\", \"rows\": 8, \"width\": 1, "
         "\"amount\": 1e-308, \"seconds\": 1}]}",
         "works: amount is 1e-308; expected 1 to 1e+24", ERR_FORMAT},
        {"{\"version\": 1, \"constants\": {}, \"collectives\": [{\"op\": "
         "\"send\", \"path\": \"node\", \"ranks\": 2, \"bytes\": [8, 4], "
         "\"seconds\": [1, 2]}]}", "ascend", ERR_FORMAT},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct machine m;

        FAILS(open_text(&m, rows[i].text, "", false), rows[i].code,
              rows[i].words);
        status_clear();
    }
}

TEST(a_profile_of_another_machine_is_refused)
{
    static const char text[] =
        "{\"version\": 1, \"key\": \"A, 2 cores\", \"constants\": {}}";
    struct machine m;

    FAILS(open_text(&m, text, "B, 2 cores", false), ERR_CONFIG,
          "measured on \"A, 2 cores\"");
    status_clear();
    IS_OK(open_text(&m, text, "B, 2 cores", true));
    machine_free(&m);
    IS_OK(open_text(&m, text, "A, 2 cores", false));
    machine_free(&m);
}

/* All constants are those of the preset then. */
TEST(a_profile_may_have_no_constants)
{
    struct machine m;

    IS_OK(open_text(&m, "{\"version\": 1, \"from\": \"h100\", "
                        "\"roundings\": [{\"how\": \"rotate rows\", "
                        "\"rows\": 2, \"width\": 3, \"seconds\": 0.5}]}",
                    "", false));
    CHECK(m.value[M_DEVICES] == 8 && m.mark[M_GEMM] == MARK_FITTED);
    CHECK(m.rounding_count == 1 && m.roundings[0].threads == 1);
    EQUAL_TEXT(m.roundings[0].how, "rotate rows");
    machine_free(&m);
}

TEST(a_profile_keeps_what_was_left_out)
{
    struct text text = {0};
    struct machine m, again;

    IS_OK(open_text(&m, "{\"version\": 1, \"left_out\": {\"works\": 7, "
                        "\"large\": 2}}", "", false));
    EQUAL_INT(m.left_out.works, 7);
    EQUAL_INT(m.left_out.large, 2);
    EQUAL_INT(m.left_out.products, 0);
    IS_OK(machine_write(&m, &text));
    IS_OK(open_text(&again, text.bytes, "", false));
    CHECK(memcmp(&m.left_out, &again.left_out, sizeof m.left_out) == 0);
    text_free(&text);
    machine_free(&again);
    machine_free(&m);
    FAILS(open_text(&m, "{\"version\": 1, \"left_out\": {\"works\": -1}}", "",
                    false), ERR_FORMAT, "works is -1; expected 0 to");
    status_clear();
}

/* "80 GB" are about 79 GiB, of which a process needs some for itself. */
TEST(memory_is_what_a_process_gets)
{
    for (int i = 0; i < machine_preset_count; i++) {
        const struct machine_preset *preset = &machine_presets[i];
        const char *gb = strstr(preset->title, " GB");
        const char *at = gb;
        double named = 0;

        if (preset->apart[M_MEMORY_BYTES] == NULL || gb == NULL) continue;
        while (at > preset->title && at[-1] >= '0' && at[-1] <= '9') at--;
        named = atof(at);
        CHECK(preset->value[M_MEMORY_BYTES] < named * 0x1p30);
        CHECK(preset->value[M_MEMORY_BYTES] > 0.97 * named * 0x1p30);
    }
}

/* No constant is called fitted that fit.py does not fit, or that a preset has
 * no value of its own for. */
TEST(fitted_is_what_the_script_fits)
{
    static const int fits[] = {M_GEMM, M_GEMM_HALF, M_ATTENTION, M_MEMORY,
                               M_LINK, M_NIC, M_STEP};

    for (int i = 0; i < machine_preset_count; i++) {
        const struct machine_preset *preset = &machine_presets[i];
        struct machine m;

        machine_from_preset(&m, preset);
        for (int c = 0; c < M_CONSTANTS; c++) {
            bool fit = false;

            for (int k = 0; k < ROWS(fits); k++) fit = fit || fits[k] == c;
            if (m.mark[c] == MARK_FITTED)
                CHECK(fit && preset->value[c] != 0);
            if (preset->value[c] == 0) EQUAL_INT(m.mark[c], MARK_ASSUMED);
        }
        machine_free(&m);
    }
}

TEST(unknown_machines_are_named)
{
    struct machine m;

    FAILS(machine_open(&m, &(struct machine_choice){"h10", "", false, NULL}),
          ERR_CONFIG, "the nearest preset is h100");
    status_clear();
    FAILS(machine_open(&m, &(struct machine_choice){"h100,gemm", "", false,
                                                    NULL}),
          ERR_CONFIG, "NAME=VALUE");
    status_clear();
    FAILS(machine_open(&m, &(struct machine_choice){
              "h100,gemm=0.5,nic_rate=25e9,gemm=0.6", "", false, NULL}),
          ERR_CONFIG, "gemm is corrected twice");
    status_clear();
}

/* Where a machine has a peak of 4 bits; others make them at that of 8. */
TEST(products_of_4_bits_have_their_peak)
{
    const struct shape shape = {.layers = 1};
    struct layout l = {.as = AS_NEMO, .bits = 8, .four_bits = true};
    struct machine machine;
    const struct cost cost = {&machine, &shape, &l};

    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "b200"}));
    CHECK(cost_peak(&cost, 8) == 9000e12 && cost_peak(&cost, 16) == 2250e12);
    l.four_bits = false;
    CHECK(cost_peak(&cost, 8) == 4500e12);
    machine_free(&machine);
    l.four_bits = true;
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    CHECK(cost_peak(&cost, 8) == 1979e12);
    machine_free(&machine);
}

TEST_MAIN(products_of_4_bits_have_their_peak,
          what_is_written_reads_back, a_person_corrects_one_constant,
          bad_files_get_a_sentence, a_profile_of_another_machine_is_refused,
          a_profile_may_have_no_constants,
          a_profile_keeps_what_was_left_out, memory_is_what_a_process_gets,
          fitted_is_what_the_script_fits, unknown_machines_are_named)
