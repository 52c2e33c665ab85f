/* SPDX-License-Identifier: Apache-2.0 */
/* test_rounding_kernels.c - mirrors src/nn/rounding_kernels.c: the calls that
 * it tells are those that F, B and W of a linear layer make, each of as many
 * elements. */
#include "nn/rounding_kernels.h"

#include <string.h>

#include "plan/stage.h"
#include "tests/test.h"

enum { SEQUENCES = 2, LENGTH = 64, TOKENS = SEQUENCES * LENGTH, IN = 96,
       OUT = 64, VOCAB = 16, CALLS_MOST = 32 };

static bool after_attention, gated;

static status build(struct program *p, const struct model *model)
{
    const struct param_spec
        table = {.name = "table", .rows = VOCAB, .cols = IN},
        weight = {.name = "weight", .rows = OUT, .cols = IN,
                  .after_attention = after_attention},
        both = {.name = "gate_up", .rows = 2 * OUT, .cols = OUT},
        head = {.name = "head", .rows = VOCAB, .cols = OUT};
    slot x = nn_embedding(p, &table);

    (void)model;
    program_enter_block(p, 0);
    x = nn_linear(p, x, &weight, NULL);
    if (gated) x = nn_swiglu(p, nn_linear(p, x, &both, NULL));
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

static status see_encode(struct stream *stream, const struct block_encode *e)
{
    count(&seen, &(struct rounded){
        .kernel = ROUNDED_ENCODE, .format = e->coding.format,
        .scale = e->coding.scale, .block_rows = e->coding.block_rows,
        .block_cols = e->coding.block_cols}, tensor_count(&e->in));
    return behind->block_encode(stream, e);
}

static status see_decode(struct stream *stream, const struct block_decode *d)
{
    count(&seen, &(struct rounded){
        .kernel = ROUNDED_DECODE, .format = d->coding.format,
        .scale = d->coding.scale, .block_rows = d->coding.block_rows,
        .block_cols = d->coding.block_cols}, tensor_count(&d->out));
    return behind->block_decode(stream, d);
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

static void compare(const struct precision *recipe, const struct counts *told);

/* Runs F and B of a layer with the recipe; `tell` says what was expected. */
static void run_watched(const struct precision *recipe,
                        void (*tell)(const struct precision *,
                                     const struct stage *, struct counts *))
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
    watched.block_encode = see_encode;
    watched.block_decode = see_decode;
    stage.run.kernels = &watched;
    seen.count = 0;
    IS_OK(run_forward(&stage.run));
    IS_OK(run_backward_input(&stage.run));
    gradients_close(&stage.gradients);
    tell(recipe, &stage, &told);
    compare(recipe, &told);
    stage.run.kernels = behind;
    stage_free(&stage);
}

static void compare(const struct precision *recipe, const struct counts *told)
{
    EQUAL_INT(told->count, seen.count);
    for (int i = 0; i < told->count; i++) {
        int64_t found = 0;

        for (int j = 0; j < seen.count; j++)
            if (strcmp(told->items[i].text, seen.items[j].text) == 0)
                found = seen.items[j].elements;
        if (found != told->items[i].elements)
            print_error("%s: %s\n", recipe->name, told->items[i].text);
        EQUAL_INT(told->items[i].elements, found);
    }
}

static void tell_products(const struct precision *recipe,
                          const struct stage *stage, struct counts *told)
{
    struct rounded calls[ROUNDED_MOST];

    (void)stage;
    for (int use = USE_FORWARD; use <= USE_WGRAD; use++)
        for (int place = 0; place < ROUNDED_PLACES; place++) {
            const int of = rounded_calls(recipe, (enum product_use)use,
                                         (enum rounded_place)place, calls);

            if (place == ROUNDED_GLU ||
                (place == ROUNDED_KEPT && !after_attention))
                continue;
            for (int i = 0; i < of; i++)
                count(told, &calls[i],
                      elements_of((enum product_use)use,
                                  (enum rounded_place)place));
        }
}

static void same_calls(const struct precision *recipe)
{
    run_watched(recipe, tell_products);
}

/* Calls of a gate for gate and up, event by event. */
static void tell_gate(const struct precision *recipe, const struct stage *stage,
                      struct counts *told)
{
    struct rounded calls[ROUNDED_MOST];

    for (int i = 0; i < seen.count; i++) /* of its products: told above */
        if (strncmp(seen.items[i].text, "encode", 6) != 0 &&
            strncmp(seen.items[i].text, "decode", 6) != 0)
            told->items[told->count++] = seen.items[i];
    for (int i = 0; i < stage->frame.event_count; i++) {
        const struct event *event = &stage->frame.events[i];
        const bool first = event->pass == PASS_FORWARD;

        if (!stage->program.steps[event->step].layer->keeps_codes ||
            event->pass == PASS_BACKWARD_WEIGHT)
            continue;
        EQUAL_INT(rounded_calls(recipe, first ? USE_FORWARD : USE_DGRAD,
                                ROUNDED_GLU, calls), 1);
        count(told, &calls[0], TOKENS * 2 * OUT);
    }
}

TEST(a_gate_makes_codes_and_reads_them)
{
    const struct precision *recipe;
    struct precision with;

    IS_OK(precision_parse(&recipe, "fp8-tiles"));
    with = *recipe;
    with.glu = with.activations;
    gated = true;
    run_watched(&with, tell_gate);
    gated = false;
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

TEST_MAIN(a_gate_makes_codes_and_reads_them,
          a_layer_makes_the_calls_that_are_told,
          after_attention_one_more_is_told,
          texts_differ_and_so_do_their_codes)
