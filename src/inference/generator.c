/* SPDX-License-Identifier: Apache-2.0 */
/* generator.c - the logits of the next token, over a key-value cache. */
#include "inference/generator.h"

#include <string.h>

#include "base/meter.h"

enum { RATE_TRIES = 6, RATE_LANES = 32 };
static const size_t caches_small = (size_t)64 << 20;

status generator_keep_logits(void *argument, int64_t token,
                             const struct tensor *logits)
{
    struct generator *g = argument;

    (void)token;
    g->logits = *logits;
    return OK;
}

/* Whether every step that reads the parameter can do so in strips, and one
 * does more than looking rows up. */
static bool suits_strips(struct generator *g, int param)
{
    const struct program *p = &g->stage.program;
    struct run *run = &g->stage.run;
    const struct param *of = &p->params.items[param];
    bool multiplies = false;

    for (int s = 0; s < p->step_count; s++) {
        const struct step *step = &p->steps[s];
        const enum layer_kind kind = step->layer->kind;

        if (step->param[1] == param) return false;
        if (step->param[0] != param || step->layer->looks_up) continue;
        if (kind != LAYER_LINEAR && kind != LAYER_HEAD) return false;
        const struct sum_order order =
            of->spec.split_cols == AXIS_TENSOR
                ? run_order_cut(run, of) : run_order_whole(run, of->cols);

        if (!strips_fit(&g->stage.kernels.strips, &order)) return false;
        multiplies = true;
    }
    return multiplies;
}

/* Every token reads every weight: once the weights lie as products read them,
 * memory is the only limit. */
static status turn_weights(struct generator *g)
{
    struct stage *stage = &g->stage;
    const struct param_table *params = &stage->program.params;
    void *strips = NULL;

    TRY(memory_take((size_t)params->count, sizeof *g->strips, &strips));
    g->strips = strips;
    for (int i = 0; i < params->count; i++)
        if (suits_strips(g, i))
            g->strips[i] = stage->kernels.strips.turn(
                &stage->stream,
                param_weight(&params->items[i], stage->run.params.weights));
    stage->run.params.strips = g->strips;
    return OK;
}

