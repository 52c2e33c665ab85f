/* SPDX-License-Identifier: Apache-2.0 */
/* step_print.c - the results of `bench step` as text and as JSON. */
#include "bench/step_print.h"

#include <string.h>
#include "device/library.h"

enum { LAYERS_MAX = 32, PASSES = 4 };

struct layer_time { const char *name; double ms[PASSES]; };

/* Milliseconds per step by layer and pass. */
static int by_layer(const struct step_figures *f,
                    struct layer_time rows[LAYERS_MAX])
{
    const struct stage *stage = f->stage;
    int count = 0;

    for (int i = 0; i < stage->frame.event_count; i++) {
        const struct event *event = &stage->frame.events[i];
        const char *name = stage->program.steps[event->step].layer->name;
        int at = 0;

        while (at < count && strcmp(rows[at].name, name) != 0) at++;
        if (at == count) {
            CHECK(count < LAYERS_MAX);
            rows[count++] = (struct layer_time){.name = name};
        }
        rows[at].ms[event->pass] += 1e3 * f->spent[i] / f->steps;
    }
    return count;
}

struct derived {
    double tokens_per_s;  /* at the median */
    double rate;          /* of the step's products alone, FLOPs a second */
    double bound_ms;      /* of a step */
    double bound;         /* tokens per second */
    double fraction;      /* of it */
};

static struct derived derive(const struct step_figures *f)
{
    const struct program *p = &f->stage->program;
    const double tokens = (double)(p->size.batch * p->size.length);
    struct derived d = {.tokens_per_s = tokens / (1e-3 * f->median_ms),
                        .rate = f->profile.limits.product_flops,
                        .bound_ms = profile_bound_ms(&f->profile)};

    d.bound = tokens / (1e-3 * d.bound_ms);
    d.fraction = d.bound_ms / f->median_ms;
    return d;
}

static void print_layers(const struct step_figures *f, FILE *out)
{
    struct layer_time rows[LAYERS_MAX];
    const int count = by_layer(f, rows);
    double sum = 0;

    fprintf(out, "%-14s %10s %10s %10s %10s   ms per step\n", "layer",
            "F", "F again", "B", "W");
    for (int i = 0; i < count; i++) {
        fprintf(out, "%-14s %10.1f %10.1f %10.1f %10.1f\n", rows[i].name,
                rows[i].ms[0], rows[i].ms[1], rows[i].ms[2], rows[i].ms[3]);
        for (int j = 0; j < PASSES; j++) sum += rows[i].ms[j];
    }
    fprintf(out, "%-14s %43.1f\n\n", "update, data",
            f->profile.step_ms - sum);
}

/* With graphs kernels have no times, and so no limits. */
static bool has_bound(const struct step_figures *f)
{
    return !f->settings->graphs && f->bound.why_not[0] == '\0';
}

/* Rates that were measured, and what they allow. */
static void print_bound(const struct step_figures *f, const struct derived *d,
                        FILE *out)
{
    fprintf(out, "products       %.1f GFLOP/s on these shapes at best "
                 "(ours alone %.1f", 1e-9 * d->rate,
            1e-6 * f->bound.flops / f->bound.own_ms);
    if (f->bound.peer_ms > 0)
        fprintf(out, ", oneDNN alone %.1f",
                1e-6 * f->bound.flops / f->bound.peer_ms);
    fprintf(out, ")\nmemory         %.1f GB/s\n",
            1e-9 * f->bound.memory_rate);
    fprintf(out, "bound          %.1f ms, %.1f tokens/s; reached %.1f%%\n",
            d->bound_ms, d->bound, 100 * d->fraction);
}

static void print_figures(const struct step_figures *f, FILE *out)
{
    const struct derived d = derive(f);
    char planned[32], resident[32];

    fprintf(out, "step           %.1f ms (median; %.1f to %.1f, mean %.1f), "
                 "%.1f tokens/s\n", f->median_ms, f->step_ms[0],
            f->step_ms[f->steps - 1], f->profile.step_ms, d.tokens_per_s);
    if (has_bound(f)) print_bound(f, &d, out);
    if (f->bound.why_not[0] != '\0')
        fprintf(out, "bound          not measured: %s\n", f->bound.why_not);
    fprintf(out, "peak memory    %s planned, %s resident\n",
            text_bytes(planned, f->planned_bytes),
            text_bytes(resident, f->resident_bytes));
    if (f->first_step_s > 0)
        fprintf(out, "first step     done %.2f s after the start of the "
                     "process\n", f->first_step_s);
}

static void print_maker(const struct step_figures *f, FILE *out)
{
    char maker[160];

    device_maker(f->stage->device, maker, sizeof maker);
    fprintf(out, "products by %s%s\n", maker,
            f->settings->graphs ? ", in graphs" : "");
}

/* How bfloat16 products are summed; "" for other types. */
static const char *product_of(const struct step_figures *f)
{
    if (f->stage->program.dtype != DTYPE_BF16) return "";
    return f->settings->product == PRODUCT_TILES ? " in tiles" : " in pairs";
}

