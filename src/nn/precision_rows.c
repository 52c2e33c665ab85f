/* SPDX-License-Identifier: Apache-2.0 */
/* precision_rows.c - a recipe with rows of one's own:
 *
 *   weights|activations|gradients FORMAT [BLOCK SCALE [ROUNDING]]
 *   kept|glu FORMAT [BLOCK SCALE]
 *   hadamard on|off
 *   straight on|off, and of such a recipe: rotate on|off, trust on|off
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "nn/precision.h"

enum { WORDS_MAX = 5, WORD_BYTES = 24 };

struct words {
    const char *row; /* borrowed: the whole */
    char word[WORDS_MAX][WORD_BYTES];
    int count;
};

static status split(struct words *out, const char *row)
{
    const char *at = row;

    *out = (struct words){.row = row};
    for (;;) {
        size_t length;

        while (*at == ' ') at++;
        if (*at == '\0') break;
        length = strcspn(at, " ");
        if (out->count == WORDS_MAX || length >= WORD_BYTES)
            FAIL(ERR_CONFIG, "numerics.recipe_rows: \"%s\" is not \"ROLE "
                             "FORMAT BLOCK SCALE ROUNDING\" or \"hadamard "
                             "on\"", row);
        memcpy(out->word[out->count++], at, length);
        at += length;
    }
    if (out->count >= 2) return OK;
    FAIL(ERR_CONFIG, "numerics.recipe_rows: \"%s\" has too few words, such as "
                     "in \"weights e4m3 1x32 up\" and \"hadamard off\"", row);
}

const char *const precision_scale_names[SCALE_COUNT] = {
    "none", "down", "up", "late", "two", "two-late", "exact", "mean", "gauss",
    "fit"};

/* The number of a word among names; -1: it is none. */
static int find(const char *word, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(word, names[i]) == 0) return i;
    return -1;
}

static status choose(const struct words *w, int at, const char *const *names,
                     int count, int *out)
{
    *out = find(w->word[at], names, count);
    if (*out >= 0) return OK;
    const char *near = text_nearest(w->word[at], names, count);
    char all[256] = "";

    for (int i = 0; i < count; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
                 i == 0 ? "" : i < count - 1 ? ", " : " and ", names[i]);
    FAIL(ERR_CONFIG, "numerics.recipe_rows: \"%s\": \"%s\" is none of %s%s%s",
         w->row, w->word[at], all, near != NULL ? "; nearest: " : "",
         near != NULL ? near : "");
}

/* "region", "token", or ROWSxCOLUMNS as for y. */
static status read_block(const struct words *w, struct precision_role *role)
{
    const char *text = w->word[2];
    char *end;

    role->along = role->across = 0;
    role->fixed = strcmp(text, "token") == 0;
    if (role->fixed) role->across = 1;
    if (role->fixed || strcmp(text, "region") == 0) return OK;
    role->across = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    if (role->across > 0 && *end == 'x' && isdigit((unsigned char)end[1]))
        role->along = strtol(end + 1, &end, 10);
    if (role->along >= 1 && *end == '\0' && role->across >= 1 &&
        role->along <= QUANTIZE_BLOCK_MOST &&
        role->across <= QUANTIZE_BLOCK_MOST)
        return OK;
    FAIL(ERR_CONFIG, "numerics.recipe_rows: \"%s\": \"%s\" is not region, "
                     "token or a block such as 1x32 or 128x128, of sides up to "
                     "%d", w->row, text, (int)QUANTIZE_BLOCK_MOST);
}

