/* SPDX-License-Identifier: Apache-2.0 */
/* test_rounded.c - mirrors src/nn/rounded.c: the calls that it tells are those
 * that F, B and W of a linear layer make, each of as many elements. */
#include "nn/rounded.h"

#include <string.h>

#include "plan/stage.h"
#include "tests/test.h"

enum { SEQUENCES = 2, LENGTH = 64, TOKENS = SEQUENCES * LENGTH, IN = 96,
       OUT = 64, VOCAB = 16, CALLS_MOST = 32 };

static bool after_attention;

static status build(struct program *p, const struct model *model)
{
    const struct param_spec
        table = {.name = "table", .rows = VOCAB, .cols = IN},
        weight = {.name = "weight", .rows = OUT, .cols = IN,
                  .after_attention = after_attention},
        head = {.name = "head", .rows = VOCAB, .cols = OUT};
    slot x = nn_embedding(p, &table);

    (void)model;
    program_enter_block(p, 0);
    x = nn_linear(p, x, &weight, NULL);
    program_enter_block(p, -1);
    nn_head(p, x, &head);
    return p->error;
}

/* Elements of the calls with one text. */
struct counted { char text[ROUNDED_TEXT]; int64_t elements; };
struct counts { struct counted items[CALLS_MOST]; int count; };

static void count(struct counts *c, const struct rounded *call,
                  int64_t elements)
{
    char text[ROUNDED_TEXT];
    int i = 0;

    rounded_text(call, text);
    while (i < c->count && strcmp(c->items[i].text, text) != 0) i++;
    CHECK(i < CALLS_MOST);
    if (i == c->count) {
        c->items[c->count++].elements = 0;
        memcpy(c->items[i].text, text, sizeof text);
    }
    c->items[i].elements += elements;
}

/* Kernels that tell what they are asked for. */
static struct counts seen;
static const struct kernels *behind;

static status see_quantize(struct stream *stream, const struct quantize *q)
{
    count(&seen, &(struct rounded){
        .kernel = ROUNDED_QUANTIZE, .format = q->format, .scale = q->scale,
        .rounding = q->rounding, .block_rows = q->block_rows,
        .block_cols = q->block_cols, .turn = q->turn,
        .codes = q->scales != NULL,
        .real = q->in.dtype == DTYPE_F32}, tensor_count(&q->in));
    return behind->quantize(stream, q);
}

static status see_rotate(struct stream *stream, const struct rotate *r)
{
    count(&seen, &(struct rounded){
        .kernel = ROUNDED_ROTATE, .columns = r->columns,
        .real = r->in.dtype == DTYPE_F32}, tensor_count(&r->in));
    return behind->rotate(stream, r);
}

static status see_unrotate(struct stream *stream, const struct unrotate *u)
{
    count(&seen, &(struct rounded){
        .kernel = ROUNDED_UNROTATE, .format = u->format, .scale = u->scale,
        .turn = u->turn, .trust = u->trust,
        .real = u->out.dtype == DTYPE_F32}, tensor_count(&u->out));
    return behind->unrotate(stream, u);
}

static int64_t elements_of(enum product_use use, enum rounded_place place)
{
    const int64_t x = TOKENS * IN, dy = TOKENS * OUT, w = OUT * IN;

    switch (place) {
    case ROUNDED_FIRST: return use == USE_FORWARD ? x : dy;
    case ROUNDED_SECOND: return use == USE_WGRAD ? x : w;
    case ROUNDED_LEAF: return w;
    default: return x;
    }
}

static void same_calls(const struct precision *recipe)
{
    const struct model_kind kind = {.name = "layer", .build = build};
    const struct model model = {.kind = &kind, .vocab = VOCAB, .layers = 3,
                                .width = IN, .context = LENGTH};
    static const char *const none[] = {"none"};
    const struct stage_request request = {
        .model = &model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_BF16,
        .layout.grid = {.data = 1, .tensor = 1, .context = 1},
        .size.batch = SEQUENCES, .size.length = LENGTH, .seed = 7,
        .size.micro_batch = SEQUENCES, .backward = BACKWARD_FUSED,
        .machine.threads = 1, .recomputation.policy = none,
        .recomputation.count = 1, .slice = {0, 1, false, false},
        .precision = {.on = true, .recipe = *recipe, .end = 1,
                      .history = 16}};
    struct rounded calls[ROUNDED_MOST];
    struct counts told = {.count = 0};
    struct kernels watched;
    struct stage stage;

    IS_OK(stage_plan(&stage, &request));
    IS_OK(stage_open(&stage));
    stage.run.batch = (struct batch){.tokens = TOKENS};
    gradients_reset(&stage.gradients);
    behind = stage.run.kernels;
    watched = *behind;
    watched.quantize = see_quantize;
    watched.rotate = see_rotate;
    watched.unrotate = see_unrotate;
    stage.run.kernels = &watched;
    seen.count = 0;
    IS_OK(run_forward(&stage.run));
    IS_OK(run_backward_input(&stage.run));
    gradients_close(&stage.gradients);
    for (int use = USE_FORWARD; use <= USE_WGRAD; use++)
        for (int place = 0; place < ROUNDED_PLACES; place++) {
            const int of = rounded_calls(recipe, (enum product_use)use,
                                         (enum rounded_place)place, calls);

            if (place == ROUNDED_KEPT && !after_attention) continue;
            for (int i = 0; i < of; i++)
                count(&told, &calls[i],
                      elements_of((enum product_use)use,
                                  (enum rounded_place)place));
        }
    EQUAL_INT(told.count, seen.count);
    for (int i = 0; i < told.count; i++) {
        int64_t found = 0;

        for (int j = 0; j < seen.count; j++)
            if (strcmp(told.items[i].text, seen.items[j].text) == 0)
                found = seen.items[j].elements;
        if (found != told.items[i].elements)
            print_error("%s: %s\n", recipe->name, told.items[i].text);
        EQUAL_INT(told.items[i].elements, found);
    }
    stage.run.kernels = behind;
    stage_free(&stage);
}

TEST(a_layer_makes_the_calls_that_are_told)
{
    for (int i = 0; i < PRECISIONS; i++)
        if (!precision_is_late(&precisions[i])) same_calls(&precisions[i]);
}

TEST(after_attention_one_more_is_told)
{
    const struct precision *recipe;

    IS_OK(precision_parse(&recipe, "fp8-tiles"));
    after_attention = true;
    same_calls(recipe);
    after_attention = false;
}

TEST(texts_differ_and_so_do_their_codes)
{
    char a[ROUNDED_TEXT], b[ROUNDED_TEXT];
    struct rounded call = {.kernel = ROUNDED_QUANTIZE, .format = FORMAT_E4M3,
                           .scale = SCALE_CEIL, .block_rows = 1,
                           .block_cols = 128};

    EQUAL_TEXT(rounded_text(&call, a), "quantize e4m3 1x128 up nearest");
    call.block_cols = 0;
    EQUAL_TEXT(rounded_text(&call, b), "quantize e4m3 1xspan up nearest");
    CHECK(rounded_code(a) != rounded_code(b));
}

TEST_MAIN(a_layer_makes_the_calls_that_are_told,
          after_attention_one_more_is_told,
          texts_differ_and_so_do_their_codes)
