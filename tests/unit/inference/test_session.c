/* SPDX-License-Identifier: Apache-2.0 */
/* test_session.c - models from every kind of directory, in and out again, and
 * what is refused. */
#include "base/json.h"
#include "checkpoint/weights_write.h"
#include "tests/test.h"
#include "inference/export.h"
#include "inference/import.h"
#include "inference/score.h"

static const char *const golden = "tests/golden/models";
static const char *const models[] = {
    "llama_untied", "llama_tied_bias", "llama_nine_heads", "llama_linear",
    "llama_llama3", "llama_yarn", "llama_yarn_scales", "llama_dynamic",
    "smollm2", "smollm3", "qwen2", "qwen2_yarn", "qwen3", "qwen3_bias",
    "mistral_window", "mistral_short", "mistral", "olmo2", "phi3",
    "phi3_part", "stablelm",
    "stablelm_parallel", "starcoder2", "gpt_neox", "gpt_neox_serial",
    "gptj", "falcon", "falcon_groups", "falcon_heads", "palm", "gemma",
    "gemma2", "gemma3", "gemma3_v5", "gpt2", "gpt2_plain_names",
    "qwen2_last", "qwen3_mixed", "smollm3_nope", "smollm3_mixed",
    "ministral", "gemma2_mixed", "gemma3_mixed", "phi3_short",
    "starcoder2_short", "phi3_long", "phi3_long_part",
    "llama_dynamic_long", "stablelm_heads", "stablelm_heads_serial",
    "falcon_2", "falcon_rw", "gpt2_layer_scale", "mixtral", "mixtral_all",
    "mixtral_geglu",
    "olmoe", "qwen2_moe", "deepseek", "deepseek_v2",
    "deepseek_v2_lite", "deepseek_v3", "qwen3_moe", "granitemoe", "glm4_moe",
    "gpt_oss", "phimoe", "llama4", "dots1",
    "glm4_moe_lite", "minimax_m2", "flex_olmo", "ernie4_5_moe",
    "granitemoeshared", "solar_open"};

static void join(char out[PATH_BYTES], const char *directory,
                 const char *name)
{
    IS_OK(path_join(out, PATH_BYTES, directory, name));
}

static void copy(const char *from, const char *to, const char *name)
{
    char path[PATH_BYTES];
    struct text text = {0};

    join(path, from, name);
    IS_OK(file_read(path, 64 << 20, &text));
    join(path, to, name);
    IS_OK(file_write_atomic(path, text.bytes, text.length));
    text_free(&text);
}

static void put(const char *directory, const char *name, const char *text)
{
    char path[PATH_BYTES];

    join(path, directory, name);
    IS_OK(file_write_atomic(path, text, strlen(text)));
}

static bool equal_files(const char *a, const char *b)
{
    struct text one = {0}, other = {0};

    IS_OK(file_read(a, 64 << 20, &one));
    IS_OK(file_read(b, 64 << 20, &other));
    const bool equal = one.length == other.length &&
                       memcmp(one.bytes, other.bytes, one.length) == 0;

    text_free(&one);
    text_free(&other);
    return equal;
}

/* directory/logits-0 and the like. */
static void numbered(char out[PATH_BYTES], const char *directory,
                     const char *what, int number)
{
    char name[32];

    snprintf(name, sizeof name, "%s-%d", what, number);
    join(out, directory, name);
}

/* Scores the golden tokens with `model`, writes logits and gradients. */
static double score_into(const char *model, const char *tokens,
                         const char *directory, int number)
{
    char logits[PATH_BYTES], gradients[PATH_BYTES];
    struct score_result result;

    numbered(logits, directory, "logits", number);
    numbered(gradients, directory, "gradients", number);
    const struct score_request request = {.model = model, .tokens = tokens,
                                          .dtype = DTYPE_F64,
                                          .logits = logits,
                                          .gradients = gradients};

    IS_OK(score(&request, &result));
    return result.loss;
}