/* Where F of each module ends, and room for the ids that they look up. */
static status find_modules(struct generator *g)
{
    const struct program *p = &g->stage.program;
    const struct frame_plan *frame = &g->stage.frame;
    struct generator_modules *m = &g->modules;
    void *inputs = NULL;

    m->depth = p->later.depth;
    if (m->depth == 0) return OK;
    for (int i = 0; i < frame->forward_end; i++)
        m->ends[program_ahead(p, &p->steps[frame->events[i].step])] = i + 1;
    TRY(memory_take((size_t)(m->depth * p->size.tokens), sizeof *m->inputs,
                    &inputs));
    m->inputs = inputs;
    return OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* As many texts, at most *texts, as have caches that are small beside the
 * weights. */
static status fewer_texts(const struct stage_request *one, int *texts)
{
    const int wanted = *texts;
    struct stage stage = {0};
    status result;

    TRY_GOTO(done, result, stage_plan(&stage, one));
    const size_t each = stage.memory[MEMORY_CACHE].bytes;
    const size_t weights = stage.memory[stage_reads(&stage)].bytes;
    const size_t most = weights / 4 > caches_small ? weights / 4 : caches_small;

    for (*texts = 1; *texts < wanted; ++*texts)
        if (((size_t)*texts + 1) * each > most) break;
done:
    stage_free(&stage);
    return result;
}

status generator_open(struct generator *g, struct session *session,
                      enum dtype dtype, int threads,
                      const struct generator_room *room)
{
    const int64_t at_once =
        room->prompt < GENERATOR_TOKENS ? room->prompt : GENERATOR_TOKENS;
    struct stage_request plan;
    void *each;

    *g = (struct generator){.context = room->context,
                            .texts = room->texts > 0 ? room->texts : 1};
    CHECK(g->texts <= GENERATOR_TEXTS_MOST);
    CHECK(room->prompt >= 1 && room->prompt <= room->context);
    TRY(session_request(session, 1, at_once, &plan));
    if (session->speculative) plan.mtp_depth = session->model.mtp_depth;
    /* A leaf needs a token, even where nothing is summed over tokens; guesses
     * are checked in one call. */
    plan.size.length = larger(at_once, larger(plan.layout.grid.tensor,
                                              1 + plan.mtp_depth));
    plan.mode = PROGRAM_GENERATE;
    plan.latent_cache = session->latent_cache;
    plan.dtype = dtype;
    plan.size.context = larger(room->context, plan.size.length);
    if (threads > 0) plan.machine.threads = threads;
    if (room->fewer) TRY(fewer_texts(&plan, &g->texts));
    plan.size.texts = g->texts;
    plan.size.length = larger(plan.size.length, g->texts);
    plan.size.context = larger(plan.size.context, g->texts);
    TRY(memory_take(3 * (size_t)g->texts, sizeof *g->each, &each));
    g->each = each;
    TRY(session_stage(session, &plan, &g->stage));
    g->stage.run.logits.read = generator_keep_logits;
    g->stage.run.logits.argument = g;
    TRY(find_modules(g));
    return g->stage.request.machine.device == DEVICE_CPU ? turn_weights(g)
                                                         : OK;
}

void generator_close(struct generator *g)
{
    stage_free(&g->stage);
    memory_free(g->strips);
    memory_free(g->modules.inputs);
    memory_free(g->each);
    *g = (struct generator){0};
}

/* The modules over a call whose next ids are all known; left: ids from its
 * first one on. */
static status feed_modules(struct generator *g, const int32_t *ids,
                           int64_t left)
{
    struct generator_modules *m = &g->modules;
    struct run *run = &g->stage.run;
    const int64_t length = g->stage.program.size.tokens;

    for (int d = 0; d < m->depth; d++)
        for (int64_t i = 0; i < run->batch.tokens; i++) {
            const int64_t at = i + d + 1;

            m->inputs[d * length + i] = ids[at < left ? at : left - 1];
        }
    return run_part(run, m->ends[0], m->ends[m->depth]);
}

status generator_feed_last(struct generator *g, const int32_t *ids,
                           int64_t count, int64_t last)
{
    const int64_t most = g->stage.program.size.length;
    struct generator_modules *m = &g->modules;
    struct run *run = &g->stage.run;

    if (count > g->context - g->position)
        FAIL(ERR_CONFIG, "%lld tokens after %lld do not fit into a context of "
                         "%lld", (long long)count, (long long)g->position,
             (long long)g->context);
    for (int64_t first = 0; first < count; first += most) {
        const int64_t left = count - first;
        const int64_t now = left < most ? left : most;

        run->batch = (struct batch){.inputs = ids + first,
                                    .mtp_inputs = m->inputs, .tokens = now,
                                    .first_position = g->position,
                                    .text = g->text};
        run->logits.last = last < now ? last : now;
        m->first = g->position;
        if (m->depth == 0) TRY(run_forward(run));
        else TRY(run_part(run, 0, m->ends[0]));
        g->position += now;
        if (m->depth > 0 && left > most)
            TRY(feed_modules(g, ids + first, left));
    }
    return OK;
}

status generator_feed(struct generator *g, const int32_t *ids, int64_t count)
{
    return generator_feed_last(g, ids, count, 1);
}

void generator_begin(struct generator *g, int text)
{
    CHECK(text < g->texts);
    g->text = text;
    g->position = 0;
    g->modules.first = 0;
}

status generator_feed_each(struct generator *g,
                           const struct generator_next *next, int count)
{
    int32_t *ids = g->each, *positions = ids + g->texts;
    int32_t *texts = positions + g->texts;
    struct run *run = &g->stage.run;

    CHECK(count <= g->texts && g->modules.depth == 0);
    for (int i = 0; i < count; i++) {
        CHECK(next[i].position < g->context && next[i].text < g->texts);
        ids[i] = next[i].id;
        positions[i] = next[i].position;
        texts[i] = next[i].text;
    }
    run->batch = (struct batch){.inputs = ids, .positions = positions,
                                .texts = texts, .tokens = count};
    run->logits.last = count;
    return run_forward(run);
}

void generator_back(struct generator *g, int64_t position)
{
    CHECK(position > g->modules.first && position <= g->position);
    g->stage.run.batch.tokens = position - g->modules.first;
    g->position = position;
}

status generator_guess(struct generator *g, int module, const int32_t *ids)
{
    struct generator_modules *m = &g->modules;
    struct run *run = &g->stage.run;

    CHECK(module < m->depth && g->position > m->first);
    for (int64_t i = 0; i < run->batch.tokens; i++)
        m->inputs[module * g->stage.program.size.tokens + i] =
            ids[m->first + i + module + 1];
    return run_part(run, m->ends[module], m->ends[module + 1]);
}

int64_t generator_weight_bytes(const struct generator *generator)
{
    const struct program *p = &generator->stage.program;
    int64_t elements = 0;

    for (int i = 0; i < p->params.count; i++) {
        bool whole = false;

        for (int s = 0; s < p->step_count && !whole; s++)
            for (int j = 0; j < step_uses(&p->steps[s]); j++)
                whole |= step_use(&p->steps[s], j).param == i &&
                         p->steps[s].layer->kind != LAYER_EMBEDDING;
        if (whole) elements += p->params.items[i].elements;
    }
    return elements * dtype_bytes(p->dtype);
}

struct reading {
    const uint64_t *words;
    int64_t count;
    _Atomic uint64_t sum; /* so that the reads are made */
};

static void read_part(void *argument, int index, int count)
{
    struct reading *reading = argument;
    uint64_t sums[RATE_LANES] = {0}, sum = 0;
    int64_t first, last;

    threads_split(reading->count, RATE_LANES, index, count, &first, &last);
    for (int64_t i = first; i + RATE_LANES <= last; i += RATE_LANES)
        _Pragma("omp simd")
        for (int j = 0; j < RATE_LANES; j++) sums[j] += reading->words[i + j];
    for (int j = 0; j < RATE_LANES; j++) sum += sums[j];
    reading->sum += sum;
}

double generator_weight_rate(struct generator *generator)
{
    if (generator->stage.device != NULL) return 0;
    const struct stage *stage = &generator->stage;
    const struct memory_row *row = &stage->memory[stage_reads(stage)];
    struct reading reading = {
        .words = row->data,
        .count = (int64_t)(row->bytes / sizeof *reading.words)};
    int64_t best = INT64_MAX;

    for (int i = 0; i < RATE_TRIES; i++) {
        const int64_t began = meter_now_ns();

        threads_run(stage->threads, read_part, &reading);
        const int64_t took = meter_now_ns() - began;

        if (took < best) best = took;
    }
    return (double)row->bytes / (1e-9 * (double)(best > 0 ? best : 1));
}
