/* SPDX-License-Identifier: Apache-2.0 */
/* test_groups.c - mirrors src/optimizer/groups.c: which rows speak of which
 * parameter, and what is refused. */
#include "optimizer/groups.h"

#include <string.h>

#include "tests/test.h"

static const struct {
    const char *pattern, *text;
    bool matches;
} globs[] = {
    {"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true},
    {"a*c", "abbc", true}, {"a*c", "abcd", false}, {"*.bias", "a.bias", true},
    {"*.bias", "a.bias.b", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
    {"*a*b*", "xxaxxbxx", true}, {"*a*b*", "xxbxxaxx", false},
    {"**", "x", true}, {"layers.1.*", "layers.11.wq", false},
    {"*ab", "aab", true}, {"*aab", "aaab", true}, {"?", "", false}};

TEST(globs_match)
{
    for (int i = 0; i < ROWS(globs); i++)
        EQUAL_INT(groups_match(globs[i].pattern, globs[i].text),
                  globs[i].matches);
}

/* Two layers with a fused matrix, a vector, and an embedding. */
enum { EMBEDDING, WQKV0, NORM0, WQKV1, NORM1, PARAMS };

static void table_build(struct param_table *table)
{
    const struct param_spec
        embedding = {.name = "embedding", .outside_name = "model.embed.weight",
                     .rows = 7, .cols = 4, .decay = true},
        wqkv = {.name = "wqkv", .rows = 12, .cols = 4, .decay = true,
                .piece_count = 3,
                .pieces = {{"attn.q.weight", 4, 0}, {"attn.k.weight", 4, 0},
                           {"attn.v.weight", 4, 0}}},
        norm = {.name = "norm", .outside_name = "norm.weight", .rows = 1,
                .cols = 4, .vector = true};
    int index;

    *table = (struct param_table){0};
    IS_OK(param_add(table, "embedding", -1, &embedding, NULL, &index));
    for (int i = 0; i < 2; i++) {
        IS_OK(param_add(table, "wqkv", i, &wqkv, NULL, &index));
        IS_OK(param_add(table, "norm", i, &norm, NULL, &index));
    }
    EQUAL_INT(table->count, PARAMS);
}

static struct groups groups_of(const char *const *rows, int count)
{
    return (struct groups){.rows = rows, .count = count,
                           .prefix = "model.layers.%d."};
}

static void build(const struct groups *groups,
                  const struct param_table *table,
                  struct optimizer_rule rules[PARAMS])
{
    const struct optimizer_choice choice = {.groups = *groups};

    IS_OK(groups_check(groups, table));
    IS_OK(rules_build(rules, table, &choice));
}

TEST(later_rows_win_and_factors_of_the_model_multiply)
{
    static const char *const rows[] = {
        "* lr_factor=0.5 weight_decay=0.25", "layers.1.* frozen",
        "*.norm.weight  beta1=0.75\tbeta2=0.5", "layers.1.norm frozen=false",
        "model.embed.weight lr_factor=3 optimizer=adamw"};
    static const struct rate_factors rates[PARAMS] = {
        {1, 2, 1}, {0.125, 16, 1}, {1, 2, 0.25}, {0.125, 16, 1}, {1, 2, 1}};
    struct groups groups = groups_of(rows, ROWS(rows));
    struct optimizer_rule rules[PARAMS];
    struct param_table table;

    groups.rates = rates;
    table_build(&table);
    build(&groups, &table, rules);
    CHECK(rules[EMBEDDING].lr == 3 && rules[WQKV0].lr == 0.0625);
    CHECK(rules[NORM0].lr == 0.5 && rules[NORM0].beta1 == 0.75);
    CHECK(rules[NORM1].beta2 == 0.5 && rules[WQKV0].beta1 == -1);
    CHECK(rules[NORM0].weight_decay == 0.25);
    CHECK(rules[WQKV1].frozen && !rules[NORM1].frozen && !rules[WQKV0].frozen);
    CHECK(rules[NORM0].gradient == 0.25 && rules[WQKV0].gradient == 1);
    CHECK(rule_state(&rules[WQKV1], 0) == NULL);
    CHECK(rule_state(&rules[WQKV0], 0) != NULL);
    param_table_free(&table);
}

TEST(rates_of_the_width_follow_the_optimizer)
{
    static const char *const rows[] = {
        "*wqkv lr_factor=0.5", "layers.1.*wqkv optimizer=adamw",
        "layers.1.norm optimizer=lion"};
    static const char *const frozen[] = {"*wqkv frozen"};
    static const struct rate_factors rates[PARAMS] = {
        {1, 2, 1}, {0.125, 16, 1}, {1, 2, 0.25}, {0.125, 16, 1}, {1, 2, 1}};
    struct groups groups = groups_of(rows, ROWS(rows));
    struct optimizer_choice choice = {.kind = &optimizer_sgd};
    struct optimizer_rule rules[PARAMS];
    struct param_table table;

    table_build(&table);
    groups.rates = rates;
    choice.groups = groups;
    IS_OK(rules_build(rules, &table, &choice));
    CHECK(rules[EMBEDDING].lr == 2 && rules[WQKV0].lr == 8);
    CHECK(rules[WQKV1].lr == 0.0625 && rules[NORM1].lr == 1);
    choice.kind = &optimizer_muon;
    FAILS(rules_build(rules, &table, &choice), ERR_CONFIG,
          "muP has no learning-rate rule for muon, the optimizer of "
          "layers.0.wqkv");
    choice.groups = groups_of(frozen, 1); /* what is frozen needs none */
    choice.groups.rates = rates;
    IS_OK(rules_build(rules, &table, &choice));
    param_table_free(&table);
}

TEST(adapters_alone_are_trained_unless_a_row_says_otherwise)
{
    static const char *const rows[] = {"layers.0.norm frozen=false"};
    struct groups groups = groups_of(rows, 1);
    struct optimizer_rule rules[PARAMS];
    struct param_table table;

    table_build(&table);
    table.items[WQKV1].spec.adapter = true;
    groups.adapters = true;
    build(&groups, &table, rules);
    CHECK(rules[EMBEDDING].frozen && rules[WQKV0].frozen);
    CHECK(rules[NORM1].frozen && !rules[NORM0].frozen);
    CHECK(!rules[WQKV1].frozen);
    param_table_free(&table);
}

static const struct {
    const char *row, *says;
} refused[] = {
    {"", "row 2: \"\" changes nothing"},
    {"layers.0.wqkv", "changes nothing"},
    {"layers.0.wqk lr_factor=2", "nearest: layers.0.wqkv"},
    {"layer.0.* lr_factor=2", "nearest: layers.0*"},
    {"model.layers.0.atn.q.weight frozen", "matches no parameter"},
    {"norm frozen", "nearest: *norm*"},
    {"q.weight frozen", "nearest: *.wqkv"},
    {"*.q.weight frozen", "matches model.layers.0.attn.q.weight but not"},
    {"* lr=2", "nearest: lr_factor"},
    {"* lrfactor=2", "nearest: lr_factor"},
    {"* lr_factor", "lr_factor is not"},
    {"* lr_factor=x", "lr_factor=x is not a number from 0"},
    {"* lr_factor=-1", "is not a number"},
    {"* lr_factor=nan", "is not a number"},
    {"* weight_decay=11", "is not a number from 0 to 10"},
    {"* beta1=1.5", "is not a number from 0 to 0.999999999"},
    {"* frozen=maybe", "neither true nor false"},
    {"* optimizer=adamm", "nearest: adamw"},
    {"* optimizer=schedule_free", "is for whole runs"}};

TEST(rows_that_cannot_be_followed_are_refused)
{
    struct param_table table;

    table_build(&table);
    for (int i = 0; i < ROWS(refused); i++) {
        const char *const rows[] = {"* frozen", refused[i].row};
        const struct groups groups = groups_of(rows, 2);

        FAILS(groups_check(&groups, &table), ERR_CONFIG, refused[i].says);
        status_clear();
    }
    param_table_free(&table);
}

TEST(a_part_of_the_model_need_not_have_what_a_row_names)
{
    static const char *const rows[] = {"embedding frozen"};
    const struct groups groups = groups_of(rows, 1);
    struct optimizer_rule rules[PARAMS] = {{0}};
    struct param_table table;

    table_build(&table);
    memmove(&table.items[0], &table.items[1],
            (PARAMS - 1) * sizeof *table.items);
    table.count--;
    IS_OK(groups_apply(&groups, &table, rules));
    for (int i = 0; i < table.count; i++) CHECK(!rules[i].frozen);
    param_table_free(&table);
}

TEST_MAIN(globs_match, later_rows_win_and_factors_of_the_model_multiply,
          rates_of_the_width_follow_the_optimizer,
          adapters_alone_are_trained_unless_a_row_says_otherwise,
          rows_that_cannot_be_followed_are_refused,
          a_part_of_the_model_need_not_have_what_a_row_names)
