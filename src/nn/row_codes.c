/* SPDX-License-Identifier: Apache-2.0 */
/* row_codes.c - rows of experts as codes, and whether they can be. */
#include "nn/row_codes.h"

#include "kernels/codes.h"

/* Rounding is done once a row: what was rounded rounds to itself. By two-level
 * scales it need not, and late ones count what they see. */
static bool is_of_a_row(const struct precision_role *role)
{
    if (role->scale == SCALE_NONE) return true;
    return role->fixed && role->across == 1 && role->along == 0 &&
           (role->scale == SCALE_FLOOR || role->scale == SCALE_CEIL ||
            role->scale == SCALE_EXACT);
}

/* Why rows of the role are no codes in any mode. */
static const char *never(const struct precision_use *use,
                         const struct precision_role *role)
{
    if (!use->on) return "numerics.recipe is none";
    if (use->steps > 0)
        return "numerics.recipe_steps ends the recipe, and later steps read "
               "rows as they are";
    if (use->recipe.straight) return "the recipe rounds them anew in each use";
    if (role->format == FORMAT_BF16)
        return "the recipe leaves them in bfloat16";
    return NULL;
}

/* Why codes that are rounded again would be other numbers. */
static const char *inexact(const struct precision_use *use,
                           const struct precision_role *role)
{
    if (use->recipe.turn)
        return "the recipe transforms them before it rounds them "
               "(numerics.mode=fast rounds them twice)";
    if (role->rounding != ROUND_NEAREST)
        return "the recipe rounds them stochastically (numerics.mode=fast "
               "rounds them twice)";
    if (!is_of_a_row(role))
        return "the weight gradient rounds them in blocks of tokens that only "
               "their expert knows (a row \"activations e4m3 token up\" in "
               "numerics.recipe_rows rounds each token alone; "
               "numerics.mode=fast rounds them twice)";
    return NULL;
}

/* How rows go then: a token has one scale. */
static const struct precision_role twice = {
    .format = FORMAT_E4M3, .along = 0, .across = 1, .scale = SCALE_CEIL,
    .rounding = ROUND_NEAREST, .fixed = true};

const char *row_codes_refusal(const struct precision_use *use)
{
    const char *why = never(use, &use->recipe.activations);

    if (why != NULL || use->twice) return why;
    return inexact(use, &use->recipe.activations);
}

bool row_codes_twice(const struct precision_use *use)
{
    const struct precision_role *const roles[] = {&use->recipe.activations,
                                                  &use->recipe.gradients};

    for (int i = 0; i < 2; i++)
        if (use->dispatched && use->twice && never(use, roles[i]) == NULL &&
            inexact(use, roles[i]) != NULL)
            return true;
    return false;
}

static int64_t scale_bytes(const struct precision_role *role)
{
    return role->scale == SCALE_NONE ? 0 : code_scale_bytes(role->scale);
}

int64_t row_codes_bytes(const struct precision_role *role, int64_t width)
{
    return code_row_bytes(role->format, width) + scale_bytes(role);
}

const struct precision_role *row_codes_of(const struct precision_use *use,
                                          bool gradient, int64_t width)
{
    const struct precision_role *role = gradient ? &use->recipe.gradients
                                                 : &use->recipe.activations;

    if (!use->dispatched || never(use, role) != NULL) return NULL;
    if (inexact(use, role) != NULL) {
        if (!use->twice) return NULL;
        role = &twice;
    }
    return row_codes_bytes(role, width) < width * dtype_bytes(DTYPE_BF16)
               ? role : NULL;
}

/* ---- codes ---- */

struct room { struct quantize_span *rows, *cols; float *peaks, *scales; };

size_t row_codes_scratch(int64_t rows)
{
    return 2 * arena_aligned(sizeof(struct quantize_span)) +
           2 * arena_aligned((size_t)rows * sizeof(float));
}

static struct room room_of(const struct run *run, void *scratch,
                           const struct tensor *rows)
{
    const size_t span = arena_aligned(sizeof(struct quantize_span));
    char *const lists = run_list(run, scratch), *const at = scratch;
    struct room room = {
        (struct quantize_span *)(void *)lists,
        (struct quantize_span *)(void *)(lists + span),
        (float *)(void *)(at + 2 * span), NULL};

    room.scales = (float *)(void *)(
        (char *)room.peaks +
        arena_aligned((size_t)rows->shape[0] * sizeof(float)));
    *room.rows = (struct quantize_span){.count = rows->shape[0]};
    *room.cols = (struct quantize_span){.count = rows->shape[1]};
    return room;
}

static struct block_coding coding_of(const struct precision_role *role,
                                     const struct room *room)
{
    return (struct block_coding){
        .rows = room->rows, .cols = room->cols, .row_spans = 1,
        .col_spans = 1, .format = role->format, .block_rows = 1,
        .scale = role->scale};
}

status row_codes_encode(struct run *run, const struct precision_role *role,
                        void *scratch, struct tensor rows, void *codes)
{
    const int64_t bytes = row_codes_bytes(role, rows.shape[1]);
    const int64_t scale = scale_bytes(role);
    const struct room room = room_of(run, scratch, &rows);

    if (rows.shape[0] == 0) return OK;
    TRY(run->kernels->block_encode(
        run->stream, &(struct block_encode){
            .what = ENCODE_ALL, .in = rows, .coding = coding_of(role, &room),
            .peaks = room.peaks, .scales = room.scales, .codes = codes,
            .row_bytes = bytes}));
    if (scale == 0) return OK;
    return device_copy_rows(
        run->stream,
        (struct device_rows){(char *)codes + bytes - scale, bytes},
        (struct device_rows){room.scales, scale}, rows.shape[0],
        (size_t)scale);
}

/* Without scales each is 1, as E8M0 has it. */
enum { ONE = 127 };

status row_codes_decode(struct run *run, const struct precision_role *role,
                        void *scratch, const void *codes, struct tensor rows)
{
    const int64_t bytes = row_codes_bytes(role, rows.shape[1]);
    const int64_t scale = scale_bytes(role), count = rows.shape[0];
    const struct room room = room_of(run, scratch, &rows);
    char *const last = (char *)(uintptr_t)codes + bytes - scale;

    if (count == 0) return OK;
    TRY(scale == 0
            ? device_fill(run->stream, room.scales, ONE, (size_t)count)
            : device_copy_rows(run->stream,
                               (struct device_rows){room.scales, scale},
                               (struct device_rows){last, bytes}, count,
                               (size_t)scale));
    return run->kernels->block_decode(
        run->stream, &(struct block_decode){
            .out = rows, .coding = coding_of(role, &room),
            .scales = room.scales, .codes = codes, .row_bytes = bytes});
}
