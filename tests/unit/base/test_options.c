/* SPDX-License-Identifier: Apache-2.0 */
/* test_options.c - mirrors src/base/options.c, options_yaml.c and
 * options_write.c. */
#include "base/options.h"

#include "tests/test.h"

static void read_yaml(struct options_set *set, const char *yaml)
{
    IS_OK(options_init(set));
    IS_OK(options_read_text(set, yaml, strlen(yaml), "c.yaml", ORIGIN_FILE));
}

TEST(defaults_are_those_of_the_table)
{
    struct options_set set;

    IS_OK(options_init(&set));
    EQUAL_INT(set.values.version, 1);
    EQUAL_TEXT(set.values.model.family, "llama");
    CHECK(set.values.optimizer.lr == 3e-4);
    CHECK(set.values.checkpoint.at_end);
    EQUAL_INT(set.values.data.train.count, 0);
    EQUAL_INT(set.values.train.recompute.count, 1);
    EQUAL_INT(options_origin(&set, "optimizer.lr"), ORIGIN_DEFAULT);
    options_free(&set);
}

TEST(every_form_of_yaml_is_read)
{
    struct options_set set;

    read_yaml(&set,
              "\xef\xbb\xbf# a comment\r\nversion: 1\nseed: 010\n"
              "model: {family: gpt2, mlp_bias: yes, width: 1e3}\n"
              "data:\n  train:\n    - a.txt\n    - \"b c.txt\"\n"
              "  valid: v.txt\n  cache: no\n"
              "optimizer:\n  lr: 1e-4\n  beta1: .5\n"
              "train.steps: +7\ninit:\ntokenizer: {from: 'x''y'}\n");
    EQUAL_INT(set.values.seed, 10);
    EQUAL_TEXT(set.values.model.family, "gpt2");
    CHECK(set.values.model.mlp_bias);
    EQUAL_INT(set.values.model.width, 1000);
    EQUAL_INT(set.values.data.train.count, 2);
    EQUAL_TEXT(set.values.data.train.items[1], "b c.txt");
    EQUAL_INT(set.values.data.valid.count, 1);
    EQUAL_TEXT(set.values.data.valid.items[0], "v.txt");
    EQUAL_TEXT(set.values.data.cache, "no");
    CHECK(set.values.optimizer.lr == 1e-4);
    CHECK(set.values.optimizer.beta1 == 0.5);
    EQUAL_INT(set.values.train.steps, 7);
    EQUAL_TEXT(set.values.tokenizer.from, "x'y");
    EQUAL_INT(options_origin(&set, "train.steps"), ORIGIN_FILE);
    EQUAL_INT(options_origin(&set, "train.batch"), ORIGIN_DEFAULT);
    options_free(&set);
}

TEST(nothing_is_a_configuration_of_defaults)
{
    static const char *const rows[] = {"", "# only a comment\n", "---\n",
                                       "{}", "---\n...\n", "model:\n"};

    for (int i = 0; i < ROWS(rows); i++) {
        struct options_set set;

        read_yaml(&set, rows[i]);
        EQUAL_INT(set.values.train.batch, 16);
        options_free(&set);
    }
}

struct mistake { const char *yaml, *words; };

static void refused(const struct mistake *row)
{
    struct options_set set;

    IS_OK(options_init(&set));
    FAILS(options_read_text(&set, row->yaml, strlen(row->yaml), "c.yaml",
                            ORIGIN_FILE), ERR_CONFIG, row->words);
    options_free(&set);
}

/* Names and numbers as people of other programs write them. */
TEST(habits_are_told_our_words)
{
    static const struct mistake rows[] = {
        {"moe: {router: sigmoid}",
         "moe.router is not an option; did you mean model.family"},
        {"lr: 3", "lr is not an option; did you mean optimizer.lr"},
        {"model: {lr: 3}", "did you mean optimizer.lr"},
        {"train: {seed: 3}", "train.seed is not an option; did you mean seed?"},
        {"optimizer: {eps: 1e-8}", "did you mean optimizer.epsilon?"},
        {"mesh: {ep: 2}", "did you mean mesh.expert?"},
        {"moe: {dropless: true}", "did you mean moe.capacity_factor?"},
        {"moe: {n_group: 4}", "did you mean moe.groups?"},
        {"parallelism: {tensor_parallel_degree: 2}", "did you mean mesh?"},
        {"parallelism.tensor_parallel_degree: 2", "did you mean mesh.tensor?"},
        {"checkpoint: {interval: 5}", "did you mean checkpoint.every?"},
        {"train: {batch: 0x10}", "is not an integer; it counts sequences"},
        {"train: {batch: 1_000}", "is not an integer; write 1000"},
        {"train: {batch: 16K}", "is not an integer; it counts sequences"},
        {"train: {batch: null}", "not an integer; without the line it is 16"},
        {"train: {memory: 4 GiB}", "is not a finite number; write 4"},
        {"train: {memory: 4096MiB}", "not a finite number; it counts GiB"},
    };

    for (int i = 0; i < ROWS(rows); i++) refused(&rows[i]);
}