status step_print(const struct step_figures *f, FILE *out)
{
    const struct stage *stage = f->stage;
    struct text text = {0};
    status result;

    fprintf(out, "%s, %lld x %lld tokens, %s%s, %s, %d threads, grid %d x "
                 "%d\n", f->name, (long long)stage->program.size.batch,
            (long long)stage->program.size.length,
            dtype_name(stage->program.dtype), product_of(f),
            stage->kernels.backend, stage->request.machine.threads,
            stage->program.layout.grid.data,
            stage->program.layout.grid.tensor);
    if (stage->device == NULL) print_layers(f, out);
    else print_maker(f, out);
    TRY_GOTO(done, result, profile_print(&f->profile, &text));
    fputs(text.bytes, out);
    if (has_bound(f))
        fprintf(out, "(limit: time at the measured rates over the time "
                     "taken; above 100%%: operands that stay in caches)\n");
    fputs("\n", out);
    print_figures(f, out);
done:
    text_free(&text);
    return result;
}

status step_print_csv(const struct step_figures *f, FILE *out)
{
    struct text text = {0};
    const status result = profile_csv(&f->shapes, &text);

    if (result == OK) fputs(text.bytes, out);
    text_free(&text);
    return result;
}

static void write_layers(const struct step_figures *f,
                         struct json_writer *json)
{
    static const char *const passes[PASSES] = {
        "forward", "recompute", "backward_input", "backward_weight"};
    struct layer_time rows[LAYERS_MAX];
    const int count = by_layer(f, rows);

    json_write_key(json, "layers_ms");
    json_write_object(json);
    for (int i = 0; i < count; i++) {
        json_write_key(json, rows[i].name);
        json_write_object(json);
        for (int j = 0; j < PASSES; j++)
            json_write_key_real(json, passes[j], rows[i].ms[j]);
        json_write_object_end(json);
    }
    json_write_object_end(json);
}

static void write_string(struct json_writer *json, const char *key,
                         const char *value)
{
    json_write_key(json, key);
    json_write_string(json, value);
}

/* Each shape of a product. */
static void write_products(const struct step_figures *f,
                           struct json_writer *json)
{
    json_write_key(json, "products");
    json_write_array(json);
    for (int i = 0; i < f->shapes.count; i++)
        if (f->shapes.rows[i].kind == METER_MATMUL)
            profile_write_row(&f->shapes, &f->shapes.rows[i], json);
    json_write_array_end(json);
}

static void write_bound(const struct step_figures *f, const struct derived *d,
                        struct json_writer *json)
{
    json_write_key_real(json, "product_gflops", 1e-9 * d->rate);
    json_write_key_real(json, "own_product_gflops",
                        1e-6 * f->bound.flops / f->bound.own_ms);
    if (f->bound.peer_ms > 0)
        json_write_key_real(json, "onednn_product_gflops",
                            1e-6 * f->bound.flops / f->bound.peer_ms);
    json_write_key_real(json, "memory_gbytes_per_s",
                        1e-9 * f->bound.memory_rate);
    json_write_key_real(json, "bound_tokens_per_s", d->bound);
    json_write_key_real(json, "bound_fraction", d->fraction);
}

status step_write(const struct step_figures *f, struct json_writer *json)
{
    const struct program *p = &f->stage->program;
    const struct derived d = derive(f);

    json_write_object(json);
    write_string(json, "model", f->name);
    write_string(json, "dtype", dtype_name(p->dtype));
    if (p->dtype == DTYPE_BF16)
        write_string(json, "product",
                     f->settings->product == PRODUCT_TILES ? "tiles"
                                                           : "pairs");
    write_string(json, "backend", f->stage->kernels.backend);
    write_string(json, "device",
                 device_about(f->stage->request.machine.device)->name);
    if (f->stage->device != NULL) {
        char maker[160];

        device_maker(f->stage->device, maker, sizeof maker);
        write_string(json, "products_by", maker);
        json_write_key(json, "graphs");
        json_write_bool(json, f->settings->graphs);
    }
    json_write_key_integer(json, "threads", f->stage->request.machine.threads);
    json_write_key_integer(json, "batch", p->size.batch);
    json_write_key_integer(json, "length", p->size.length);
    json_write_key_real(json, "step_ms", f->median_ms);
    json_write_key_real(json, "step_ms_mean", f->profile.step_ms);
    json_write_key_real(json, "step_ms_least", f->step_ms[0]);
    json_write_key_real(json, "step_ms_most", f->step_ms[f->steps - 1]);
    json_write_key_real(json, "tokens_per_s", d.tokens_per_s);
    if (has_bound(f)) write_bound(f, &d, json);
    if (f->bound.why_not[0] != '\0')
        write_string(json, "bound_missing", f->bound.why_not);
    json_write_key_integer(json, "planned_bytes", (int64_t)f->planned_bytes);
    json_write_key_integer(json, "peak_resident_bytes",
                           (int64_t)f->resident_bytes);
    json_write_key_real(json, "first_step_s", f->first_step_s);
    if (f->stage->device == NULL) write_layers(f, json);
    json_write_key(json, "profile");
    profile_write(&f->profile, json);
    write_products(f, json);
    json_write_object_end(json);
    return OK;
}
