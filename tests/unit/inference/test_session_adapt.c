/* SPDX-License-Identifier: Apache-2.0 */
/* test_session_adapt.c - adapters that peft made, beside golden models: logits,
 * in and out again, and what is refused by name. */
#include <math.h>
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "models/lora.h"
#include "tests/test.h"
#include "inference/export.h"
#include "inference/import.h"
#include "inference/score.h"

static const char *const golden = "tests/golden/adapters";
static const char *const models = "tests/golden/models";

/* classes: different ranks and alphas; varied: layers differ. */
static const struct adapter_case {
    const char *name, *model;
    int classes;
    bool varied;
    bool joined; /* what goes out has other ranks */
} cases[] = {
    {"expression", "llama_nine_heads", 1, false, false},
    {"patterns", "llama_untied", 5, true, false},
    {"layers", "qwen2", 1, true, false},
    {"chosen_layers", "mistral", 1, true, false},
    {"conv1d", "gpt2", 1, false, false},
    {"fused", "gpt_neox", 1, false, false},
    {"fused_gate", "phi3", 1, false, false},
    {"pairs", "gptj", 1, false, false},
    {"gemma2", "gemma2", 2, false, false},
    {"experts", "mixtral", 2, false, false},
    {"experts_apart", "deepseek_v3", 2, true, false},
    {"experts_pairs", "gpt_oss", 1, false, true},
    {"experts_turned", "llama4", 2, false, true},
    {"experts_straight", "llama4", 1, false, true},
};

static void join(char out[PATH_BYTES], const char *directory,
                 const char *name)
{
    IS_OK(path_join(out, PATH_BYTES, directory, name));
}

static void put(const char *directory, const char *name, const char *text,
                size_t length)
{
    char path[PATH_BYTES];

    join(path, directory, name);
    IS_OK(file_write_atomic(path, text, length));
}

static void read_whole(const char *directory, const char *name,
                       struct text *out)
{
    char path[PATH_BYTES];

    join(path, directory, name);
    IS_OK(file_read(path, 64 << 20, out));
}

/* Largest difference of the logits over the largest one. */
static double gap_of(const char *found, const char *expected)
{
    struct safetensors files[2] = {0};
    double *values[2], gap = 0, most = 0;
    int64_t count = 0;

    for (int i = 0; i < 2; i++) {
        void *memory;

        IS_OK(safetensors_open(&files[i], i == 0 ? found : expected, true));
        const struct safetensors_entry *entry =
            safetensors_find(&files[i], "logits");

        CHECK(entry != NULL);
        CHECK(i == 0 || entry->elements == count);
        count = entry->elements;
        IS_OK(memory_take((size_t)count, sizeof(double), &memory));
        values[i] = memory;
        IS_OK(safetensors_read(&files[i], entry, 0, count, DTYPE_F64,
                               memory));
        safetensors_close(&files[i]);
    }
    for (int64_t i = 0; i < count; i++) {
        const double here = fabs(values[0][i] - values[1][i]);

        if (!(here <= gap)) gap = here; /* NaN counts */
        if (fabs(values[1][i]) > most) most = fabs(values[1][i]);
    }
    for (int i = 0; i < 2; i++) memory_free(values[i]);
    return gap / most;
}

static void near(const char *model, const char *directory, enum dtype dtype,
                 double within)
{
    char tokens[PATH_BYTES], expected[PATH_BYTES], logits[PATH_BYTES];
    struct score_result result;
    double gap;

    join(tokens, directory, "tokens.json");
    join(expected, directory, "logits.safetensors");
    snprintf(logits, sizeof logits, "%.4000s.logits", model);
    const struct score_request request = {
        .model = model, .tokens = tokens, .dtype = dtype, .logits = logits,
        .threads = 1};

    IS_OK(score(&request, &result));
    gap = gap_of(logits, expected);
    if (!(gap <= within)) {
        print_error("%s: %g, at most %g\n", directory, gap, within);
        test_failed(__FILE__, __LINE__, "near");
    }
}

static void import_beside(const struct adapter_case *row, const char *adapter,
                          const char *run)
{
    char base[PATH_BYTES];
    struct import_result imported;

    join(base, models, row->model);
    IS_OK(model_import(base, run, adapter, NULL, &imported));
    EQUAL_INT(imported.model.lora.class_count, row->classes);
    EQUAL_INT(imported.model.lora.varied, row->varied);
}

TEST(logits_are_those_of_peft)
{
    for (int i = 0; i < ROWS(cases); i++) {
        char directory[PATH_BYTES], adapter[PATH_BYTES], run[PATH_BYTES],
            merged[PATH_BYTES];
        struct export_result exported;

        test_directory(directory);
        join(adapter, golden, cases[i].name);
        join(run, directory, "run");
        join(merged, directory, "merged");
        import_beside(&cases[i], adapter, run);
        near(run, adapter, DTYPE_F64, 1e-10);
        near(run, adapter, DTYPE_F32, 1e-5);
        const struct export_request request = {.model = run,
                                               .directory = merged};

        IS_OK(model_export(&request, &exported));
        near(merged, adapter, DTYPE_F64, 1e-5); /* rounded to float32 once */
        IS_OK(directory_remove(directory));
    }
}