TEST(mistakes_get_one_sentence)
{
    static const struct mistake rows[] = {
        {"seed: 1\nmodel:\n  widht: 3\n",
         "c.yaml:3: model.widht is not an option; nearest: model.width"},
        {"modle: {width: 3}", "modle is not an option; nearest: model"},
        {"zzzzzzzzzz: 1", "zzzzzzzzzz is not an option; see docs/"},
        {"model: 3", "model is a section and needs fields"},
        {"model: [3]", "model is a section"},
        {"train: {batch: 0}",
         "c.yaml:1: train.batch: 0 is outside 1 to 1048576 sequences"},
        {"train: {batch: -1}", "-1 is outside"},
        {"train: {batch: x}", "train.batch: \"x\" is not an integer"},
        {"train: {batch: 1.5}", "\"1.5\" is not an integer"},
        {"train: {batch: 9223372036854775808}", "is outside 1 to"},
        {"train: {batch: 1e300}", "1e300 is outside 1 to"},
        {"train: {batch: }", "\"\" is not an integer"},
        {"train: {batch: [1]}", "takes one value, found a list"},
        {"train: {batch: {a: 1}}", "train.batch needs a value, found a map"},
        {"optimizer: {lr: .nan}", "\".nan\" is not a finite number"},
        {"optimizer: {lr: inf}", "is not a finite number"},
        {"optimizer: {lr: 1e999}", "is not a finite number"},
        {"optimizer: {lr: 0x1p3}", "is not a finite number"},
        {"optimizer: {lr: 1e}", "is not a finite number"},
        {"optimizer: {beta1: 1.5}", "beta1: 1.5 is outside 0 to 0.999999999"},
        {"model: {mlp_bias: maybe}", "\"maybe\" is neither true nor false"},
        {"version: 2", "version: 2 is outside 1 to 1"},
        {"seed: 1\nseed: 2\n", "c.yaml:2: seed was already set in line 1"},
        {"model: {width: 8}\nmodel: {heads: 2}\n",
         "c.yaml:2: model was already set in line 1"},
        {"model: {width: 8}\nmodel.width: 9\n", "already set in line 1"},
        {"model: {width: 8, width: 8}", "already set"},
        {"seed: &a 1", "an anchor (&name) has no meaning"},
        {"model: &a {width: 8}", "an anchor"},
        {"seed: *a", "an alias (*name) has no meaning"},
        {"seed: !!int 1", "a tag (!name) has no meaning"},
        {"data: {train: [[a]]}", "a list holds values, found a list in it"},
        {"data: {train: [a: b]}", "found a mapping in it"},
        {"- a\n- b\n", "expected options as \"name: value\", found a list"},
        {"just words", "found a value"},
        {"[a]: 3", "expected the name of an option, found a list"},
        {"seed: 1\n---\nseed: 2\n", "c.yaml:2: the file has a second document"},
        {"seed: [1", "not YAML: did not find"},
        {"seed: \"a", "not YAML: "},
        {"model:\n\twidth: 3\n", "c.yaml:2: not YAML: "},
        {"run: {dir: \"a\\0b\"}", "run.dir holds a character U+0000"},
        {"run: {dir: \xFF}", "not YAML"},
    };

    for (int i = 0; i < ROWS(rows); i++) refused(&rows[i]);
}

