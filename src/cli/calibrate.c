/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.c - `calibrate`: measures this machine for the planner, at the very
 * products that given configurations make. */
#include <string.h>
#include "base/file.h"
#include "base/threads.h"
#include "bench/calibrate.h"
#include "cli/config.h"
#include "cli/run.h"
#include "cli/table.h"
#include "kernels/math.h"
#include "planner/shape.h"
#include "planner/this_machine.h"
#include "setup/setup.h"
#include "tokenizer/run_tokenizer.h"

struct wishes {
    struct wanted_product items[CALIBRATE_SHAPES];
    int count, dropped;    /* for which there is no room */
    struct rounded roundings[CALIBRATE_ROUNDINGS];
    struct calibrate_request *request; /* types */
};

static void wish_one(struct wishes *w, const struct wanted_product *p)
{
    for (int i = 0; i < w->count; i++) {
        const struct wanted_product *q = &w->items[i];

        if (q->m == p->m && q->n == p->n && q->k == p->k &&
            q->kind == p->kind && q->bits == p->bits &&
            accumulator_same(&q->accumulator, &p->accumulator))
            return;
    }
    if (w->count < CALIBRATE_SHAPES) w->items[w->count++] = *p;
    else w->dropped++;
}

/* of: bits and tokens of a sequence. */
static void wish(struct wishes *w, int64_t m, int64_t n, int64_t k,
                 struct wanted_product of)
{
    const struct wanted_product uses[] = {
        {m, n, k, PRODUCT_NT, of.bits, of.sequence, of.accumulator},
        {m, k, n, PRODUCT_NN, of.bits, of.sequence, of.accumulator},
        {n, k, m, PRODUCT_TN, of.bits, of.sequence, of.accumulator}};

    for (int i = 0; i < PRODUCT_KINDS; i++) wish_one(w, &uses[i]);
}

static void wish_rounding(struct wishes *w, const struct rounded *call)
{
    struct calibrate_request *r = w->request;
    char text[ROUNDED_TEXT], other[ROUNDED_TEXT];

    rounded_text(call, text);
    for (int i = 0; i < r->rounding_count; i++)
        if (strcmp(rounded_text(&w->roundings[i], other), text) == 0) return;
    if (r->rounding_count < CALIBRATE_ROUNDINGS)
        w->roundings[r->rounding_count++] = *call;
    else w->dropped++;
}

/* All that a recipe does to operands. */
static void wish_recipe(struct wishes *w, const struct precision_use *use)
{
    struct rounded calls[ROUNDED_MOST];

    if (!use->on) return;
    for (int now = USE_FORWARD; now <= USE_WGRAD; now++)
        for (int place = 0; place < ROUNDED_PLACES; place++) {
            const int count =
                rounded_calls(&use->recipe, (enum product_use)now,
                              (enum rounded_place)place, calls);

            for (int i = 0; i < count; i++) wish_rounding(w, &calls[i]);
        }
}

/* y of codes. */
static void wish_integers(struct wishes *w, int64_t m, int64_t n, int64_t k)
{
    wish_one(w, &(struct wanted_product){
        m, n, k, PRODUCT_NT, 8, 0, ACCUMULATOR_NONE});
}

/* One type of 16 bits is measured: the first that a configuration has. */
static void wish_type(struct calibrate_request *r,
                      const struct stage_request *stage)
{
    const bool narrow = dtype_bytes(stage->dtype) == 2;

    if (narrow && !r->takes[1]) {
        r->narrow = stage->dtype;
        r->product = stage->machine.product;
    }
    r->takes[narrow] = true;
}