static void same_scores(const char *directory, int number)
{
    static const char *const files[] = {"logits", "gradients"};
    char one[PATH_BYTES], other[PATH_BYTES];

    for (int i = 0; i < ROWS(files); i++) {
        numbered(one, directory, files[i], 0);
        numbered(other, directory, files[i], number);
        CHECK(equal_files(one, other));
    }
}

/* Source, imported run, its checkpoint and what is exported from it are the
 * same model: equal logits and gradients in every bit. */
static status export_to(const char *model, const char *directory,
                        struct export_result *result)
{
    return model_export(&(struct export_request){.model = model,
                                                 .directory = directory},
                        result);
}

/* config.yaml of an imported run describes the model that config.json does:
 * both are written as the same config.json. */
static void same_options(const char *run)
{
    char path[PATH_BYTES];
    struct options_set set = {0};
    struct model found, wanted;
    struct text one = {0}, other = {0};

    join(path, run, "config.json");
    IS_OK(model_from_config(&wanted, path));
    join(path, run, "config.yaml");
    IS_OK(options_init(&set));
    IS_OK(options_read_file(&set, path));
    IS_OK(options_assign(&set, "data.sequence=8", ORIGIN_FILE));
    IS_OK(model_from_options(&found, &set.values, 0));
    found.ends.bos = wanted.ends.bos;
    found.ends.eos = wanted.ends.eos;
    IS_OK(model_write_config(&found, DTYPE_F32, &one));
    IS_OK(model_write_config(&wanted, DTYPE_F32, &other));
    EQUAL_TEXT(one.bytes, other.bytes);
    text_free(&one);
    text_free(&other);
    options_free(&set);
}

static void round_trip(const char *name)
{
    char directory[PATH_BYTES], source[PATH_BYTES], tokens[PATH_BYTES];
    char run[PATH_BYTES], out[PATH_BYTES];
    struct import_result imported;
    struct export_result exported;

    test_directory(directory);
    join(source, golden, name);
    join(tokens, source, "tokens.json");
    join(run, directory, "run");
    join(out, directory, "deep/exported/");
    IS_OK(model_import(source, run, NULL, NULL, &imported));
    same_options(run);
    IS_OK(export_to(run, out, &exported));
    EQUAL_INT(imported.parameters, exported.parameters);
    EQUAL_INT(imported.tensors, exported.tensors);
    CHECK(exported.proof_logits > 0);

    const char *const places[] = {source, run, imported.checkpoint, out};
    double loss[ROWS(places)];

    for (int i = 0; i < ROWS(places); i++) {
        loss[i] = score_into(places[i], tokens, directory, i);
        CHECK(loss[i] == loss[0]);
        same_scores(directory, i);
    }
    FAILS(export_to(run, out, &exported), ERR_CONFIG, "is not empty");
    FAILS(model_import(source, run, NULL, NULL, &imported), ERR_CONFIG,
          "holds a run already");
    FAILS(model_import(run, out, NULL, NULL, &imported), ERR_CONFIG,
          "is a run already");
    status_clear();
    IS_OK(directory_remove(directory));
}

TEST(import_and_export_keep_every_bit)
{
    for (int i = 0; i < ROWS(models); i++) round_trip(models[i]);
}

TEST(an_export_holds_what_other_programs_read)
{
    static const char *const files[] = {"config.json",
                                        "generation_config.json",
                                        "model.safetensors"};
    char directory[PATH_BYTES], out[PATH_BYTES], path[PATH_BYTES];
    struct export_result exported;

    test_directory(directory);
    join(out, directory, "out");
    join(path, golden, "gpt2");
    IS_OK(export_to(path, out, &exported));
    for (int i = 0; i < ROWS(files); i++) {
        join(path, out, files[i]);
        CHECK(file_exists(path));
    }
    IS_OK(directory_remove(directory));
}

/* Copies a golden model, with its header changed where `from` stands (the
 * same number of bytes), so that its tensors get other names. */
