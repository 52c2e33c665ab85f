/* SPDX-License-Identifier: Apache-2.0 */
/* coordinates.c - how large activations are, and how far training moves them.
 */
#include "proof/coordinates.h"

#include <math.h>
#include <string.h>

#include "kernels/math.h"
#include "proof/trial.h"

enum { TOKENS_SEEN = 256 }; /* of each activation */

struct watching {
    struct coordinates *out;
    struct trial_observer observer;
    int64_t steps;
    const struct stage *stage;
    float *first;          /* owned: what was seen at step 0, one activation
                            * after the other */
    int64_t at, elements;
    double *seen;          /* owned, room for one: of a device apart */
    int index;             /* of the next activation */
    bool begins;           /* step 0 */
};

/* ---- one activation ---- */

/* The first tokens of it: kept at step 0, compared after the last. */
static void look(struct watching *w, const struct tensor *x)
{
    const int64_t seen = x->shape[0] < TOKENS_SEEN ? x->shape[0]
                                                   : TOKENS_SEEN;
    const int64_t count = seen * x->shape[1];
    double sum = 0;

    CHECK(w->index < w->out->count && w->at + count <= w->elements);
    for (int64_t i = 0; i < count; i++) {
        const double value = tensor_get(x, i);
        float *kept = &w->first[w->at + i];

        if (w->begins) *kept = (float)value;
        sum += fabs(w->begins ? value : value - (double)*kept);
    }
    w->at += count;
    if (w->begins) w->out->sizes[w->index] = sum / (double)count;
    else w->out->changes[w->index] = sum / (double)count;
    w->index++;
}

/* Does the step write what a matrix makes? */
static bool is_seen(const struct program *p, const struct step *step)
{
    return step->output >= 0 && step->param[0] >= 0 &&
           !p->params.items[step->param[0]].spec.vector;
}

static status after_event(void *argument, const struct run *run,
                          const struct event *event)
{
    struct watching *w = argument;
    const struct program *p = &w->stage->program;
    const struct step *step = &p->steps[event->step];

    if (event->pass != PASS_FORWARD || !is_seen(p, step)) return OK;
    struct tensor x = run_slot(run, step->output);

    if (x.shape[0] > TOKENS_SEEN) x = tensor_rows(x, 0, TOKENS_SEEN);
    if (run->stream->device != NULL) {
        TRY(device_read(run->stream, w->seen, x.data,
                        (size_t)tensor_bytes(&x)));
        x.data = w->seen;
    }
    look(w, &x);
    return OK;
}

/* The logits of the first chunk. */
static status see_logits(void *argument, int64_t first,
                         const struct tensor *logits)
{
    if (first == 0) look(argument, logits);
    return OK;
}

/* ---- a forward pass ---- */

static status forward(struct watching *w, struct train_step *step,
                      const struct sample_source *source)
{
    struct run *run = &step->pipeline->stages[0].run;
    const struct run_probe *probe = run->probe;
    const struct run_probe mine = {after_event, w};
    status result;

    w->stage = &step->pipeline->stages[0];
    w->index = 0;
    w->at = 0;
    run->probe = &mine;
    run->logits.read = see_logits;
    run->logits.argument = w;
    result = executor_forward(&step->executor, source, 0, 0);
    run->probe = probe;
    run->logits.read = NULL;
    TRY(result);
    return executor_settle(&step->executor);
}

static status take_room(struct watching *w, const struct program *p)
{
    struct coordinates *out = w->out;
    const char *head = "logits";
    void *memory;

    out->count = 1;
    w->elements = TOKENS_SEEN * p->size.vocab;
    for (int i = 0; i < p->step_count; i++)
        if (is_seen(p, &p->steps[i])) {
            w->elements += TOKENS_SEEN * p->slots[p->steps[i].output].width;
            out->count++;
        }
    TRY(memory_take((size_t)out->count, sizeof *out->names, &memory));
    out->names = memory;
    TRY(memory_take((size_t)out->count, sizeof(double), &memory));
    out->sizes = memory;
    TRY(memory_take((size_t)out->count, sizeof(double), &memory));
    out->changes = memory;
    TRY(memory_take((size_t)w->elements, sizeof *w->first, &memory));
    w->first = memory;
    TRY(memory_take((size_t)w->elements, sizeof *w->seen, &memory));
    w->seen = memory;
    for (int i = 0, n = 0; i < p->step_count; i++)
        if (is_seen(p, &p->steps[i]))
            memcpy(out->names[n++], p->params.items[p->steps[i].param[0]].name,
                   PARAM_NAME_BYTES);
    memcpy(out->names[out->count - 1], head, strlen(head) + 1);
    return OK;
}

static status observe(void *argument, struct train_step *step,
                      const struct sample_source *source, int64_t done)
{
    struct watching *w = argument;

    w->begins = done == 0;
    if (w->begins)
        TRY(take_room(w, &step->pipeline->stages[0].program));
    else if (done < w->steps)
        return OK;
    return forward(w, step, source);
}

status coordinates_measure(struct coordinates *out,
                           const struct options_set *set, int64_t steps)
{
    struct watching w = {.out = out, .steps = steps};
    struct trial trial = {0};
    status result;

    *out = (struct coordinates){0};
    w.observer = (struct trial_observer){observe, &w};
    result = trial_observe(&trial, set, steps, &w.observer);
    if (result == OK) out->loss = trial.losses[steps - 1];
    trial_free(&trial);
    memory_free(w.first);
    memory_free(w.seen);
    return result;
}

void coordinates_free(struct coordinates *coordinates)
{
    memory_free(coordinates->names);
    memory_free(coordinates->sizes);
    memory_free(coordinates->changes);
    *coordinates = (struct coordinates){0};
}

double coordinates_slope(const double *x, const double *y, int count)
{
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;

    for (int i = 0; i < count; i++) {
        if (!(x[i] > 0) || !(y[i] > 0)) continue;
        const double a = math_log(x[i]), b = math_log(y[i]);

        n++;
        sx += a;
        sy += b;
        sxx += a * a;
        sxy += a * b;
    }
    const double spread = n * sxx - sx * sx;

    return spread > 0 ? (n * sxy - sx * sy) / spread : 0;
}