/* Every product of a plan with so many ranks. */
static status wish_plan(struct wishes *w, const struct options_set *set,
                        int ranks)
{
    struct vocabulary vocabulary;
    struct setup setup = {0};
    struct shape shape;
    status result;

    TRY(run_vocabulary(&vocabulary, &set->values));
    TRY_GOTO(done, result, setup_resolve(&setup, set, &vocabulary, ranks, 0));
    TRY_GOTO(done, result, shape_of(&shape, &setup.model,
                                    setup.request.size.length));
    wish_type(w->request, &setup.request);
    struct wanted_product of = {
        .bits = dtype_bytes(setup.request.dtype) == 2 ? 16 : 32,
        .sequence = setup.request.size.length};
    const int64_t tokens =
        setup.request.size.micro_batch * setup.request.size.length;

    const bool integers =
        setup.request.precision.on &&
        precision_is_integer(&setup.request.precision.recipe);

    wish_recipe(w, &setup.request.precision);
    for (int i = 0; i < shape.product_count; i++) {
        const struct shape_product *p = &shape.products[i];

        of.accumulator = p->few > 0 ? setup.request.precision.accumulator
                                    : (struct accumulator){0};
        wish(w, tokens, p->outputs, p->inputs, of);
        if (integers) wish_integers(w, tokens, p->outputs, p->inputs);
    }
    of.accumulator = (struct accumulator){0};
    wish(w, tokens, shape.vocab, shape.width, of);
done:
    setup_free(&setup);
    return result;
}

static status wish_all(struct wishes *w, struct arguments *arguments,
                       int cores)
{
    for (int i = 0; i < arguments->operand_count; i++) {
        struct options_set set = {0};
        status result = config_read(&set, arguments->operands[i], arguments);

        if (result == OK)
            result = options_assign(&set, "mesh.layout=given",
                                    ORIGIN_COMMAND_LINE);
        if (result == OK) result = wish_plan(w, &set, 1);
        if (result == OK && cores > 1) {
            result = wish_plan(w, &set, cores);
            if (result != OK) { /* not a layout of so many ranks */
                status_clear();
                result = OK;
            }
        }
        options_free(&set);
        TRY(result);
    }
    return OK;
}

/* Rows that the profile lacks. */
static void tell_left(const struct wishes *w, const struct left_out *left)
{
    if (w->dropped > 0)
        fprintf(stderr, "warning: %d products and roundings of the "
                        "configurations left out: at most %d and %d are "
                        "measured\n", w->dropped, CALIBRATE_SHAPES,
                CALIBRATE_ROUNDINGS);
    if (left->large > 0)
        fprintf(stderr, "note: %d products of the configurations are too large "
                        "to be measured: they are extrapolated\n",
                left->large);
    if (left->products + left->works + left->roundings > 0)
        fprintf(stderr, "warning: no time was left for %d products, %d other "
                        "works and %d roundings: other work runs on the "
                        "machine, or --seconds is too few\n", left->products,
                left->works, left->roundings);
}

static status deliver(const struct machine *machine,
                      const struct arguments *arguments)
{
    const struct moments *moments = &machine->moments;
    char said[SENTINEL_TEXT];
    const char *path = arguments_text(arguments, "out", NULL);
    struct text text = {0};
    status result = machine_write(machine, &text);

    if (result == OK && path != NULL)
        result = file_write_named(path, text.bytes, text.length);
    else if (result == OK)
        fwrite(text.bytes, 1, text.length, stdout);
    text_free(&text);
    TRY(result);
    fprintf(stderr, "%s: %d products, %d collectives; at the end %s\n",
            machine->key, machine->product_count, machine->collective_count,
            sentinel_text(sentinel_slowness(moments->after, moments->before),
                          said));
    if (!moments_are_quiet(moments))
        fprintf(stderr, "warning: the machine was not equally fast all the "
                        "time: other work runs on it, or its clock changed; "
                        "calibrate again in a quiet minute\n");
    return OK;
}

/* ---- this moment beside a profile ---- */

static void write_followed(struct json_writer *w, const char *name,
                           struct slowness slow, const struct pace *pace,
                           double power)
{
    json_write_key(w, name);
    if (pace->product_s > 0)
        json_write_real(w, math_pow(slow.product, power));
    else
        json_write_null(w); /* of a profile that does not know */
}