static void broken_copy(const char *name, const char *to, const char *from,
                        const char *into)
{
    char source[PATH_BYTES], path[PATH_BYTES];
    struct text text = {0}, out = {0};
    uint64_t length;
    char *at;

    join(source, golden, name);
    copy(source, to, "config.json");
    join(path, source, "model.safetensors");
    IS_OK(file_read(path, 64 << 20, &text));
    at = memmem(text.bytes, text.length, from, strlen(from));
    CHECK(at != NULL);
    IS_OK(text_append(&out, text.bytes, (size_t)(at - text.bytes)));
    IS_OK(text_append_string(&out, into));
    at += strlen(from);
    IS_OK(text_append(&out, at, text.length - (size_t)(at - text.bytes)));
    memcpy(&length, out.bytes, sizeof length); /* of the table of tensors */
    length += out.length - text.length;
    memcpy(out.bytes, &length, sizeof length);
    join(path, to, "model.safetensors");
    IS_OK(file_write_atomic(path, out.bytes, out.length));
    text_free(&text);
    text_free(&out);
}

/* gemma3 as a model of text and images is stored: its config.json inside
 * another, its tensors under `word`, one more that sees images. */
static void with_images(const char *to, const char *word, const char *image)
{
    char source[PATH_BYTES], path[PATH_BYTES];
    struct text config = {0}, all = {0}, header = {0}, out = {0};
    uint64_t length;

    join(source, golden, "gemma3");
    join(path, source, "config.json");
    IS_OK(file_read(path, 1 << 20, &config));
    IS_OK(text_printf(&out, "{\"model_type\": \"gemma3\", \"vision_config\": "
                            "{}, \"eos_token_id\": [1, 106], \"text_config\": "
                            "%s}", config.bytes));
    join(path, to, "config.json");
    IS_OK(file_write_atomic(path, out.bytes, out.length));
    join(path, source, "model.safetensors");
    IS_OK(file_read(path, 64 << 20, &all));
    memcpy(&length, all.bytes, sizeof length);
    const char *const data = all.bytes + sizeof length + length;
    const size_t bytes = all.length - sizeof length - (size_t)length;

    for (const char *at = all.bytes + sizeof length; at < data; at++) {
        const bool name = strncmp(at, "\"model.", 7) == 0;

        IS_OK(text_append(&header, at, 1));
        if (name) IS_OK(text_append_string(&header, word));
        if (name) at += strlen("model.");
    }
    while (header.bytes[header.length - 1] != '}') header.length--;
    header.length--;
    IS_OK(text_printf(&header, ",\"%s.weight\":{\"dtype\":\"F32\",\"shape\":"
                               "[1],\"data_offsets\":[%zu,%zu]}}", image,
                      bytes, bytes + 4));
    while (header.length % 8 != 0) IS_OK(text_append(&header, " ", 1));
    length = header.length;
    out.length = 0;
    IS_OK(text_append(&out, &length, sizeof length));
    IS_OK(text_append(&out, header.bytes, header.length));
    IS_OK(text_append(&out, data, bytes));
    IS_OK(text_append(&out, "\0\0\0", 4));
    join(path, to, "model.safetensors");
    IS_OK(file_write_atomic(path, out.bytes, out.length));
    text_free(&config);
    text_free(&all);
    text_free(&header);
    text_free(&out);
}

