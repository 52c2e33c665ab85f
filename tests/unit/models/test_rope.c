/* SPDX-License-Identifier: Apache-2.0 */
/* test_rope.c - scaling of rotary positions: what is read, written and
 * refused. Its values are compared with another implementation by the golden
 * models. */
#include "base/json.h"
#include "models/config.h"
#include "tests/test.h"

static const struct model start = {
    .rope.base = 10000, .context = 64, .head_width = 6};

static status read_from(struct model *model, const char *text)
{
    const struct json *root;
    struct arena arena;

    arena_init(&arena, "config", 0);
    IS_OK(json_read(&root, &arena, text, strlen(text), "config.json"));
    const status result = rope_read_config(model, root, "config.json");

    arena_free(&arena);
    return result;
}

static status read_text(struct model *model, const char *text)
{
    *model = start;
    return read_from(model, text);
}

/* The model turns a part of each head. */
static status read_share(struct model *model, const char *text)
{
    *model = start;
    model->kind = &model_stablelm;
    return read_from(model, text);
}

/* One line, read again and as config.json, is the same scaling. */
static void round_trip(const char *line)
{
    struct model one = start, again = start, json;
    struct text text = {0};
    struct json_writer writer;

    IS_OK(rope_from_text(&one, line));
    IS_OK(rope_to_text(&one.rope.scaling, &text));
    IS_OK(rope_from_text(&again, text.bytes ? text.bytes : ""));
    CHECK(rope_scaling_same(&one.rope.scaling, &again.rope.scaling));
    json_write_begin(&writer, 0);
    json_write_object(&writer);
    rope_write_config(&one, &writer);
    json_write_object_end(&writer);
    IS_OK(json_write_end(&writer));
    IS_OK(read_text(&json, writer.out.bytes));
    CHECK(rope_scaling_same(&one.rope.scaling, &json.rope.scaling));
    CHECK(json.rope.base == start.rope.base);
    json_writer_free(&writer);
    text_free(&text);
}

TEST(every_kind_is_written_and_read_again)
{
    static const char *const lines[] = {
        "", "default", "linear factor=2.1", "dynamic factor=3",
        "llama3 factor=8 low_freq_factor=1 high_freq_factor=4",
        "llama3 factor=8  low_freq_factor=0.1 high_freq_factor=4 "
        "original_max_position_embeddings=16 ",
        "yarn factor=4", "yarn factor=4 truncate=0 attention_factor=0.1",
        "yarn factor=4 beta_fast=20 beta_slow=0.3 mscale=0.7 "
        "mscale_all_dim=1.1 original_max_position_embeddings=12",
        "longrope short_factor=1,1.5,2.1 long_factor=3,1e3,0.1",
        "longrope original_max_position_embeddings=7 attention_factor=1.1 "
        "factor=3 short_factor=1,1,1 long_factor=2,2,2 ",
        "su long_factor=3,4,5 original_max_position_embeddings=12 "
        "short_factor=1,1.5,2.1"};

    for (int i = 0; i < ROWS(lines); i++) round_trip(lines[i]);
}

