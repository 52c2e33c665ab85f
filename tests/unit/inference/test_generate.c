/* SPDX-License-Identifier: Apache-2.0 */
/* test_generate.c - text that continues a prompt, from a directory to bytes,
 * over contexts longer than a call and a granule. */
#include <float.h>
#include "base/json.h"
#include "tests/test.h"
#include "inference/export.h"
#include "inference/generate.h"

enum { BYTES = 256, END = 256, VOCAB = 260, CONTEXT = 700 };

static const struct model tiny = {
    .kind = &model_llama, .vocab = VOCAB, .layers = 2, .heads = 4,
    .kv_heads = 2, .head_width = 8, .width = 32, .feed_forward = 48,
    .context = CONTEXT, .tied = true, .rope.base = 10000,
    .norm_epsilon = 1e-5, .activation = ACTIVATION_SILU, .init_std = 0.2,
    .ends.bos = -1, .ends.eos = END};

static void put(const char *directory, const char *name, const char *bytes,
                size_t length)
{
    char path[PATH_BYTES];

    IS_OK(path_join(path, sizeof path, directory, name));
    IS_OK(file_write_atomic(path, bytes, length));
}

/* The letter that a byte has in a byte-level vocabulary: itself where it is
 * printable, else the next one from U+0100 on. */
static int byte_letter(int byte, char out[5])
{
    int others = 0;
    uint32_t code = (uint32_t)byte;

    for (int b = 0; b <= byte; b++) {
        const bool printable = (b >= 33 && b <= 126) ||
                               (b >= 161 && b <= 172) || b >= 174;

        if (b < byte) others += !printable;
        else if (!printable) code = 256 + (uint32_t)others;
    }
    const int length = text_utf8_encode(code, out);

    out[length] = 0;
    return length;
}

static void write_tokenizer(const char *directory)
{
    static const char *const before =
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, "
        "\"added_tokens\": [{\"id\": 256, \"content\": \"<|endoftext|>\", "
        "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
        "\"normalized\": false, \"special\": true}], \"normalizer\": null, "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
        "false, \"trim_offsets\": true, \"use_regex\": true}, "
        "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": "
        "true}, \"model\": {\"type\": \"BPE\", \"dropout\": null, "
        "\"unk_token\": null, \"continuing_subword_prefix\": null, "
        "\"end_of_word_suffix\": null, \"fuse_unk\": false, "
        "\"byte_fallback\": false, \"ignore_merges\": false, \"vocab\": ";
    struct json_writer writer;
    struct text text = {0};
    char letter[5];

    json_write_begin(&writer, 0);
    json_write_object(&writer);
    for (int byte = 0; byte < BYTES; byte++) {
        byte_letter(byte, letter);
        json_write_key(&writer, letter);
        json_write_integer(&writer, byte);
    }
    json_write_object_end(&writer);
    IS_OK(json_write_end(&writer));
    IS_OK(text_printf(&text, "%s%s, \"merges\": []}}", before,
                      writer.out.bytes));
    put(directory, "tokenizer.json", text.bytes, text.length);
    json_writer_free(&writer);
    text_free(&text);
}

/* A Hugging Face directory of random weights. */
static void write_model(const char *directory, const struct model *model)
{
    const struct stage_request request = {
        .model = model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
        .layout.grid = {1, 1, 1, 1}, .size.batch = 1, .size.micro_batch = 1,
        .size.length = 8,
        .machine.threads = 1};
    struct session_parts parts = {0};
    struct text config = {0};
    struct stage stage;

    IS_OK(stage_plan(&stage, &request));
    IS_OK(stage_open(&stage));
    IS_OK(stage_init_weights(&stage, model, 3));
    IS_OK(session_parts_add(&parts, &stage, "weight", stage.run.params.weights,
                            stage.program.dtype));
    IS_OK(session_parts_export(&parts, directory));
    IS_OK(model_write_config(model, DTYPE_F32, &config));
    put(directory, "config.json", config.bytes, config.length);
    session_parts_free(&parts);
    text_free(&config);
    stage_free(&stage);
}

