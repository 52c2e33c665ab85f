/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - rows of optimizer.groups, read and laid over the rules. */
#include "optimizer/groups.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { ROW_BYTES = 512, WHERE_BYTES = 48 };

/* The content of one row. */
struct row {
    char where[WHERE_BYTES];     /* "optimizer.groups, row 2" */
    const char *pattern;
    bool sets_frozen, frozen;
    const struct optimizer_kind *kind; /* NULL: not said */
    bool sets[4];
    double values[4];            /* of keys, below */
};

/* The numbers that a row may set. */
static const struct {
    const char *name;
    double least, most;
    size_t at;                   /* in struct optimizer_rule */
} keys[] = {
    {"lr_factor", 0, 1e6, offsetof(struct optimizer_rule, lr)},
    {"weight_decay", 0, 10, offsetof(struct optimizer_rule, weight_decay)},
    {"beta1", 0, 0.999999999, offsetof(struct optimizer_rule, beta1)},
    {"beta2", 0, 0.999999999, offsetof(struct optimizer_rule, beta2)},
};
enum { KEYS = sizeof keys / sizeof *keys };

/* ---- globs ---- */

bool groups_match(const char *pattern, const char *text)
{
    const char *star = NULL, *retry = NULL;

    for (;;) {
        if (*pattern == '*') {
            star = pattern++;
            retry = text;
        } else if (*text == '\0') {
            return *pattern == '\0';
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star + 1;
            text = ++retry;
        } else {
            return false;
        }
    }
}

/* ---- a row ---- */

static status read_number(struct row *row, int key, const char *value)
{
    char *end = NULL;
    const double number = strtod(value, &end);

    if (end == value || *end != '\0' || !(number >= keys[key].least) ||
        !(number <= keys[key].most))
        FAIL(ERR_CONFIG, "%s: %s=%.40s is not a number from %.10g to %.10g",
             row->where, keys[key].name, value, keys[key].least,
             keys[key].most);
    row->sets[key] = true;
    row->values[key] = number;
    return OK;
}

static status read_frozen(struct row *row, const char *value)
{
    row->sets_frozen = true;
    row->frozen = strcmp(value, "true") == 0;
    if (row->frozen || strcmp(value, "false") == 0) return OK;
    FAIL(ERR_CONFIG, "%s: frozen=%.40s is neither true nor false", row->where,
         value);
}

/* A kind that keeps an average in place of a schedule applies to a whole
 * run. */
static status read_kind(struct row *row, const char *value)
{
    TRY(optimizer_find(&row->kind, value));
    if (row->kind->average == NULL) return OK;
    FAIL(ERR_CONFIG, "%s: %s is for whole runs (optimizer.name)", row->where,
         row->kind->name);
}

static status fail_key(const struct row *row, const char *word)
{
    const char *names[KEYS + 2] = {"frozen", "optimizer"};
    const char *near;

    for (int i = 0; i < KEYS; i++) names[i + 2] = keys[i].name;
    near = strcmp(word, "lr") == 0 ? "lr_factor"
                                   : text_nearest(word, names, KEYS + 2);
    FAIL(ERR_CONFIG, "%s: %.40s is not frozen, optimizer, lr_factor, "
                     "weight_decay, beta1 or beta2%s%s", row->where, word,
         near != NULL ? "; nearest: " : "", near != NULL ? near : "");
}

/* "frozen" or "key=value"; the word is changed. */
static status read_word(struct row *row, char *word)
{
    char *value = strchr(word, '=');

    if (value != NULL) *value++ = '\0';
    if (strcmp(word, "frozen") == 0)
        return read_frozen(row, value != NULL ? value : "true");
    if (strcmp(word, "optimizer") == 0 && value != NULL)
        return read_kind(row, value);
    for (int i = 0; i < KEYS; i++)
        if (strcmp(word, keys[i].name) == 0 && value != NULL)
            return read_number(row, i, value);
    return fail_key(row, word);
}