TEST(what_a_kind_does_not_know_is_refused)
{
    static const struct { const char *line, *words; } rows[] = {
        {"mrope factor=2", "rotary scaling mrope is not in this build"},
        {"longrope factor=2", "short_factor has 0 factors above 0; a head "
                              "has 3 rotary pairs"},
        {"longrope short_factor=1,1,1 long_factor=2,2",
         "long_factor has 2 factors"},
        {"longrope short_factor=1,1,1,1 long_factor=2,2,2",
         "short_factor has 4 factors"},
        {"longrope short_factor=1,,1 long_factor=2,2,2", "is not a list of"},
        {"longrope short_factor=1,0,1 long_factor=2,2,2", "is not a list of"},
        {"longrope short_factor=1,1,1; long_factor=2,2,2", "is not a list of"},
        {"longrope short_factor", "is not a list of"},
        {"longrope short_factor=1,1,1 long_factor=2,2,2 factor=0.5",
         "factor is outside 1 to 1e6"},
        {"yarn factor=2 short_factor=1", "short_factor is not known to"},
        {"linear", "linear needs factor"},
        {"linear factor=0.5", "factor is outside 1 to 1e6"},
        {"linear factor=nan", "factor is outside"},
        {"linear factor", "factor is not NAME=NUMBER"},
        {"linear factor=", "is not NAME=NUMBER"},
        {"linear factor=2x", "is not NAME=NUMBER"},
        {"linear factor=2 beta_fast=3", "beta_fast is not known to the"},
        {"linear fact=2", "fact is not known to the rotary kind linear"},
        {"dynamic factor=2 original_max_position_embeddings=8",
         "is not known to the rotary kind dynamic"},
        {"llama3 factor=2 low_freq_factor=1", "needs high_freq_factor"},
        {"llama3 factor=2 low_freq_factor=5 high_freq_factor=4",
         "at most high_freq_factor"},
        {"yarn factor=2 original_max_position_embeddings=1.5",
         "is not a number of tokens"},
        {"yarn factor=2 beta_fast=1 beta_slow=2", "at most beta_fast"},
        {"yarn factor=2 mscale=-1", "is outside 0 to 1e6"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct model model = start;

        FAILS(rope_from_text(&model, rows[i].line), ERR_CONFIG,
              rows[i].words);
        status_clear();
    }
}

TEST(config_json_is_read_strictly)
{
    static const struct { const char *text, *words; } rows[] = {
        {"{\"rope_scaling\": {\"type\": \"mrope\"}}",
         "scaling mrope is not in"},
        {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": null}}",
         "yarn needs factor"},
        {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": \"4\"}}",
         "factor is not a number"},
        {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
         "\"truncate\": 1}}", "neither true nor false"},
        {"{\"rope_scaling\": {\"rope_type\": \"default\", "
         "\"mrope_section\": [1]}}", "mrope_section is not known"},
        {"{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4}, "
         "\"rope_parameters\": {\"rope_type\": \"default\"}}",
         "contradict each other"},
        {"{\"rope_theta\": 77, \"rope_scaling\": {\"rope_type\": "
         "\"linear\", \"factor\": 4}, \"rope_parameters\": {\"rope_type\": "
         "\"linear\", \"factor\": 4, \"rope_theta\": 78}}",
         "contradict each other"},
        {"{\"rope_scaling\": 3}", "is not an object"},
        {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
         "\"original_max_position_embeddings\": 0}}", "is 0; leave it out"},
        {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
         "\"attention_factor\": 0.0}}", "is 0; leave it out"},
        {"{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": "
         "[1, 1, 1]}}", "long_factor has 0 factors"},
        {"{\"rope_scaling\": {\"type\": \"su\", \"short_factor\": 1}}",
         "short_factor is not an array"},
        {"{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": "
         "[1, -1, 1]}}", "short_factor: factor 1 is outside"},
        {"{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": "
         "[1, \"1\", 1]}}", "short_factor is not a number"},
        {"{\"original_max_position_embeddings\": 8, \"rope_scaling\": "
         "{\"rope_type\": \"yarn\", \"factor\": 4, "
         "\"original_max_position_embeddings\": 16}}",
         "original_max_position_embeddings is 16 here and 8 outside"},
        {"{\"rope_theta\": 0.5}", "rope_theta: 0.5 is outside"},
        {"{\"rope_theta\": 1, \"rope_scaling\": {\"type\": \"yarn\", "
         "\"factor\": 4}}", "yarn needs a rotary base above 1"},
    };
    struct model model;

    for (int i = 0; i < ROWS(rows); i++) {
        FAILS(read_text(&model, rows[i].text), ERR_CONFIG, rows[i].words);
        status_clear();
    }
    IS_OK(read_text(&model, "{\"rope_scaling\": null}"));
    EQUAL_INT(model.rope.scaling.kind, ROPE_PLAIN);
}

/* One object says which part of a head turns: the other does not. */
TEST(parts_of_a_head_contradict_each_other)
{
    struct model model;

    FAILS(read_share(&model, "{\"rope_parameters\": {\"rope_type\": "
                     "\"default\", \"partial_rotary_factor\": 0.5}, "
                     "\"rope_scaling\": {\"rope_type\": \"default\"}}"),
          ERR_CONFIG, "contradict each other");
    status_clear();
    IS_OK(read_share(&model, "{\"rope_parameters\": {\"rope_type\": "
                     "\"default\", \"partial_rotary_factor\": 0.5}}"));
    EQUAL_INT(model.rope.rotary, start.head_width / 2);
}

/* The old length may stand beside the object, whatever knows it. */
TEST(the_old_length_may_be_outside)
{
    struct model inside, outside;

    IS_OK(read_text(&inside, "{\"rope_scaling\": {\"rope_type\": \"yarn\", "
                             "\"original_max_position_embeddings\": 8, "
                             "\"factor\": 4}}"));
    IS_OK(read_text(&outside, "{\"original_max_position_embeddings\": 8, "
                              "\"rope_scaling\": {\"rope_type\": \"yarn\", "
                              "\"factor\": 4}}"));
    EQUAL_INT((int)inside.rope.scaling.original, 8);
    CHECK(rope_scaling_same(&inside.rope.scaling, &outside.rope.scaling));
}

/* The defaults of yarn at 4 times the length: 0.1 ln 4 + 1. */
TEST(yarn_scales_cosines)
{
    struct model model = start;

    IS_OK(rope_from_text(&model, "yarn factor=4"));
    const double gap = rope_attention_factor(&model.rope.scaling, 1) -
                       1.1386294361119891;

    CHECK(gap < 1e-15 && gap > -1e-15);
    CHECK(rope_attention_factor(&start.rope.scaling, 1) == 1);
}

/* Factors of the pairs by the length of sequences; cosines by 64 over 7:
 * sqrt(1 + ln(64 / 7) / ln 7). */
TEST(longrope_has_two_lists)
{
    static const char *const line =
        "longrope original_max_position_embeddings=7 short_factor=1,2,4 "
        "long_factor=8,16,32";
    struct model model = start;

    IS_OK(rope_from_text(&model, line));
    for (int pair = 0; pair < 3; pair++) {
        const struct rope_scaling plain = {0};
        const double frequency = rope_frequency(&plain, 1e4, 6, pair, 7);

        CHECK(rope_frequency(&model.rope.scaling, 1e4, 6, pair, 7) ==
              frequency / (1 << pair));
        CHECK(rope_frequency(&model.rope.scaling, 1e4, 6, pair, 8) ==
              frequency / (8 << pair));
    }
    const double gap = rope_attention_factor(&model.rope.scaling, 1) -
                       1.461931298881084;

    CHECK(gap < 1e-15 && gap > -1e-15);
}

TEST_MAIN(every_kind_is_written_and_read_again,
          what_a_kind_does_not_know_is_refused,
          config_json_is_read_strictly, parts_of_a_head_contradict_each_other,
          the_old_length_may_be_outside, yarn_scales_cosines,
          longrope_has_two_lists)