static void make(char directory[PATH_BYTES])
{
    test_directory(directory);
    write_model(directory, &tiny);
    write_tokenizer(directory);
}

static status take(void *argument, const char *bytes, size_t length)
{
    return text_append(argument, bytes, length);
}

static void text_of(const char *model, const char *prompt, int64_t tokens,
                    struct sampling sampling, struct text *text,
                    struct generate_result *result)
{
    const struct generate_request request = {
        .model = model, .prompt = prompt, .tokens = tokens,
        .sampling = sampling, .dtype = DTYPE_F32, .write = take,
        .argument = text};

    text->length = 0;
    IS_OK(text_append(text, "", 0));
    IS_OK(generate(&request, result));
}

TEST(equal_seeds_write_equal_texts)
{
    const struct sampling one = {.temperature = 1, .top_p = 1, .seed = 1},
                          two = {.temperature = 1, .top_p = 1, .seed = 2};
    struct text a = {0}, b = {0};
    struct generate_result result;
    char directory[PATH_BYTES];

    make(directory);
    text_of(directory, "Hello", 40, one, &a, &result);
    EQUAL_INT(result.prompt_tokens, 5);
    CHECK(result.tokens > 0 && result.tokens <= 40);
    CHECK(result.stop == (result.tokens == 40 ? STOP_TOKENS
                                              : STOP_END_OF_TEXT));
    text_of(directory, "Hello", 40, one, &b, &result);
    CHECK(a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0);
    text_of(directory, "Hello", 40, two, &b, &result);
    CHECK(a.length != b.length || memcmp(a.bytes, b.bytes, a.length) != 0);
    text_free(&a);
    text_free(&b);
    IS_OK(directory_remove(directory));
}

enum { PROMPTS = 23 };

struct several {
    struct text texts[PROMPTS];
    int64_t at;
    struct token_list ids;
};

static status take_several(void *argument, const char *bytes, size_t length)
{
    struct several *several = argument;

    return text_append(&several->texts[several->at], bytes, length);
}

static status finish_several(void *argument, int64_t index,
                             const struct generate_result *result)
{
    struct several *several = argument;

    EQUAL_INT(index, several->at);
    CHECK(result->prompt_tokens > 0);
    EQUAL_INT(several->ids.count, result->tokens);
    several->ids.count = 0;
    several->at++;
    return OK;
}

/* Makes the texts of all prompts, so many at once. */
static status try_several(const struct generate_request *asked, int texts,
                          struct several *out)
{
    struct generate_request request = *asked;
    struct generate_result result;

    *out = (struct several){.at = 0};
    request.texts = texts;
    request.argument = out;
    request.ids = &out->ids;
    const status made = generate(&request, &result);

    token_list_free(&out->ids);
    return made;
}

static void make_several(const struct generate_request *asked, int texts,
                         struct several *out)
{
    IS_OK(try_several(asked, texts, out));
    EQUAL_INT(out->at, asked->prompt_count);
}

static void free_several(struct several *several)
{
    for (int i = 0; i < PROMPTS; i++) text_free(&several->texts[i]);
}

static void equal_text(const struct text *a, const struct text *b)
{
    EQUAL_INT(a->length, b->length);
    if (a->length > 0) /* the first token may be the end of a text */
        EQUAL_BYTES(a->bytes, b->bytes, a->length);
}

/* Each text is that of its prompt alone, with the seed of its place, however
 * many are made at once; they come in order, whichever ends first. */
