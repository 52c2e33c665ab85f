/* SPDX-License-Identifier: Apache-2.0 */
/* attention_plan.c - chooses an engine of cuDNN for attention, makes its plan,
 * and gives calls to it.
 *
 * The library chooses for a graph, whose strides are those of the layout: a
 * rank that has fewer heads has shorter rows. Another engine would have other
 * bits. So engines are offered, and refused, for the dense graph: the same
 * heads in rows of their own, which are alike in all layouts. The graph of the
 * layout gets the engine that was chosen, with its knobs. */
#include "kernels/cuda/plugin/attention_plan.h"

enum { NOTES = 16, KNOBS = 44 /* that cuDNN 9 has */ };
static const float never = -0x1p30f, one = 1; /* never: exp of it is 0 */

/* ---- offers ---- */

/* The form where nothing lies between rows. */
static struct attended_form dense_of(const struct attended_form *form)
{
    const int64_t queries = (int64_t)form->heads * form->width;
    const int64_t keys = (int64_t)form->kv_heads * form->width;
    const bool back = form->backward != 0;
    struct attended_form dense = *form;

    dense.q_row = dense.out_row = queries;
    dense.k_row = keys;
    dense.statistics_row = form->heads;
    dense.dq_row = dense.dout_row = back ? queries : 0;
    dense.dk_row = back ? keys : 0;
    return dense;
}

/* Configurations of engines, the best first. */
static int64_t offers(struct dnn_builder *b, const struct dnn_target *on,
                      dnn_descriptor graph,
                      dnn_descriptor configs[ATTENTION_OFFERS])
{
    const dnn_descriptor asked = dnn_make(b, DNN_HEURISTICS);
    int64_t count = 0;

    dnn_set_part(b, asked, DNN_HEURISTICS_GRAPH, graph);
    dnn_set_number(b, asked, DNN_HEURISTICS_MODE, DNN_OF_HEURISTIC,
                   DNN_HEURISTIC_A);
    if (on->handle == NULL)
        dnn_set_part(b, asked, DNN_HEURISTICS_PROPERTIES, on->properties);
    dnn_finish(b, asked);
    for (int i = 0; i < ATTENTION_OFFERS; i++)
        configs[i] = dnn_make(b, DNN_ENGINE_CONFIG);
    if (b->answer == DNN_SUCCESS)
        b->answer = b->dnn->cudnnBackendGetAttribute_(
            asked, DNN_HEURISTICS_RESULTS, DNN_OF_DESCRIPTOR,
            ATTENTION_OFFERS, &count, configs);
    if (b->answer != DNN_SUCCESS) return 0;
    return count < ATTENTION_OFFERS ? count : ATTENTION_OFFERS;
}

static int get(const struct dnn_builder *b, dnn_descriptor of, int attribute,
               int type, void *out)
{
    int64_t count = 0;

    return b->dnn->cudnnBackendGetAttribute_(of, attribute, type, 1, &count,
                                             out);
}

/* Whether the library says that it adds in one order. */
static bool is_ordered(const struct dnn_builder *b, dnn_descriptor engine)
{
    int notes[NOTES];
    int64_t count = 0;

    if (b->dnn->cudnnBackendGetAttribute_(engine, DNN_ENGINE_NOTES,
                                          DNN_OF_NOTE, NOTES, &count,
                                          notes) != DNN_SUCCESS ||
        count > NOTES)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == DNN_NOTE_UNORDERED) return false;
    return true;
}

static bool about_config(struct dnn_builder *b, dnn_descriptor config,
                         struct attention_offer *offer)
{
    dnn_descriptor engine = dnn_make(b, DNN_ENGINE);
    int64_t bytes = 0;

    *offer = (struct attention_offer){.answer = DNN_NOT_SUPPORTED};
    if (b->answer != DNN_SUCCESS ||
        get(b, config, DNN_CONFIG_ENGINE, DNN_OF_DESCRIPTOR, &engine) !=
            DNN_SUCCESS ||
        get(b, engine, DNN_ENGINE_INDEX, DNN_OF_INT64, &offer->engine) !=
            DNN_SUCCESS ||
        get(b, config, DNN_CONFIG_ROOM, DNN_OF_INT64, &bytes) !=
            DNN_SUCCESS || bytes < 0)
        return false;
    offer->room = (size_t)bytes;
    offer->is_ordered = is_ordered(b, engine);
    return true;
}