TEST(size_and_depth_are_limited)
{
    enum { SIZE = (1 << 20) + 1 };
    struct options_set set;
    void *text;

    IS_OK(options_init(&set));
    IS_OK(memory_take(SIZE, 1, &text));
    memset(text, '[', SIZE);
    FAILS(options_read_text(&set, text, SIZE, "c", ORIGIN_FILE), ERR_CONFIG,
          "larger than 1048576 bytes");
    FAILS(options_read_text(&set, text, SIZE - 1, "c", ORIGIN_FILE),
          ERR_CONFIG, "c:1: ");
    memset(text, '#', SIZE);
    IS_OK(options_read_text(&set, text, SIZE - 1, "c", ORIGIN_FILE));
    memory_free(text);
    options_free(&set);
}

TEST(assignments_come_from_the_command_line)
{
    struct options_set set;

    read_yaml(&set, "optimizer: {lr: 1}");
    IS_OK(options_assign(&set, "optimizer.lr=3e-4", ORIGIN_COMMAND_LINE));
    CHECK(set.values.optimizer.lr == 3e-4);
    EQUAL_INT(options_origin(&set, "optimizer.lr"), ORIGIN_COMMAND_LINE);
    IS_OK(options_assign(&set, "data.train=a=1,b c", ORIGIN_COMMAND_LINE));
    EQUAL_INT(set.values.data.train.count, 2);
    EQUAL_TEXT(set.values.data.train.items[0], "a=1");
    IS_OK(options_assign(&set, "data.train=[\"x,y\", z]",
                         ORIGIN_COMMAND_LINE));
    EQUAL_INT(set.values.data.train.count, 2);
    EQUAL_TEXT(set.values.data.train.items[0], "x,y");
    IS_OK(options_assign(&set, "data.train=", ORIGIN_COMMAND_LINE));
    EQUAL_INT(set.values.data.train.count, 0);
    IS_OK(options_assign(&set, "run.dir=[a: b]#", ORIGIN_COMMAND_LINE));
    EQUAL_TEXT(set.values.run.dir, "[a: b]#");
    FAILS(options_assign(&set, "run.dir", ORIGIN_COMMAND_LINE), ERR_CONFIG,
          "\"run.dir\" is not of the form NAME=VALUE");
    FAILS(options_assign(&set, "run.dri=x", ORIGIN_COMMAND_LINE), ERR_CONFIG,
          "run.dri is not an option; nearest: run.dir");
    FAILS(options_assign(&set, "train.batch=0", ORIGIN_COMMAND_LINE),
          ERR_CONFIG, "train.batch: 0 is outside 1 to 1048576 sequences");
    EQUAL_INT(set.values.train.batch, 16); /* the old value stays */
    FAILS(options_assign(&set, "data.train=[a", ORIGIN_COMMAND_LINE),
          ERR_CONFIG, "data.train:");
    FAILS(options_assign(&set, "run.dir=\xFF", ORIGIN_COMMAND_LINE),
          ERR_CONFIG, "run.dir: the value is not UTF-8");
    options_free(&set);
}

TEST(the_environment_is_read)
{
    struct options_set set;

    IS_OK(options_init(&set));
    setenv("LOCKSTEP_OPTIMIZER__WEIGHT_DECAY", "0.25", 1);
    setenv("LOCKSTEP_SEED", "9", 1);
    setenv("LOCKSTEP_UNRELATED", "9", 1);
    IS_OK(options_read_environment(&set));
    CHECK(set.values.optimizer.weight_decay == 0.25);
    EQUAL_INT(set.values.seed, 9);
    EQUAL_INT(options_origin(&set, "seed"), ORIGIN_ENVIRONMENT);
    setenv("LOCKSTEP_OPTIMIZER__LX", "1", 1);
    FAILS(options_read_environment(&set), ERR_CONFIG,
          "optimizer.lx is not an option; nearest: optimizer.lr");
    unsetenv("LOCKSTEP_OPTIMIZER__LX");
    setenv("LOCKSTEP_OPTIMIZER_MIN_LR", "1", 1);
    FAILS(options_read_environment(&set), ERR_CONFIG,
          "looks like optimizer.min_lr");
    unsetenv("LOCKSTEP_OPTIMIZER_MIN_LR");
    FAILS(options_assign(&set, "=3", ORIGIN_COMMAND_LINE), ERR_CONFIG,
          "is not of the form NAME=VALUE");
    unsetenv("LOCKSTEP_OPTIMIZER__WEIGHT_DECAY");
    unsetenv("LOCKSTEP_SEED");
    unsetenv("LOCKSTEP_UNRELATED");
    options_free(&set);
}