TEST(several_prompts_are_each_continued_as_if_alone)
{
    static const int at_once[] = {1, 2, 3, 5, PROMPTS, 0};
    static const char *const four[] = {"Hello", "A longer prompt than that",
                                       "x", "Hello"};
    static const char *const stops[] = {"e", "q", "u"};
    const char *prompts[PROMPTS];
    struct sampling sampling = {.temperature = 1, .top_p = 0.9, .min_p = 0.01,
                                .penalty = 1.2, .seed = 11};
    struct several several;
    struct text alone[PROMPTS] = {{0}};
    struct generate_result result;
    char directory[PATH_BYTES];

    make(directory);
    for (int i = 0; i < PROMPTS; i++) prompts[i] = four[i % 4];
    struct generate_request request = {
        .model = directory, .tokens = 30, .sampling = sampling,
        .stops = {stops, 3}, .write = take};

    for (int i = 0; i < PROMPTS; i++) {
        request.prompt = prompts[i];
        request.sampling.seed = sampling.seed + (uint64_t)i;
        request.argument = &alone[i];
        IS_OK(generate(&request, &result));
    }
    CHECK(alone[0].length != alone[3].length ||
          memcmp(alone[0].bytes, alone[3].bytes, alone[0].length) != 0);
    request.sampling = sampling;
    request.prompts = prompts;
    request.prompt_count = PROMPTS;
    request.write = take_several;
    request.finish = finish_several;
    for (int k = 0; k < ROWS(at_once); k++) {
        make_several(&request, at_once[k], &several);
        for (int i = 0; i < PROMPTS; i++)
            equal_text(&alone[i], &several.texts[i]);
        free_several(&several);
    }
    for (int i = 0; i < PROMPTS; i++) text_free(&alone[i]);
    IS_OK(directory_remove(directory));
}

/* A text whose logits are not finite ends the command as where texts are made
 * one by one: those before it are whole. Here a penalty makes logits above 4
 * of tokens that are there infinite. */
TEST(a_text_that_fails_leaves_those_before_it_whole)
{
    static const int at_once[] = {2, 3, 5, PROMPTS, 0};
    static const char *const four[] = {"Hello", "A longer prompt than that",
                                       "x", "wide"};
    const char *prompts[PROMPTS];
    struct several one, several;
    char directory[PATH_BYTES], why[200];

    make(directory);
    for (int i = 0; i < PROMPTS; i++) prompts[i] = four[i % 4];
    const struct generate_request request = {
        .model = directory, .tokens = 30, .write = take_several,
        .finish = finish_several, .prompts = prompts,
        .prompt_count = PROMPTS,
        .sampling = {.temperature = 1, .top_p = 1, .penalty = 4.0 / FLT_MAX,
                     .seed = 11}};

    FAILS(try_several(&request, 1, &one), ERR_NUMERIC, "not a finite number");
    CHECK(one.at > 2 && one.at < PROMPTS - 1);
    snprintf(why, sizeof why, "%s", status_message());
    for (int k = 0; k < ROWS(at_once); k++) {
        FAILS(try_several(&request, at_once[k], &several), ERR_NUMERIC, why);
        EQUAL_INT(several.at, one.at);
        for (int i = 0; i < PROMPTS; i++)
            equal_text(&one.texts[i], &several.texts[i]);
        free_several(&several);
    }
    free_several(&one);
    IS_OK(directory_remove(directory));
}

/* No token comes twice under a penalty that nothing outweighs, and the text
 * ends before the stop. */
TEST(penalties_and_stops)
{
    const struct sampling greedy = {.top_p = 1},
                          never = {.top_p = 1, .penalty = 1000};
    struct generate_result result;
    char directory[PATH_BYTES], stop[3];
    struct token_list ids = {0};
    struct text text = {0}, before = {0};
    bool seen[VOCAB] = {false};

    make(directory);
    struct generate_request request = {
        .model = directory, .prompt = "Hello", .tokens = 60,
        .sampling = never, .write = take, .argument = &text, .ids = &ids};

    IS_OK(generate(&request, &result));
    CHECK(ids.count > 20);
    for (int64_t i = 0; i < ids.count; i++) {
        CHECK(!seen[ids.ids[i]]);
        seen[ids.ids[i]] = true;
        CHECK(ids.ids[i] >= BYTES || strchr("Helo", ids.ids[i]) == NULL);
    }
    text_of(directory, "Hello", 60, greedy, &before, &result);
    CHECK(before.length > 12);
    snprintf(stop, sizeof stop, "%.2s", before.bytes + 10);
    const char *const stops[] = {"not there", stop};

    request.sampling = greedy;
    request.stops = (struct stop_texts){stops, 2};
    text.length = 0;
    IS_OK(generate(&request, &result));
    EQUAL_INT(result.stop, STOP_TEXT);
    CHECK(text.length <= 10);
    EQUAL_BYTES(text.bytes, before.bytes, text.length);
    EQUAL_BYTES(before.bytes + text.length, stop, 2);
    text_free(&text);
    text_free(&before);
    token_list_free(&ids);
    IS_OK(directory_remove(directory));
}