/* ---- plans ---- */

/* An error of the GPU, which another plan would have, too. */
static bool is_broken(int answer)
{
    return answer / 1000 == DNN_FAILED / 1000;
}

static bool is_unsupported(int answer)
{
    return answer / 1000 == DNN_NOT_SUPPORTED / 1000;
}

/* A plan of the configuration, which needs at most `room` bytes; NULL: the
 * library cannot make one. A GPU that is only described loads none. */
static dnn_descriptor plan_of(struct dnn_builder *b,
                              const struct dnn_target *on,
                              dnn_descriptor config, size_t room,
                              struct attention_offer *offer)
{
    const dnn_descriptor plan = dnn_make(b, DNN_PLAN);
    int64_t bytes = 0;

    dnn_set_part(b, plan, DNN_PLAN_CONFIG, config);
    if (on->handle != NULL)
        dnn_set(b, plan, DNN_PLAN_HANDLE, DNN_OF_HANDLE, &on->handle);
    else dnn_set_part(b, plan, DNN_PLAN_PROPERTIES, on->properties);
    if (b->answer != DNN_SUCCESS) return NULL;
    offer->answer = b->dnn->cudnnBackendFinalize_(plan);
    if (on->handle == NULL && offer->answer == DNN_NOT_LOADED) return plan;
    if (is_broken(offer->answer)) b->answer = offer->answer;
    if (offer->answer != DNN_SUCCESS) return NULL;
    offer->answer = get(b, plan, DNN_PLAN_ROOM, DNN_OF_INT64, &bytes);
    if (offer->answer != DNN_SUCCESS || bytes < 0 || (uint64_t)bytes > room)
        return NULL;
    offer->room = (size_t)bytes;
    return plan;
}

/* The knobs of a configuration. */
struct knobs {
    dnn_descriptor at[KNOBS]; /* of the builder */
    int64_t count;
};

/* false: there are more than we know, so no other graph could have them. */
static bool get_knobs(struct dnn_builder *b, dnn_descriptor config,
                      struct knobs *knobs)
{
    for (int i = 0; i < KNOBS && knobs->at[i] == NULL; i++)
        knobs->at[i] = dnn_make(b, DNN_KNOB);
    knobs->count = 0;
    if (b->answer == DNN_SUCCESS)
        b->answer = b->dnn->cudnnBackendGetAttribute_(
            config, DNN_CONFIG_KNOBS, DNN_OF_DESCRIPTOR, KNOBS, &knobs->count,
            knobs->at);
    return b->answer == DNN_SUCCESS && knobs->count <= KNOBS;
}

/* The first configuration of the dense graph whose sums have one order, and
 * whose plan needs at most `room` bytes; false: none. */
static bool choose(struct dnn_builder *b, const struct dnn_target *on,
                   const struct attended_form *form, size_t room,
                   struct attention_plan *out, struct knobs *knobs)
{
    dnn_descriptor configs[ATTENTION_OFFERS];
    const int64_t count = offers(
        b, on, attention_graph(b, form, on, &out->operations), configs);

    for (int64_t i = 0; i < count && b->answer == DNN_SUCCESS; i++) {
        struct attention_offer *offer = &out->offers[out->offered];

        if (!about_config(b, configs[i], offer)) continue;
        out->offered++;
        if (!offer->is_ordered || offer->room > room) continue;
        if (plan_of(b, on, configs[i], room, offer) != NULL &&
            get_knobs(b, configs[i], knobs))
            return true;
    }
    return false;
}

/* ---- the plan of the layout ---- */

/* The engine of a number, with knobs, for a graph. */
static dnn_descriptor config_of(struct dnn_builder *b,
                                const struct dnn_target *on,
                                dnn_descriptor graph, int64_t number,
                                const struct knobs *knobs)
{
    const dnn_descriptor engine = dnn_make(b, DNN_ENGINE);
    const dnn_descriptor config = dnn_make(b, DNN_ENGINE_CONFIG);

    dnn_set_part(b, engine, DNN_ENGINE_GRAPH, graph);
    dnn_set(b, engine, DNN_ENGINE_INDEX, DNN_OF_INT64, &number);
    if (on->handle == NULL)
        dnn_set_part(b, engine, DNN_ENGINE_PROPERTIES, on->properties);
    dnn_finish(b, engine);
    dnn_set_part(b, config, DNN_CONFIG_ENGINE, engine);
    if (knobs->count > 0)
        dnn_set_all(b, config, DNN_CONFIG_KNOBS,
                    &(struct dnn_values){DNN_OF_DESCRIPTOR, knobs->count,
                                         knobs->at});
    dnn_finish(b, config);
    return config;
}