TEST(the_text_part_of_a_model_of_images_is_taken)
{
    static const struct { const char *word, *image, *words; } rows[] = {
        {"language_model.model.", "vision_tower.post", NULL},
        {"model.language_model.", "model.multi_modal_projector.x", NULL},
        {"language_model.model.", "audio_tower.post", "audio_tower.post.w"},
        {"model.", "vision_tower.post", "were not used: vision_tower"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        char directory[PATH_BYTES], source[PATH_BYTES], tokens[PATH_BYTES];
        struct import_result result;
        char run[PATH_BYTES];

        test_directory(directory);
        with_images(directory, rows[i].word, rows[i].image);
        join(run, directory, "run");
        join(source, golden, "gemma3");
        join(tokens, source, "tokens.json");
        const status made = model_import(directory, run, NULL, NULL, &result);

        if (rows[i].words != NULL) {
            FAILS(made, ERR_FORMAT, rows[i].words);
            status_clear();
        } else {
            IS_OK(made);
            (void)score_into(source, tokens, directory, 0);
            (void)score_into(run, tokens, directory, 1);
            same_scores(directory, 1);
        }
        IS_OK(directory_remove(directory));
    }
}

TEST(every_tensor_must_be_used_exactly_once)
{
    static const struct {
        const char *model, *from, *into, *words;
    } rows[] = {
        {"llama_untied", "\"model.norm.weight\"", "\"model.nurm.weight\"",
         "has no tensor model.norm.weight"},
        {"gpt2_plain_names", "\"h.1.attn.bias\"", "\"h.1.attn.mask\"",
         "not used: h.1.attn.mask"},
        {"llama_tied_bias", "\"shape\":[97,36]", "\"shape\":[36,97]",
         "has shape [36, 97], the model needs [97, 36]"},
        {"gpt_oss", "\"model.layers.0.mlp.experts.down_proj\"",
         "\"model.layers.0.mlp.experts.1.down.weight\"",
         "has no tensor model.layers.0.mlp.experts.0.down.weight"},
        {"gpt_oss", "\"model.layers.0.mlp.experts.down_proj\"",
         "\"model.layers.0.mlp.experts.down_\"",
         "has no tensor model.layers.0.mlp.experts.down_proj"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        char directory[PATH_BYTES], run[PATH_BYTES];
        struct import_result result;

        test_directory(directory);
        join(run, directory, "run");
        broken_copy(rows[i].model, directory, rows[i].from, rows[i].into);
        FAILS(model_import(directory, run, NULL, NULL, &result), ERR_FORMAT,
              rows[i].words);
        CHECK(!file_exists(run));
        IS_OK(directory_remove(directory));
    }
    status_clear();
}

/* Guards files of transformers 5, which calls every head lm_head. */
TEST(a_head_may_have_its_usual_name)
{
    char directory[PATH_BYTES], source[PATH_BYTES], tokens[PATH_BYTES];
    struct import_result result;
    char run[PATH_BYTES];

    test_directory(directory);
    join(run, directory, "run");
    join(source, golden, "gpt_neox");
    join(tokens, source, "tokens.json");
    broken_copy("gpt_neox", directory, "\"embed_out.weight\"",
                "\"lm_head.weight\"  ");
    IS_OK(model_import(directory, run, NULL, NULL, &result));
    (void)score_into(source, tokens, directory, 0);
    (void)score_into(run, tokens, directory, 1);
    same_scores(directory, 1);
    IS_OK(directory_remove(directory));
}

/* A tied model's file with a head of its own, equal or not. */
static void add_head(const char *to, bool equal)
{
    char source[PATH_BYTES];
    struct session session;
    struct stage_request request;
    struct stage stage;
    struct session_parts parts = {0};
    void *memory;

    join(source, golden, "llama_nine_heads");
    copy(source, to, "config.json");
    IS_OK(session_open(&session, source));
    IS_OK(session_request(&session, 1, 8, &request));
    request.dtype = DTYPE_F64;
    IS_OK(session_stage(&session, &request, &stage));
    IS_OK(session_parts_add(&parts, &stage, "weight", stage.run.params.weights,
                            stage.program.dtype));
    const struct saved_part table = parts.items[0];
    const size_t bytes =
        (size_t)(table.shape[0] * table.shape[1]) * sizeof(double);

    IS_OK(memory_take(bytes, 1, &memory));
    memcpy(memory, table.data, bytes);
    ((double *)memory)[7] += equal ? 0 : 1e-9;
    parts.items[parts.count] = table;
    parts.items[parts.count].name = "lm_head.weight";
    parts.items[parts.count++].data = memory;
    IS_OK(session_parts_export(&parts, to));
    memory_free(memory);
    session_parts_free(&parts);
    stage_free(&stage);
    session_close(&session);
}

TEST(a_tied_head_must_equal_the_embedding)
{
    for (int equal = 0; equal < 2; equal++) {
        char directory[PATH_BYTES], run[PATH_BYTES];
        struct import_result result;

        test_directory(directory);
        join(run, directory, "run");
        add_head(directory, equal);
        if (equal)
            IS_OK(model_import(directory, run, NULL, NULL, &result));
        else
            FAILS(model_import(directory, run, NULL, NULL, &result), ERR_FORMAT,
                  "lm_head.weight differs from model.embed_tokens.weight");
        IS_OK(directory_remove(directory));
    }
    status_clear();
}

/* Some writers of a tied model keep the head's name of the two. */
TEST(a_tied_table_may_have_the_name_of_the_head)
{
    static const struct { const char *model, *table; } rows[] = {
        {"smollm2", "\"model.embed_tokens.weight\""},
        {"gpt2", "\"transformer.wte.weight\""}};

    for (int i = 0; i < ROWS(rows); i++) {
        char directory[PATH_BYTES], source[PATH_BYTES], tokens[PATH_BYTES],
            head[64];

        test_directory(directory);
        snprintf(head, sizeof head, "%-*s", (int)strlen(rows[i].table),
                 "\"lm_head.weight\"");
        broken_copy(rows[i].model, directory, rows[i].table, head);
        join(source, golden, rows[i].model);
        join(tokens, source, "tokens.json");
        (void)score_into(source, tokens, directory, 0);
        (void)score_into(directory, tokens, directory, 1);
        same_scores(directory, 1);
        IS_OK(directory_remove(directory));
    }
}

TEST(token_files_are_checked)
{
    static const struct { const char *text; status code; const char *words; }
    rows[] = {
        {"[[1, 2], [3, 4]]", OK, ""},
        {"[]", ERR_FORMAT, "array of arrays"},
        {"{\"a\": [1, 2]}", ERR_FORMAT, "array of arrays"},
        {"[1, 2]", ERR_FORMAT, "item 0 is not an array"},
        {"[[1, 2], [3]]", ERR_FORMAT, "sequence 1 has 1 ids, the first has 2"},
        {"[[1], [3]]", ERR_CONFIG, "at least 2"},
        {"[[1, 2], [3, 127]]", ERR_CONFIG,
         "id 1 of sequence 1 is 127, outside the vocabulary 0 to 126"},
        {"[[1, 2], [-3, 4]]", ERR_CONFIG, "is -3, outside"},
        {"[[1, 2.5]]", ERR_FORMAT, "id 1 of sequence 0 is not an integer"},
        {"[[1, 2]", ERR_FORMAT, ""},
    };
    char directory[PATH_BYTES], path[PATH_BYTES], model[PATH_BYTES];
    struct model config;

    test_directory(directory);
    join(model, golden, "gpt2");
    IS_OK(model_from_config(&config, model));
    for (int i = 0; i < ROWS(rows); i++) {
        int64_t sequences, length;
        int32_t *ids;

        put(directory, "tokens.json", rows[i].text);
        join(path, directory, "tokens.json");
        const status code = score_read_tokens(path, &config, &ids, &sequences,
                                              &length);

        FAILS(code, rows[i].code, rows[i].words);
        status_clear();
        memory_free(ids);
    }
    IS_OK(directory_remove(directory));
}

TEST(weights_of_another_model_are_refused)
{
    char path[PATH_BYTES];
    struct session session;
    struct stage_request request;
    struct stage stage;
    struct model other;

    join(path, golden, "llama_untied");
    IS_OK(session_open(&session, path));
    IS_OK(session_request(&session, 1, 8, &request));
    other = session.model;
    other.norm_epsilon = 1e-6;
    request.model = &other;
    IS_OK(stage_plan(&stage, &request));
    IS_OK(stage_open(&stage));
    FAILS(session_load_weights(&session, &stage), ERR_CONFIG,
          "has model.norm_epsilon 1e-05, the model here 1e-06");
    other.norm_epsilon = session.model.norm_epsilon;
    other.rope.scaling = (struct rope_scaling){.kind = ROPE_LINEAR,
                                               .factor = 2};
    FAILS(session_load_weights(&session, &stage), ERR_CONFIG,
          "has another model.rope_scaling");
    other.rope.scaling = session.model.rope.scaling;
    IS_OK(session_load_weights(&session, &stage));
    IS_OK(session_load_weights(&session, &stage)); /* again */
    stage_free(&stage);
    session_close(&session);
    status_clear();
}

/* config.json with `from` changed to `into`, beside the weights. */
static void change_config(const char *to, const char *name, const char *from,
                          const char *into)
{
    char source[PATH_BYTES], path[PATH_BYTES];
    struct text old = {0}, new = {0};

    join(source, golden, name);
    copy(source, to, "model.safetensors");
    join(path, source, "config.json");
    IS_OK(file_read(path, 1 << 20, &old));
    const char *at = strstr(old.bytes, from);

    CHECK(at != NULL);
    IS_OK(text_append(&new, old.bytes, (size_t)(at - old.bytes)));
    IS_OK(text_append_string(&new, into));
    IS_OK(text_append_string(&new, at + strlen(from)));
    join(path, to, "config.json");
    IS_OK(file_write_atomic(path, new.bytes, new.length));
    text_free(&old);
    text_free(&new);
}

TEST(a_configuration_that_lies_is_refused)
{
    static const struct {
        const char *from, *into;
        status code;
        const char *words;
    } rows[] = {
        {"\"n_layer\": 2", "\"n_layer\": 9999", ERR_FORMAT,
         "says 9999 layers"},
        {"\"n_layer\": 2", "\"n_layer\": 16000000", ERR_CONFIG,
         "16000000 layers; this build has at most 10000"},
        {"\"n_layer\": 2", "\"n_layer\": 3", ERR_FORMAT,
         "has no tensor transformer.h.2."},
        {"\"n_layer\": 2", "\"n_layer\": 1", ERR_FORMAT, "not used"},
        {"\"n_embd\": 40", "\"n_embd\": 80", ERR_FORMAT,
         "the model needs [127, 80]"},
        {"\"n_head\": 5", "\"n_head\": 7", ERR_CONFIG, "multiple of 7"},
        {"\"n_layer\"", "\"n_lair\": 1, \"n_layer\"", ERR_CONFIG,
         "n_lair"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        char directory[PATH_BYTES], run[PATH_BYTES];
        struct import_result result;

        test_directory(directory);
        join(run, directory, "run");
        change_config(directory, "gpt2", rows[i].from, rows[i].into);
        FAILS(model_import(directory, run, NULL, NULL, &result), rows[i].code,
              rows[i].words);
        CHECK(!file_exists(run));
        IS_OK(directory_remove(directory));
    }
    status_clear();
}

TEST(what_is_no_model_is_refused)
{
    char directory[PATH_BYTES];
    struct session session;

    test_directory(directory);
    FAILS(session_open(&session, "/nowhere/at/all"), ERR_MISSING,
          "no such directory");
    session_close(&session);
    FAILS(session_open(&session, directory), ERR_FORMAT, "neither a run");
    session_close(&session);
    status_clear();
    IS_OK(directory_remove(directory));
}

TEST_MAIN(import_and_export_keep_every_bit,
          an_export_holds_what_other_programs_read,
          the_text_part_of_a_model_of_images_is_taken,
          every_tensor_must_be_used_exactly_once,
          a_head_may_have_its_usual_name,
          a_tied_head_must_equal_the_embedding,
          a_tied_table_may_have_the_name_of_the_head, token_files_are_checked,
          weights_of_another_model_are_refused,
          a_configuration_that_lies_is_refused, what_is_no_model_is_refused)