TEST(a_full_context_stops_with_a_notice)
{
    const struct sampling greedy = {.top_p = 1};
    char directory[PATH_BYTES], prompt[CONTEXT + 1];
    struct generate_result result;
    struct text text = {0};

    make(directory);
    memset(prompt, 'a', sizeof prompt);
    prompt[CONTEXT - 3] = 0; /* one token a letter: words are single bytes */
    text_of(directory, prompt, 50, greedy, &text, &result);
    EQUAL_INT(result.prompt_tokens, CONTEXT - 3);
    if (result.stop != STOP_END_OF_TEXT) {
        EQUAL_INT(result.stop, STOP_CONTEXT);
        EQUAL_INT(result.tokens, 4); /* the last one needs no place */
    }
    EQUAL_INT(result.context, CONTEXT);
    prompt[CONTEXT - 3] = 'a';
    prompt[CONTEXT] = 0;
    const struct generate_request request = {
        .model = directory, .prompt = prompt, .tokens = 5,
        .sampling = greedy, .dtype = DTYPE_F32};

    FAILS(generate(&request, &result), ERR_CONFIG, "shorten it to 699");
    status_clear();
    text_free(&text);
    IS_OK(directory_remove(directory));
}

TEST(an_empty_prompt_begins_after_the_end_of_a_text)
{
    const struct sampling greedy = {.top_p = 1};
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct generate_result result;
    struct text text = {0};

    make(directory);
    text_of(directory, "", 3, greedy, &text, &result);
    EQUAL_INT(result.prompt_tokens, 1);
    IS_OK(path_join(path, sizeof path, directory, "tokenizer.json"));
    CHECK(unlink(path) == 0);
    const struct generate_request request = {
        .model = directory, .prompt = "a", .tokens = 5, .sampling = greedy,
        .dtype = DTYPE_F32};

    FAILS(generate(&request, &result), ERR_MISSING, "has no tokenizer");
    status_clear();
    text_free(&text);
    IS_OK(directory_remove(directory));
}

/* ---- ids: calls of 256, caches beyond the granules ---- */

struct whole { char *bytes; size_t row; };

static status keep(void *argument, int64_t first, const struct tensor *logits)
{
    const struct whole *whole = argument;

    memcpy(whole->bytes + (size_t)first * whole->row, logits->data,
           (size_t)logits->shape[0] * whole->row);
    return OK;
}

TEST(long_caches_equal_a_whole_pass)
{
    enum { FIRST = 390 }; /* calls of 256 and 134, then one by one */
    static int32_t ids[CONTEXT], targets[CONTEXT];
    struct whole whole = {.row = VOCAB * sizeof(float)};
    char directory[PATH_BYTES];
    struct generator generator;
    struct stage_request plan;
    struct session session;
    struct stage stage;
    void *memory;

    make(directory);
    IS_OK(session_open(&session, directory));
    IS_OK(memory_take(CONTEXT, whole.row, &memory));
    whole.bytes = memory;
    for (int t = 0; t < CONTEXT; t++) {
        ids[t] = (t * 37 + t / 7) % VOCAB;
        targets[t] = -1;
    }
    IS_OK(session_request(&session, 1, CONTEXT, &plan));
    IS_OK(session_stage(&session, &plan, &stage));
    stage.run.logits.read = keep;
    stage.run.logits.argument = &whole;
    stage.run.batch = (struct batch){.inputs = ids, .targets = targets,
                                     .tokens = CONTEXT};
    IS_OK(run_forward(&stage.run));
    stage_free(&stage);
    IS_OK(generator_open(
        &generator, &session, DTYPE_F32, 1,
        &(struct generator_room){.prompt = FIRST, .context = CONTEXT}));
    for (int at = 0; at < CONTEXT;) {
        const int count = at == 0 ? FIRST : 1;

        IS_OK(generator_feed(&generator, ids + at, count));
        at += count;
        EQUAL_BYTES(generator.logits.data,
                    whole.bytes + (size_t)(at - 1) * whole.row, whole.row);
    }
    generator_close(&generator);
    memory_free(whole.bytes);
    session_close(&session);
    IS_OK(directory_remove(directory));
}