int attention_plan_make(const struct dnn *dnn, const struct dnn_target *on,
                        const struct attended_form *form, size_t room,
                        struct attention_plan *out)
{
    const struct attended_form dense = dense_of(form);
    struct dnn_builder chooser = {.dnn = dnn}, *const b = &out->builder;
    struct knobs knobs = {.count = 0};

    *out = (struct attention_plan){.builder.dnn = dnn};
    if (choose(&chooser, on, &dense, room, out, &knobs)) {
        struct attention_offer *offer = &out->offers[out->offered - 1];
        const dnn_descriptor config = config_of(
            b, on, attention_graph(b, form, on, &out->operations),
            offer->engine, &knobs);

        if (b->answer == DNN_SUCCESS)
            out->plan = plan_of(b, on, config, room, offer);
        out->is_refused = out->plan == NULL && chooser.answer == DNN_SUCCESS &&
                          !is_broken(b->answer);
    }
    const int answer = chooser.answer != DNN_SUCCESS ? chooser.answer
                                                     : b->answer;

    dnn_free(&chooser);
    return out->is_refused || is_unsupported(answer) ? DNN_SUCCESS : answer;
}

void attention_plan_free(struct attention_plan *plan)
{
    dnn_free(&plan->builder);
    plan->plan = NULL;
}

/* ---- a call ---- */

struct pack {
    int64_t ids[ID_VIRTUAL];
    void *at[ID_VIRTUAL];
    int count;
    int32_t window;
};

static void put(struct pack *pack, enum attention_id id, const void *at)
{
    pack->ids[pack->count] = id;
    pack->at[pack->count++] = (void *)(uintptr_t)at;
}

static void put_all(struct pack *pack, const struct gpu_attended *call,
                    void *room)
{
    put(pack, ID_Q, call->q);
    put(pack, ID_K, call->k);
    put(pack, ID_V, call->v);
    put(pack, ID_OUT, call->out);
    put(pack, ID_STATISTICS, call->statistics);
    put(pack, ID_SCALE, &call->scale);
    put(pack, ID_NEVER, &never);
    pack->window = (int32_t)call->form.window;
    if (call->form.window > 0) put(pack, ID_WINDOW, &pack->window);
    if (call->form.documents != 0)
        put(pack, ID_DOCUMENTS, call->of_document);
    if (call->form.backward == 0) return;
    put(pack, ID_DOUT, call->dout);
    put(pack, ID_DQ, call->dq);
    put(pack, ID_DK, call->dk);
    put(pack, ID_DV, call->dv);
    put(pack, ID_SUMS, room);
    put(pack, ID_ONE, &one);
}

static int pack_make(const struct dnn *dnn, dnn_descriptor at,
                     const struct pack *pack, void *room)
{
    int answer = dnn->cudnnBackendSetAttribute_(
        at, DNN_PACK_IDS, DNN_OF_INT64, pack->count, pack->ids);

    if (answer == DNN_SUCCESS)
        answer = dnn->cudnnBackendSetAttribute_(
            at, DNN_PACK_POINTERS, DNN_OF_POINTER, pack->count, pack->at);
    if (answer == DNN_SUCCESS)
        answer = dnn->cudnnBackendSetAttribute_(at, DNN_PACK_ROOM,
                                                DNN_OF_POINTER, 1, &room);
    return answer == DNN_SUCCESS ? dnn->cudnnBackendFinalize_(at) : answer;
}

int attention_plan_run(const struct dnn *dnn, void *handle,
                       const struct attention_plan *plan,
                       const struct gpu_attended *call, void *room)
{
    struct pack pack = {.count = 0};
    dnn_descriptor at = NULL;
    int answer = dnn->cudnnBackendCreateDescriptor_(DNN_PACK, &at);

    if (answer != DNN_SUCCESS) return answer;
    put_all(&pack, call, room);
    answer = pack_make(dnn, at, &pack,
                       (char *)room + attended_sums(&call->form));
    if (answer == DNN_SUCCESS)
        answer = dnn->cudnnBackendExecute_(handle, plan->plan, at);
    dnn->cudnnBackendDestroyDescriptor_(at);
    return answer;
}