static status read_role(const struct words *w, struct precision_role *role,
                        bool weights)
{
    static const char *const roundings[] = {"nearest", "stochastic"};
    const char *names[FORMAT_E8M0];
    int format, scale, rounding = 0;

    for (int i = 0; i < FORMAT_E8M0; i++) names[i] = number_formats[i].name;
    TRY(choose(w, 1, names, FORMAT_E8M0, &format));
    if (format == FORMAT_BF16) {
        *role = (struct precision_role){FORMAT_BF16, .fixed = true};
        if (w->count == 2) return OK;
    }
    if (format == FORMAT_BF16 || w->count < 4)
        FAIL(ERR_CONFIG, "numerics.recipe_rows: \"%s\" should %s", w->row,
             format == FORMAT_BF16 ? "end after bf16, which has no scale"
                                   : "go on with a block and a scale, such as "
                                     "1x32 up");
    TRY(read_block(w, role));
    TRY(choose(w, 3, precision_scale_names, SCALE_COUNT, &scale));
    if (scale == SCALE_LATE && strcmp(w->word[2], "region") != 0)
        FAIL(ERR_CONFIG, "numerics.recipe_rows: \"%s\": a late scale is one "
                         "of the whole tensor, so the block is region, not "
                         "%s", w->row, w->word[2]);
    if (w->count > 4) TRY(choose(w, 4, roundings, 2, &rounding));
    if (weights && rounding == 1)
        FAIL(ERR_CONFIG, "numerics.recipe_rows: \"%s\": weights are rounded to "
                         "nearest, so that micro-batches see the same ones",
             w->row);
    role->format = (enum number_format)format;
    role->scale = (enum scale_rule)scale;
    role->rounding = rounding == 1 ? ROUND_STOCHASTIC : ROUND_NEAREST;
    return OK;
}

/* Another operand of the same products has the history and the random
 * numbers. */
static status read_kept(const struct words *w, struct precision_role *role)
{
    TRY(read_role(w, role, false));
    if (role->rounding == ROUND_NEAREST && !scale_is_late(role->scale))
        return OK;
    FAIL(ERR_CONFIG, "numerics.recipe_rows: \"%s\": what is kept is rounded to "
                     "nearest with scales of now, such as \"%s %s 1x128 up\"",
         w->row, w->word[0], strcmp(w->word[0], "kept") == 0 ? "e5m6" : "e4m3");
}

/* A token alone says how its numbers are rounded, so that no other shows in
 * them, whatever rows lie beside it. */
static status read_glu(const struct words *w, struct precision_role *role)
{
    TRY(read_kept(w, role));
    if (role->format == FORMAT_BF16 ||
        (role->across == 1 &&
         (role->scale <= SCALE_CEIL || role->scale == SCALE_EXACT)))
        return OK;
    FAIL(ERR_CONFIG, "numerics.recipe_rows: \"%s\": inputs of SwiGLU have "
                     "blocks of one token, such as 1x128 or token, and a scale "
                     "none, down, up or exact, such as \"glu e4m3 1x128 up\"",
         w->row);
}

enum { KEYS = 9 };
static const char *const keys[KEYS] = {
    "weights", "activations", "gradients", "kept", "glu", "hadamard",
    "straight", "rotate", "trust"};

/* Each role and switch has one row; first[key]: its number from 1; 0: none. */
static status check_first(const char *const *rows, int at, int key,
                          int first[KEYS])
{
    if (first[key] > 0)
        FAIL(ERR_CONFIG, "numerics.recipe_rows: row %d, \"%s\", sets %s again "
                         "after row %d, \"%s\"; keep one of them", at + 1,
             rows[at], keys[key], first[key], rows[first[key] - 1]);
    first[key] = at + 1;
    return OK;
}

static status read_row(struct precision *recipe, const char *const *rows,
                       int at, int first[KEYS])
{
    const char *row = rows[at];
    bool *const switches[] = {&recipe->turn, &recipe->straight,
                              &recipe->rotate, &recipe->trust};
    static const char *const states[] = {"off", "on"};
    struct precision_role *const roles[] = {
        &recipe->weights, &recipe->activations, &recipe->gradients};
    struct words w;
    int key, on;

    TRY(split(&w, row));
    TRY(choose(&w, 0, keys, KEYS, &key));
    TRY(check_first(rows, at, key, first));
    if (key < 3) return read_role(&w, roles[key], key == 0);
    if (key == 3) return read_kept(&w, &recipe->kept);
    if (key == 4) return read_glu(&w, &recipe->glu);
    if (w.count != 2)
        FAIL(ERR_CONFIG, "numerics.recipe_rows: \"%s\" is not %s on or %s off",
             row, keys[key], keys[key]);
    TRY(choose(&w, 1, states, 2, &on));
    *switches[key - 5] = on == 1;
    return OK;
}