/* text [ROW_BYTES]: what the words of the row point into. */
static status read_row(struct row *row, const char *from, int index,
                       char *text)
{
    char *rest = text;
    int words = 0;

    *row = (struct row){0};
    snprintf(row->where, sizeof row->where, "optimizer.groups, row %d",
             index + 1);
    if (strlen(from) >= ROW_BYTES)
        FAIL(ERR_CONFIG, "%s: %zu bytes, at most %d are possible", row->where,
             strlen(from), ROW_BYTES - 1);
    memcpy(text, from, strlen(from) + 1);
    for (;;) {
        char *word = rest + strspn(rest, " \t");

        if (*word == '\0') break;
        rest = word + strcspn(word, " \t");
        if (*rest != '\0') *rest++ = '\0';
        if (words++ == 0) row->pattern = word;
        else TRY(read_word(row, word));
    }
    if (words < 2)
        FAIL(ERR_CONFIG, "%s: \"%.80s\" changes nothing; a row reads PATTERN "
                         "[frozen] [KEY=VALUE ...]", row->where, from);
    return OK;
}

/* ---- what it matches ---- */

/* All of a parameter or nothing of it. */
static status match_param(const struct row *row, const struct param *param,
                          const char *prefix, bool *out)
{
    struct param_outside piece;
    char taken[sizeof piece.name] = "", left[sizeof piece.name] = "";

    *out = groups_match(row->pattern, param->name);
    for (int i = 0; !*out && param_outside(param, prefix, i, &piece); i++)
        memcpy(groups_match(row->pattern, piece.name) ? taken : left,
               piece.name, sizeof taken);
    if (taken[0] == '\0') return OK;
    if (left[0] != '\0')
        FAIL(ERR_CONFIG, "%s: %s matches %s but not %s, and both are rows of "
                         "one matrix here; a pattern that matches %s takes "
                         "all of it", row->where, row->pattern, taken, left,
             param->name);
    *out = true;
    return OK;
}

/* The part of a name at the place of the pattern's fixed beginning or end. */
static void cut_name(const char *pattern, char *name)
{
    const size_t length = strlen(name), fixed = strlen(pattern) - 1;

    if (strchr(pattern, '*') == NULL || length < fixed) return;
    if (pattern[0] == '*') {
        memmove(name + 1, name + length - fixed, fixed + 1);
        name[0] = '*';
    } else if (pattern[fixed] == '*') {
        memcpy(name + fixed, "*", 2);
    }
}

/* A glob that takes the first parameter in whose names the pattern is a part,
 * whole; out [ROW_BYTES + 2]. False: no name has it. */
static bool widen(char *out, const char *pattern,
                  const struct param_table *params, const char *prefix)
{
    if (pattern[strcspn(pattern, "*?")] != '\0') return false;
    for (int i = 0; i < params->count; i++) {
        const struct param *param = &params->items[i];
        const char *last = strrchr(param->name, '.');
        struct param_outside piece;
        bool part = strstr(param->name, pattern) != NULL, whole = true;

        for (int j = 0; !part && param_outside(param, prefix, j, &piece); j++)
            whole = strstr(piece.name, pattern) != NULL && whole;
        for (int j = 0; !part && param_outside(param, prefix, j, &piece); j++)
            part = strstr(piece.name, pattern) != NULL;
        if (!part) continue;
        if (whole) snprintf(out, ROW_BYTES + 2, "*%s*", pattern);
        else snprintf(out, ROW_BYTES + 2, "*%s", last ? last : param->name);
        return true;
    }
    return false;
}

/* The name, or the end of names, that was probably meant. */
static status fail_nothing(const struct row *row,
                           const struct param_table *params,
                           const char *prefix)
{
    struct param_outside *pieces;
    const char **names;
    const char *near;
    char wide[ROW_BYTES + 2];
    void *memory = NULL, *room = NULL;
    int count = 0, most = params->count;
    status result;

    for (int i = 0; i < params->count; i++)
        most += param_tensors(&params->items[i].spec);
    TRY_GOTO(done, result, memory_take((size_t)most + 1, sizeof *names,
                                       &memory));
    TRY_GOTO(done, result, memory_take((size_t)most + 1, sizeof *pieces,
                                       &room));
    names = memory;
    pieces = room;
    for (int i = 0; i < params->count; i++) {
        const struct param *param = &params->items[i];

        for (int j = 0; param_outside(param, prefix, j, &pieces[count]);
             j++) {
            cut_name(row->pattern, pieces[count].name);
            names[count] = pieces[count].name;
            count++;
        }
        snprintf(pieces[count].name, sizeof pieces[count].name, "%s",
                 param->name);
        cut_name(row->pattern, pieces[count].name);
        names[count] = pieces[count].name;
        count++;
    }
    near = text_nearest(row->pattern, names, count);
    if (near == NULL && widen(wide, row->pattern, params, prefix))
        near = wide;
    FAIL_GOTO(done, result, ERR_CONFIG,
              "%s: %s matches no parameter%s%s; plan --explain parameters "
              "lists them", row->where, row->pattern,
              near != NULL ? "; nearest: " : "", near != NULL ? near : "");
done:
    memory_free(memory);
    memory_free(room);
    return result;
}