static status export_to(const char *model, const char *directory,
                        struct export_result *result)
{
    return model_export(&(struct export_request){.model = model,
                                                 .directory = directory},
                        result);
}

/* Llama 3 Instruct: of the ends in generation_config.json, any. */
TEST(each_id_of_a_list_ends_a_text)
{
    const struct sampling greedy = {.top_p = 1};
    char directory[PATH_BYTES], out[PATH_BYTES], list[80];
    struct token_list ids = {0};
    struct generate_result result;
    struct export_result exported;
    struct model model;
    int64_t before = 0;
    const struct generate_request request = {
        .model = directory, .prompt = "a", .tokens = 20, .sampling = greedy,
        .dtype = DTYPE_F32, .ids = &ids};

    make(directory);
    IS_OK(generate(&request, &result));
    EQUAL_INT(result.tokens, 20);
    const int32_t end = ids.ids[10];

    while (ids.ids[before] != end) before++;
    snprintf(list, sizeof list, "{\"eos_token_id\": [256, 258, %d]}", end);
    put(directory, "generation_config.json", list, strlen(list));
    ids.count = 0;
    IS_OK(generate(&request, &result));
    EQUAL_INT(result.stop, STOP_END_OF_TEXT);
    EQUAL_INT(result.tokens, before);
    IS_OK(path_join(out, sizeof out, directory, "out"));
    IS_OK(export_to(directory, out, &exported));
    IS_OK(model_from_config(&model, out));
    EQUAL_INT(model.ends.eos, 256);
    EQUAL_INT(model.ends.more_count, 2);
    EQUAL_INT(model.ends.more[1], end);
    put(directory, "generation_config.json", "[]", 2);
    FAILS(generate(&request, &result), ERR_FORMAT, "a JSON object was");
    status_clear();
    token_list_free(&ids);
    IS_OK(directory_remove(directory));
}

TEST(an_export_names_its_tokens)
{
    char directory[PATH_BYTES], out[PATH_BYTES], path[PATH_BYTES];
    struct export_result result;
    const struct json *root;
    struct arena arena;
    const char *text;
    int64_t id;

    make(directory);
    IS_OK(path_join(out, sizeof out, directory, "out"));
    IS_OK(export_to(directory, out, &result));
    CHECK(result.tokenizer);
    arena_init(&arena, "settings", 0);
    IS_OK(path_join(path, sizeof path, out, "tokenizer_config.json"));
    IS_OK(json_read_file(&root, &arena, path, 1 << 20));
    IS_OK(json_get_string(root, path, "tokenizer_class", &text));
    EQUAL_TEXT(text, "PreTrainedTokenizerFast");
    IS_OK(json_get_string(root, path, "eos_token", &text));
    EQUAL_TEXT(text, "<|endoftext|>");
    IS_OK(json_get_integer(root, path, "model_max_length", &id));
    EQUAL_INT(id, CONTEXT);
    IS_OK(path_join(path, sizeof path, out, "generation_config.json"));
    IS_OK(json_read_file(&root, &arena, path, 1 << 20));
    IS_OK(json_get_integer(root, path, "eos_token_id", &id));
    EQUAL_INT(id, END);
    arena_free(&arena);
    IS_OK(directory_remove(directory));
}

TEST_MAIN(equal_seeds_write_equal_texts,
          several_prompts_are_each_continued_as_if_alone,
          a_text_that_fails_leaves_those_before_it_whole, penalties_and_stops,
          a_full_context_stops_with_a_notice,
          an_empty_prompt_begins_after_the_end_of_a_text,
          long_caches_equal_a_whole_pass, each_id_of_a_list_ends_a_text,
          an_export_names_its_tokens)