/* The transform cancels in dW only where both operands have it. */
static bool can_turn(const struct precision_role *role)
{
    return role->format != FORMAT_BF16 && !role->fixed &&
           role->along == QUANTIZE_TURN && role->scale != SCALE_MEAN;
}

static bool in_runs(const struct precision_role *role)
{
    return role->format != FORMAT_BF16 && role->across == 1 &&
           role->along == ROTATE_RUN &&
           (role->scale == SCALE_NONE || role->scale == SCALE_FLOOR ||
            role->scale == SCALE_CEIL || role->scale == SCALE_GAUSS ||
            role->scale == SCALE_FIT);
}

static status check_straight(const struct precision *recipe)
{
    const struct precision_role *const roles[] = {
        &recipe->weights, &recipe->activations, &recipe->gradients};
    static const char *const names[] = {"weights", "activations", "gradients"};

    for (int i = 0; i < 3; i++) {
        const bool gradients = i == 2;
        const bool other = gradients ? roles[i]->scale == SCALE_GAUSS
                                     : roles[i]->scale == SCALE_FIT ||
                                           roles[i]->rounding != ROUND_NEAREST;

        if (!in_runs(roles[i]) || other)
            FAIL(ERR_CONFIG, "numerics.recipe_rows: with \"straight on\" %s "
                             "have blocks 1x%d, %s, such as "
                             "\"%s e2m1 1x%d %s\"", names[i], ROTATE_RUN,
                 gradients ? "and a scale none, down, up or fit"
                           : "a scale none, down, up or gauss, and are rounded "
                             "to nearest", names[i], ROTATE_RUN,
                 gradients ? "fit stochastic" : "gauss");
    }
    const bool kept = recipe->kept.format != FORMAT_BF16;

    if (!kept && recipe->glu.format == FORMAT_BF16) return OK;
    FAIL(ERR_CONFIG, "numerics.recipe_rows: with \"straight on\" dW reads what "
                     "y read, so nothing else is kept; use \"%s bf16\"",
         kept ? "kept" : "glu");
}

/* Words that belong to straight recipes alone. */
static status check_others(const struct precision *recipe)
{
    const struct precision_role *const roles[] = {
        &recipe->weights, &recipe->activations, &recipe->gradients,
        &recipe->kept, &recipe->glu};
    const char *word = recipe->rotate  ? "rotate on"
                       : recipe->trust ? "trust on"
                                       : NULL;

    for (int i = 0; i < 5; i++) {
        if (roles[i]->format == FORMAT_BF16) continue;
        if (roles[i]->scale == SCALE_GAUSS) word = "gauss";
        if (roles[i]->scale == SCALE_FIT) word = "fit";
    }
    if (word == NULL) return OK;
    FAIL(ERR_CONFIG, "numerics.recipe_rows: \"%s\" goes with \"straight on\", "
                     "as in numerics.recipe=mxfp4-quartet", word);
}

status precision_change(struct precision *recipe, const char *const *rows,
                        int count)
{
    int first[KEYS] = {0};

    for (int i = 0; i < count; i++) TRY(read_row(recipe, rows, i, first));
    if (recipe->straight) return check_straight(recipe);
    TRY(check_others(recipe));
    if (!recipe->turn ||
        (can_turn(&recipe->activations) && can_turn(&recipe->gradients)))
        return OK;
    FAIL(ERR_CONFIG, "numerics.recipe_rows: the Hadamard transform mixes %d "
                     "tokens, so activations and gradients need blocks of %d "
                     "along what is summed, such as 1x%d; or set \"hadamard "
                     "off\"", QUANTIZE_TURN, QUANTIZE_TURN, QUANTIZE_TURN);
}
