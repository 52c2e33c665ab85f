/* SPDX-License-Identifier: Apache-2.0 */
/* rounding_kernels.c - which kernels round the operands of a recipe's products.
 */
#include "nn/rounding_kernels.h"

#include <stdio.h>

struct calls {
    const struct precision *recipe;
    struct rounded *out;
    int count;
};

static struct rounded *add(struct calls *c, enum rounded_kernel kernel)
{
    struct rounded *call = &c->out[c->count++];

    CHECK(c->count <= ROUNDED_MOST);
    *call = (struct rounded){.kernel = kernel};
    return call;
}

static struct rounded *add_quantize(struct calls *c,
                                    const struct precision_role *role,
                                    bool turned)
{
    struct rounded *call;
    int64_t side[2];

    if (role->format == FORMAT_BF16) return NULL;
    call = add(c, ROUNDED_QUANTIZE);
    precision_block(role, turned, side);
    call->format = role->format;
    call->scale = role->scale;
    call->rounding = role->rounding;
    call->block_rows = side[0];
    call->block_cols = side[1];
    return call;
}

/* As y reads it: rotated first, where the recipe rotates. */
static void add_straight(struct calls *c, const struct precision_role *role)
{
    if (c->recipe->rotate) add(c, ROUNDED_ROTATE);
    add_quantize(c, role, false)->real = c->recipe->rotate;
}

/* quantized_again. */
static void add_again(struct calls *c, bool turned)
{
    if (c->recipe->turn) add(c, ROUNDED_ROTATE)->columns = turned;
    add_quantize(c, &c->recipe->gradients, turned)->real = c->recipe->turn;
}

/* straight_backward, leaf_back. */
static void add_back(struct calls *c, const struct precision_role *role,
                     bool real)
{
    struct rounded *call = add(c, ROUNDED_UNROTATE);

    call->format = role->format;
    call->scale = role->scale;
    call->turn = c->recipe->rotate;
    call->trust = c->recipe->trust;
    call->real = real;
}

/* glu_rows_encode, glu_rows_decode. */
static void add_coded(struct calls *c, enum rounded_kernel kernel)
{
    const struct precision_role *role = &c->recipe->glu;
    struct rounded *call;
    int64_t side[2];

    if (role->format == FORMAT_BF16) return;
    call = add(c, kernel);
    precision_block(role, false, side);
    call->format = role->format;
    call->scale = role->scale;
    call->block_rows = side[0];
    call->block_cols = side[1];
}

static void add_all_straight(struct calls *c, enum product_use use,
                             enum rounded_place place)
{
    const struct precision *recipe = c->recipe;

    if (place == ROUNDED_LAYER && use == USE_FORWARD)
        add_straight(c, &recipe->activations);
    if (place == ROUNDED_LAYER && use == USE_DGRAD)
        add_back(c, &recipe->activations, false);
    if (place == ROUNDED_LEAF && use == USE_WGRAD)
        add_back(c, &recipe->weights, true);
    if (place == ROUNDED_SECOND && use != USE_WGRAD)
        add_straight(c, &recipe->weights);
    if ((place == ROUNDED_FIRST && use != USE_FORWARD) ||
        (place == ROUNDED_SECOND && use != USE_FORWARD))
        add_again(c, use == USE_WGRAD || place == ROUNDED_SECOND);
}

int rounded_calls(const struct precision *recipe, enum product_use use,
                  enum rounded_place place, struct rounded out[ROUNDED_MOST])
{
    const bool first = place == ROUNDED_FIRST;
    const bool weight = place == ROUNDED_SECOND && use != USE_WGRAD;
    const struct precision_role *role =
        weight                        ? &recipe->weights
        : first && use != USE_FORWARD ? &recipe->gradients
                                      : &recipe->activations;
    struct calls c = {recipe, out, 0};
    struct rounded *call;

    if (place == ROUNDED_GLU) {
        if (use != USE_WGRAD)
            add_coded(&c, use == USE_FORWARD ? ROUNDED_ENCODE : ROUNDED_DECODE);
        return c.count;
    }
    if (recipe->straight) {
        add_all_straight(&c, use, place);
        return c.count;
    }
    if (place == ROUNDED_KEPT) {
        if (use == USE_WGRAD) add_quantize(&c, &recipe->kept, false);
        return c.count;
    }
    if (place > ROUNDED_KEPT) return 0;
    call = add_quantize(&c, role, use == USE_WGRAD ||
                                      (weight && use == USE_DGRAD));
    if (call == NULL) return 0;
    call->turn = use == USE_WGRAD && recipe->turn;
    call->codes = use == USE_FORWARD && precision_is_integer(recipe);
    return c.count;
}

/* "128", or "span". */
static const char *side_text(int64_t side, char out[16])
{
    if (side == 0) return "span";
    snprintf(out, 16, "%lld", (long long)side);
    return out;
}

const char *rounded_text(const struct rounded *call, char out[ROUNDED_TEXT])
{
    const char *format = number_formats[call->format].name;
    const char *scale = precision_scale_names[call->scale];
    const char *of = call->real ? " f32" : "";
    char rows[16], cols[16];

    switch (call->kernel) {
    case ROUNDED_QUANTIZE:
        snprintf(out, ROUNDED_TEXT,
                 "quantize %.8s %.5sx%.5s %.8s %s%s%s%s", format,
                 side_text(call->block_rows, rows),
                 side_text(call->block_cols, cols), scale,
                 call->rounding == ROUND_STOCHASTIC ? "stochastic" : "nearest",
                 call->turn ? " turn" : "", call->codes ? " codes" : "", of);
        break;
    case ROUNDED_ROTATE:
        snprintf(out, ROUNDED_TEXT, "rotate %s%s",
                 call->columns ? "columns" : "rows", of);
        break;
    case ROUNDED_ENCODE:
    case ROUNDED_DECODE:
        snprintf(out, ROUNDED_TEXT, "%s %.8s %.5sx%.5s %.8s",
                 call->kernel == ROUNDED_ENCODE ? "encode" : "decode", format,
                 side_text(call->block_rows, rows),
                 side_text(call->block_cols, cols), scale);
        break;
    default:
        snprintf(out, ROUNDED_TEXT, "unrotate %.8s %.8s%s%s%s", format, scale,
                 call->turn ? " turn" : "", call->trust ? " trust" : "", of);
    }
    return out;
}

uint64_t rounded_code(const char *text)
{
    uint64_t code = 0xCBF29CE484222325u; /* FNV-1a */

    for (; *text != 0; text++)
        code = (code ^ (unsigned char)*text) * 0x100000001B3u;
    return code;
}