static status print_now(struct sentinel now, struct slowness slow,
                        const struct pace *pace)
{
    struct json_writer w = {0};

    json_write_begin(&w, 1);
    json_write_object(&w);
    json_write_key_integer(&w, "version", 1);
    json_write_key_real(&w, "product_s", now.product_s);
    json_write_key_real(&w, "cache_s", now.cache_s);
    json_write_key_real(&w, "memory_s", now.memory_s);
    json_write_key_real(&w, "exchange_s", now.exchange_s);
    json_write_key_real(&w, "product", slow.product);
    json_write_key_real(&w, "cache", slow.cache);
    json_write_key_real(&w, "memory", slow.memory);
    json_write_key_real(&w, "exchange", slow.exchange);
    write_followed(&w, "products", slow, pace, pace->products);
    write_followed(&w, "works", slow, pace, pace->works);
    json_write_key(&w, "quiet");
    json_write_bool(&w, sentinel_is_quiet(slow));
    json_write_object_end(&w);
    return json_print(&w, stdout);
}

static status compare_now(const char *profile,
                          const struct calibrate_request *request)
{
    struct machine machine = {0};
    struct sentinel now;
    char key[MACHINE_KEY_BYTES], said[SENTINEL_TEXT];
    status result;

    this_machine_key(key);
    TRY(machine_open(&machine, &(struct machine_choice){
        .what = profile, .key = key, .where = "--against"}));
    if (machine.moments.before.product_s <= 0 ||
        machine.moments.before.memory_s <= 0)
        FAIL_GOTO(done, result, ERR_CONFIG,
                  "--against %s: has no sentinels to compare with; calibrate "
                  "--out FILE writes a profile that has", profile);
    TRY_GOTO(done, result, calibrate_now(request, &now));
    const struct slowness slow = sentinel_slowness(
        now, moments_usual(&machine.moments));

    fprintf(stderr, "%s: %s than when %s was measured\n",
            sentinel_is_quiet(slow) ? "quiet" : "noisy",
            sentinel_text(slow, said), profile);
    result = print_now(now, slow, &machine.moments.pace);
done:
    machine_free(&machine);
    return result;
}

status command_calibrate(struct arguments *arguments)
{
    const char *out = arguments_text(arguments, "out", NULL);
    const char *against = arguments_text(arguments, "against", NULL);
    static struct wishes wishes; /* too large for a stack */
    struct machine machine = {0};
    char disk[PATH_BYTES + 16];
    double seconds = 10;
    status result;
    struct calibrate_request asked = {.narrow = DTYPE_BF16,
                                      .product = PRODUCT_PAIRS};

    TRY(arguments_real(arguments, "seconds", 0.1, 3600, &seconds));
    TRY(file_may_write(out));
    if (arguments->operand_count == 0 && arguments_has(arguments, "set"))
        FAIL(ERR_USAGE, "--set changes configurations, and none is given: "
                        "lockstep calibrate CONFIG --set K=V");
    wishes.count = wishes.dropped = 0;
    wishes.request = &asked;
    asked.ranks = threads_cores();
    if (against != NULL) return compare_now(against, &asked);
    TRY(wish_all(&wishes, arguments, asked.ranks));
    if (arguments->operand_count == 0) asked.takes[0] = asked.takes[1] = true;
    snprintf(disk, sizeof disk, "%s.disk", out != NULL ? out : "calibrate");
    asked.seconds = seconds;
    asked.wanted = wishes.items;
    asked.wanted_count = wishes.count;
    asked.roundings = wishes.roundings;
    asked.disk = out != NULL && strncmp(out, "/dev/", 5) != 0 ? disk : NULL;
    result = calibrate(&machine, &asked);
    if (result == OK) result = deliver(&machine, arguments);
    if (result == OK) tell_left(&wishes, &machine.left_out);
    machine_free(&machine);
    return result;
}