static bool is_inner_matrix(const struct param *param)
{
    return !param->spec.vector && param->layer >= 0;
}

static status change(const struct row *row, const struct param *param,
                     struct optimizer_rule *rule)
{
    if (row->kind != NULL && row->kind->matrices && !is_inner_matrix(param))
        FAIL(ERR_CONFIG, "%s: %s is for matrices of blocks, and %s is none; "
                         "adamw takes it", row->where, row->kind->name,
             param->name);
    if (row->sets_frozen && !row->frozen && param->spec.fixed)
        FAIL(ERR_CONFIG, "%s: %s has no gradient; counts of tokens move it "
                         "(moe.bias_rate)", row->where, param->name);
    if (row->sets_frozen) rule->frozen = row->frozen;
    rule->still = rule->still || (row->sets_frozen && param->spec.fixed);
    if (row->kind != NULL) rule->kind = row->kind;
    for (int i = 0; i < KEYS; i++)
        if (row->sets[i])
            *(double *)(void *)((char *)rule + keys[i].at) = row->values[i];
    return OK;
}

/* One row over all parameters of the table. */
static status apply_row(const struct row *row,
                        const struct param_table *params, const char *prefix,
                        struct optimizer_rule *rules, int *matched)
{
    *matched = 0;
    for (int i = 0; i < params->count; i++) {
        bool matches;

        TRY(match_param(row, &params->items[i], prefix, &matches));
        if (!matches) continue;
        TRY(change(row, &params->items[i], &rules[i]));
        ++*matched;
    }
    return OK;
}

static status apply_rates(const struct rate_factors *factors,
                          const struct param *param,
                          struct optimizer_rule *rule)
{
    if (rule->frozen) return OK;
    if (rule->kind->rates == RATES_NONE)
        FAIL(ERR_CONFIG, "model.mup_base_width: muP has no learning-rate rule "
                         "for %s, the optimizer of %s; choose adamw, lion, "
                         "schedule_free or sgd, or set it to 0",
             rule->kind->name, param->name);
    rule->lr *= rule->kind->rates == RATES_SGD ? factors->sgd : factors->adam;
    rule->gradient = factors->gradient;
    return OK;
}

status groups_apply(const struct groups *groups,
                    const struct param_table *params,
                    struct optimizer_rule *rules)
{
    char text[ROW_BYTES];
    struct row row;
    int matched;

    for (int i = 0; i < groups->count; i++) {
        TRY(read_row(&row, groups->rows[i], i, text));
        TRY(apply_row(&row, params, groups->prefix, rules, &matched));
    }
    for (int i = 0; i < params->count && groups->rates != NULL; i++)
        TRY(apply_rates(&groups->rates[params->items[i].order],
                        &params->items[i], &rules[i]));
    return OK;
}

status groups_check(const struct groups *groups,
                    const struct param_table *whole)
{
    struct optimizer_rule *rules;
    char text[ROW_BYTES];
    struct row row;
    void *memory = NULL;
    status result = OK;

    TRY(memory_take((size_t)whole->count + 1, sizeof *rules, &memory));
    rules = memory;
    for (int i = 0; i < groups->count; i++) {
        int matched;

        TRY_GOTO(done, result, read_row(&row, groups->rows[i], i, text));
        TRY_GOTO(done, result, apply_row(&row, whole, groups->prefix, rules,
                                         &matched));
        if (matched == 0)
            TRY_GOTO(done, result, fail_nothing(&row, whole,
                                                groups->prefix));
    }
done:
    memory_free(memory);
    return result;
}
