/* SPDX-License-Identifier: Apache-2.0 */
/* test_numbers.c - mirrors src/models/numbers.c: a number comes from its
 * option, and families that do not have it refuse the option. */
#include <string.h>

#include "models/numbers.h"
#include "tests/test.h"

static void set(struct options_set *set, const char *name, const char *value)
{
    char text[96];

    snprintf(text, sizeof text, "model.%s=%s", name, value);
    IS_OK(options_assign(set, text, ORIGIN_COMMAND_LINE));
}

TEST(an_option_becomes_a_number_or_is_refused)
{
    const struct model_kind *const kinds[] = {&model_llama, &model_gemma2,
                                              &model_gpt2};

    for (int i = 0; i < model_number_count; i++) {
        const struct model_number *number = &model_numbers[i];
        struct options_set options;
        struct model model = {0};

        IS_OK(options_init(&options));
        set(&options, number->name, "7");
        CHECK(model_number_option(number, &options.values) == 7);
        model_numbers_take(&model, &options.values);
        CHECK(model_number_value(number, &model) == 7);
        for (int k = 0; k < ROWS(kinds); k++) {
            const status result =
                model_numbers_check(kinds[k], &options.values);

            if (model_number_is_of(number, kinds[k])) IS_OK(result);
            else FAILS(result, ERR_CONFIG, number->name);
            status_clear();
        }
        options_free(&options);
    }
}

/* The rows that the families' published files name. */
TEST(families_have_their_numbers)
{
    static const struct {
        const char *name;
        const struct model_kind *kind;
        bool has;
    } rows[] = {{"query_scale", &model_gemma2, true},
                {"query_scale", &model_llama, false},
                {"attention_softcap", &model_gemma2, true},
                {"head_softcap", &model_gemma2, true},
                {"head_softcap", &model_gpt2, false},
                {"logits_scaling", &model_llama, false},
                {"rope_local_base", &model_gemma2, false}};

    for (int i = 0; i < ROWS(rows); i++) {
        int at = 0;

        while (at < model_number_count &&
               strcmp(model_numbers[at].name, rows[i].name) != 0)
            at++;
        CHECK(at < model_number_count);
        CHECK(model_number_is_of(&model_numbers[at], rows[i].kind) ==
              rows[i].has);
    }
}

TEST_MAIN(an_option_becomes_a_number_or_is_refused, families_have_their_numbers)