/* Experts that share a tensor outside: gate and up come back as one adapter. */
TEST(joined_adapters_come_in_again)
{
    for (int i = 0; i < ROWS(cases); i++) {
        char directory[PATH_BYTES], adapter[PATH_BYTES], base[PATH_BYTES],
            run[PATH_BYTES], alone[PATH_BYTES], again[PATH_BYTES];
        struct export_result exported;
        struct import_result imported;

        if (!cases[i].joined) continue;
        test_directory(directory);
        join(adapter, golden, cases[i].name);
        join(base, models, cases[i].model);
        join(run, directory, "run");
        join(alone, directory, "alone");
        join(again, directory, "again");
        import_beside(&cases[i], adapter, run);
        const struct export_request request = {
            .model = run, .directory = alone, .adapter = true};

        IS_OK(model_export(&request, &exported));
        IS_OK(model_import(base, again, alone, NULL, &imported));
        near(again, adapter, DTYPE_F64, 1e-10);
        IS_OK(directory_remove(directory));
    }
}

static void same_files(const char *one, const char *other)
{
    static const char *const names[] = {"adapter_config.json",
                                        "adapter_model.safetensors"};

    for (int i = 0; i < ROWS(names); i++) {
        struct text a = {0}, b = {0};

        read_whole(one, names[i], &a);
        read_whole(other, names[i], &b);
        EQUAL_INT(a.length, b.length);
        EQUAL_BYTES(a.bytes, b.bytes, a.length);
        text_free(&a);
        text_free(&b);
    }
}

TEST(what_goes_out_comes_in_again)
{
    for (int i = 0; i < ROWS(cases); i++) {
        char directory[PATH_BYTES], path[3][PATH_BYTES], run[PATH_BYTES];

        if (cases[i].joined) continue;
        test_directory(directory);
        join(path[0], golden, cases[i].name);
        for (int turn = 0; turn < 2; turn++) {
            char name[16];
            struct export_result exported;

            snprintf(name, sizeof name, "run%d", turn);
            join(run, directory, name);
            snprintf(name, sizeof name, "alone%d", turn);
            join(path[turn + 1], directory, name);
            import_beside(&cases[i], path[turn], run);
            const struct export_request request = {
                .model = run, .directory = path[turn + 1], .adapter = true};

            IS_OK(model_export(&request, &exported));
        }
        same_files(path[1], path[2]);
        IS_OK(directory_remove(directory));
    }
}

/* ---- refusals ---- */

/* The settings of a golden adapter with one of them replaced. */
static void change_settings(const char *directory, const char *from,
                            const char *to)
{
    char source[PATH_BYTES];
    struct text text = {0}, changed = {0};
    const char *at;

    join(source, golden, "conv1d");
    read_whole(source, "adapter_config.json", &text);
    IS_OK(text_append(&text, "", 1));
    at = strstr(text.bytes, from);
    CHECK(at != NULL);
    IS_OK(text_append(&changed, text.bytes, (size_t)(at - text.bytes)));
    IS_OK(text_append_string(&changed, to));
    IS_OK(text_append_string(&changed, at + strlen(from)));
    put(directory, "adapter_config.json", changed.bytes, changed.length);
    text_free(&text);
    text_free(&changed);
    read_whole(source, "adapter_model.safetensors", &text);
    put(directory, "adapter_model.safetensors", text.bytes, text.length);
    text_free(&text);
}

static const struct refusal {
    const char *from, *to;
    status code;
    const char *words;
} refusals[] = {
    {"\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"", ERR_CONFIG,
     "an adapter of kind IA3"},
    {"\"use_dora\": false", "\"use_dora\": true", ERR_CONFIG,
     "use_dora is set, which is not supported"},
    {"\"bias\": \"none\"", "\"bias\": \"all\"", ERR_CONFIG, "bias is all"},
    {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]",
     ERR_CONFIG, "modules_to_save is set"},
    {"\"target_parameters\": null",
     "\"target_parameters\": [\"mlp.experts.down_proj\"]", ERR_CONFIG,
     "only weights of routers (gate.weight) and of all experts"},
    {"\"target_parameters\": null", "\"target_parameters\": [1]", ERR_FORMAT,
     "target_parameters[0] is not a string"},
    {"\"lora_bias\": false", "\"lora_bias\": true", ERR_CONFIG,
     "lora_bias is set"},
    {"\"trainable_token_indices\": null", "\"trainable_token_indices\": [1]",
     ERR_CONFIG, "trainable_token_indices is set"},
    {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa_niter_4\"",
     ERR_CONFIG, "init_lora_weights is pissa_niter_4"},
    {"\"use_qalora\": false", "\"from_the_future\": {\"a\": 1}", ERR_CONFIG,
     "from_the_future is set"},
    {"\"r\": 2", "\"r\": 0", ERR_FORMAT, "r is 0"},
    {"\"r\": 2", "\"r\": 3", ERR_FORMAT, "has shape [2, 40], the model needs "
     "[3, 40]"},
    {"\"attn.c_proj\"", "\"nothing\"", ERR_FORMAT,
     "4 of 8 tensors were not used"},
    {"\"attn.c_proj\"", "\"c_proj\"", ERR_FORMAT,
     "has no tensor base_model.model.transformer.h.0.mlp.c_proj"},
    {"\"target_modules\": [", "\"target_modules\": null, \"x\": [",
     ERR_CONFIG, "x is set"},
    {"\"rank_pattern\": {}", "\"rank_pattern\": {\"(c_attn\": 3}", ERR_FORMAT,
     "the pattern is wrong"},
    {"\"rank_pattern\": {}", "\"rank_pattern\": {\"c_attn\": 0}", ERR_FORMAT,
     "not a rank from 1 to 4096"},
    {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"c_.*\": \"a\"}",
     ERR_FORMAT, "not a number"},
    {"\"exclude_modules\": null", "\"exclude_modules\": \".*\"", ERR_CONFIG,
     "names no matrix of this model's blocks"},
};