TEST(what_is_written_reads_back_equal)
{
    struct options_set set, again;
    struct text first = {0}, second = {0}, value = {0};

    read_yaml(&set, "optimizer: {lr: 0.1, min_lr: 1.0e-7, epsilon: 3e-30}\n"
                    "run: {dir: \"a \\\"b\\\" \\\\ \\x01 \\u2028 \\x85 "
                    "\xC3\xA9 \xF0\x9F\x98\x80\\ufeff\"}\n"
                    "tokenizer: {from: '# no comment', end_of_text: '- a'}\n"
                    "data: {train: ['a, b', '', '[c]', d], field: 'null'}\n"
                    "seed: 9007199254740991\n");
    IS_OK(options_write_yaml(&set, &first));
    read_yaml(&again, first.bytes);
    CHECK(set.values.optimizer.lr == again.values.optimizer.lr);
    CHECK(again.values.optimizer.epsilon == 3e-30);
    EQUAL_TEXT(again.values.run.dir, set.values.run.dir);
    EQUAL_INT(again.values.data.train.count, 4);
    EQUAL_INT(again.values.seed, 9007199254740991);
    for (int i = 0; i < options_count(); i++) {
        const char *name = option_name(i);

        first.length = 0;
        second.length = 0;
        IS_OK(options_get_text(&set, name, &first));
        IS_OK(options_get_text(&again, name, &second));
        EQUAL_TEXT(second.bytes, first.bytes);
        EQUAL_INT(options_origin(&again, name), ORIGIN_FILE);
    }
    FAILS(options_get_text(&set, "model.widht", &value), ERR_CONFIG,
          "nearest: model.width");
    text_free(&value);
    text_free(&first);
    text_free(&second);
    options_free(&again);
    options_free(&set);
}

/* "mesh: auto" is short for one option of that section. */
TEST(a_section_alone_is_an_option)
{
    struct options_set set;

    read_yaml(&set, "mesh: auto");
    EQUAL_TEXT(set.values.mesh.layout, "auto");
    EQUAL_INT(options_origin(&set, "mesh.layout"), ORIGIN_FILE);
    IS_OK(options_assign(&set, "mesh=given", ORIGIN_COMMAND_LINE));
    EQUAL_TEXT(set.values.mesh.layout, "given");
    CHECK(options_may_change("mesh") && !options_may_change("model"));
    FAILS(options_assign(&set, "model=auto", ORIGIN_COMMAND_LINE), ERR_CONFIG,
          "is a section");
    options_free(&set);
}

TEST(who_set_a_value_is_written)
{
    struct options_set set;
    struct text text = {0};
    static const char expected[] = "version: 1 # default\nseed: 2 # file\n"
                                   "zero: ddp # default\n"
                                   "zero_reduce: auto # default\n"
                                   "zero_format: real # default\n"
                                   "machine: \"\" # default\n"
                                   "device: auto # default\n"
                                   "device_graphs: false # default\n"
                                   "\nmodel: # the architecture\n"
                                   "  family: gpt2 # command line\n";

    read_yaml(&set, "seed: 2");
    IS_OK(options_assign(&set, "model.family=gpt2", ORIGIN_COMMAND_LINE));
    IS_OK(options_write_yaml(&set, &text));
    CHECK(strncmp(text.bytes, expected, strlen(expected)) == 0);
    text_free(&text);
    options_free(&set);
}

/* Names with lists are kept as the text of one line, from a file in either form
 * and from the command line. */
TEST(names_with_lists_are_one_text)
{
    struct options_set set;

    read_yaml(&set, "zero: {states: [shard, data], weights: []}");
    EQUAL_TEXT(set.values.zero, "{states: [shard, data], weights: []}");
    options_free(&set);
    read_yaml(&set, "zero:\n  states:\n  - shard\nseed: 2");
    EQUAL_TEXT(set.values.zero, "{states: [shard]}");
    EQUAL_INT(set.values.seed, 2);
    IS_OK(options_assign(&set, "zero={states: []}", ORIGIN_COMMAND_LINE));
    EQUAL_TEXT(set.values.zero, "{states: []}");
    options_free(&set);
}