TEST(what_is_not_computed_is_named)
{
    for (int i = 0; i < ROWS(refusals); i++) {
        const struct refusal *row = &refusals[i];
        char directory[PATH_BYTES], run[PATH_BYTES], base[PATH_BYTES];
        struct import_result result;

        test_directory(directory);
        join(run, directory, "run");
        join(base, models, "gpt2");
        change_settings(directory, row->from, row->to);
        FAILS(model_import(base, run, directory, NULL, &result), row->code,
              row->words);
        CHECK(!file_exists(run));
        IS_OK(directory_remove(directory));
    }
    status_clear();
}

/* The last value of a file; what it is of, and where. */
static void spoil(const char *directory, const char *name)
{
    static const unsigned char nan[8] = {0, 0, 0, 0, 0, 0, 0xF8, 0x7F};
    struct text text = {0};

    read_whole(directory, name, &text);
    memcpy(text.bytes + text.length - 8, nan, 8);
    put(directory, name, text.bytes, text.length);
    text_free(&text);
}

/* An adapter and the weights beside which it stands alike. */
TEST(values_that_are_none_are_named)
{
    char directory[PATH_BYTES], run[PATH_BYTES], base[PATH_BYTES],
        copy[PATH_BYTES];
    static const char *const files[] = {"config.json", "model.safetensors"};
    struct import_result result;

    test_directory(directory);
    join(run, directory, "run");
    join(base, models, "gpt2");
    join(copy, directory, "copy");
    change_settings(directory, "\"r\"", "\"r\"");
    spoil(directory, "adapter_model.safetensors");
    FAILS(model_import(base, run, directory, NULL, &result), ERR_FORMAT,
          "lora_B.weight: the value at [");
    CHECK(!file_exists(run));
    IS_OK(directory_make(copy));
    for (int i = 0; i < ROWS(files); i++) {
        struct text text = {0};

        read_whole(base, files[i], &text);
        put(copy, files[i], text.bytes, text.length);
        text_free(&text);
    }
    spoil(copy, "model.safetensors");
    FAILS(model_import(copy, run, NULL, NULL, &result), ERR_FORMAT,
          "] is NaN; weights must be finite");
    CHECK(!file_exists(run));
    IS_OK(directory_remove(directory));
    status_clear();
}

TEST(a_directory_without_adapters_is_named)
{
    char directory[PATH_BYTES], run[PATH_BYTES], base[PATH_BYTES];
    struct import_result result;

    test_directory(directory);
    join(run, directory, "run");
    join(base, models, "gpt2");
    FAILS(model_import(base, run, base, NULL, &result), ERR_MISSING,
          "has no adapter_config.json");
    change_settings(directory, "\"r\"", "\"r\"");
    /* Llama has no c_attn. */
    join(base, models, "llama_untied");
    FAILS(model_import(base, run, directory, NULL, &result), ERR_CONFIG,
          "names no matrix of this model's blocks");
    IS_OK(directory_remove(directory));
    status_clear();
}

/* A run names its targets plainly; expressions need the importer. */
TEST(expressions_need_a_matcher)
{
    struct model model;
    char path[PATH_BYTES], directory[PATH_BYTES];

    join(directory, models, "llama_nine_heads");
    IS_OK(model_from_config(&model, directory));
    join(path, golden, "expression/adapter_config.json");
    FAILS(lora_read_config(&model, path, NULL), ERR_CONFIG,
          "is a regular expression; `lockstep import");
    status_clear();
}

TEST_MAIN(logits_are_those_of_peft, joined_adapters_come_in_again,
          what_goes_out_comes_in_again,
          what_is_not_computed_is_named, values_that_are_none_are_named,
          a_directory_without_adapters_is_named,
          expressions_need_a_matcher)