/* A run's own file, read again, still says who set each value. */
TEST(who_set_a_value_survives)
{
    struct options_set set, again;
    struct text text = {0};

    read_yaml(&set, "train: {steps: 7}\nrun: {dir: \"a # default\"}\n");
    IS_OK(options_assign(&set, "optimizer.lr=0.5", ORIGIN_COMMAND_LINE));
    IS_OK(options_write_yaml(&set, &text));
    IS_OK(options_init(&again));
    IS_OK(options_read_text(&again, text.bytes, text.length, "run",
                            ORIGIN_RUN));
    EQUAL_INT(options_origin(&again, "train.steps"), ORIGIN_RUN);
    options_read_origins(&again, text.bytes, text.length);
    EQUAL_INT(options_origin(&again, "train.steps"), ORIGIN_FILE);
    EQUAL_INT(options_origin(&again, "run.dir"), ORIGIN_FILE);
    EQUAL_INT(options_origin(&again, "optimizer.lr"), ORIGIN_COMMAND_LINE);
    EQUAL_INT(options_origin(&again, "model.layers"), ORIGIN_DEFAULT);
    EQUAL_INT(options_origin(&again, "seed"), ORIGIN_DEFAULT);
    text_free(&text);
    options_free(&again);
    options_free(&set);
}

TEST(the_table_describes_itself)
{
    struct text text = {0};

    IS_OK(options_describe(&text, true));
    CHECK(strstr(text.bytes, "| `train.batch` | 16 sequences | 1 to 1048576 | "
                             "stays | "
                             "global batch size of a step |\n") != NULL);
    text.length = 0;
    IS_OK(options_describe(&text, false));
    CHECK(strstr(text.bytes, "\ntrain: the training loop\n") != NULL);
    text_free(&text);
}

TEST(auto_fills_an_axis)
{
    struct options_set set;

    IS_OK(options_init(&set));
    IS_OK(options_assign(&set, "mesh.data=auto", ORIGIN_COMMAND_LINE));
    EQUAL_INT(set.values.mesh.data, -1);
    FAILS(options_assign(&set, "train.batch=auto", ORIGIN_COMMAND_LINE),
          ERR_CONFIG, "\"auto\" is not an integer");
    options_free(&set);
}

TEST(a_star_that_is_not_quoted_has_a_hint)
{
    static const char *const texts[] = {
        "optimizer: {groups: [* frozen]}\n",
        "optimizer: {groups: [*norm* frozen]}\n",
        "optimizer:\n  groups:\n  - *.wo frozen\n", "seed: *a\n"};

    for (int i = 0; i < ROWS(texts); i++) {
        struct options_set set;

        IS_OK(options_init(&set));
        EQUAL_INT(options_read_text(&set, texts[i], strlen(texts[i]), "c",
                                    ORIGIN_FILE), ERR_CONFIG);
        CHECK(strstr(status_hint_text(), "quote a text that begins") != NULL);
        status_clear();
        options_free(&set);
    }
}

/* The rows say what a resumed run may change, and what ranks may differ in. */
TEST(rows_say_what_may_change)
{
    static const struct { const char *name; bool changes, differs; } rows[] = {
        {"model.width", false, false}, {"seed", false, false},
        {"train.batch", false, false}, {"numerics.grid_data", false, false},
        {"zero", true, false}, {"mesh.tensor", true, false},
        {"train.steps", true, false}, {"optimizer.lr", true, false},
        {"train.threads", true, true}, {"numerics.isa", true, true},
        {"no.such", false, false}};

    for (int i = 0; i < ROWS(rows); i++) {
        EQUAL_INT(options_may_change(rows[i].name), rows[i].changes);
        EQUAL_INT(options_may_differ(rows[i].name), rows[i].differs);
    }
}

TEST_MAIN(a_section_alone_is_an_option, rows_say_what_may_change,
          a_star_that_is_not_quoted_has_a_hint,
          auto_fills_an_axis, defaults_are_those_of_the_table,
          every_form_of_yaml_is_read,
          nothing_is_a_configuration_of_defaults, habits_are_told_our_words,
          mistakes_get_one_sentence,
          size_and_depth_are_limited, assignments_come_from_the_command_line,
          the_environment_is_read, what_is_written_reads_back_equal,
          who_set_a_value_is_written, who_set_a_value_survives,
          names_with_lists_are_one_text,
          the_table_describes_itself)
