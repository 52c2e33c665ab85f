/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - whether the list of one rank can be trusted. */
#include "list/verify.h"

#include <string.h>

#include "base/arena.h"
#include "list/fields.h"
#include "list/passes.h"
#include "list/pending.h"

/* The content of an interval of a space. */
struct region { int64_t first, end, tag; };
struct regions { struct region *items; int count, capacity; };

/* A micro-batch of a chunk: how far it is. */
struct progress_of {
    int next[3];      /* event that F, B and W come to next; of W: + 1 once it
                       * has ended */
    bool ended[3];
    uint32_t seen;    /* kinds of transfers and copies, a bit each */
};

struct check {
    const struct step_list *list;
    const struct pipeline *pipeline;
    struct pending_set open;
    struct regions *regions;      /* owned, [SPACE_COUNT][chunks] */
    struct progress_of *progress; /* owned, [chunks][micro-batches] */
    int microbatches;             /* of the list */
    int *open_pass;               /* owned, [chunks]: whose pass has begun and
                                   * not ended: 1 + its place in progress; 0:
                                   * nobody's. The first, where passes of all
                                   * take turns */
    int *begun;                   /* owned, [chunks]: rounds */
    int *last;                    /* owned, [1 + 2 chunks + units]: kind of the
                                   * tail that came last: before the decision;
                                   * of chunks, of any unit of a chunk, of each
                                   * unit: after it
                                   */
    bool asked;                   /* whether to stop */
    int number;                   /* of the instruction */
};

static status fail(const struct check *c, const char *what)
{
    char text[INSTRUCTION_BYTES];

    FAIL(ERR_VERIFY, "the list of rank %d of the pipe: instruction %d, %s: %s",
         c->list->rank, c->number,
         instruction_text(text, &c->list->items[c->number]), what);
}

/* ---- memory ---- */

static status put_region(struct regions *r, struct region region)
{
    void *items = r->items;

    TRY(memory_next(&items, &r->capacity, r->count, 16, sizeof *r->items));
    r->items = items;
    r->items[r->count++] = region;
    return OK;
}

/* The old content is gone, not only the part that is overwritten. */
static void clear(struct regions *r, const struct access *a)
{
    for (int i = 0; i < r->count;)
        if (r->items[i].first < a->end && a->first < r->items[i].end)
            r->items[i] = r->items[--r->count];
        else
            i++;
}

static status check_content(const struct check *c, const struct regions *r,
                            const struct access *a)
{
    bool found = a->expects == TAG_NONE;

    if (a->expects == TAG_ANY) return OK;
    for (int i = 0; i < r->count; i++) {
        const struct region *at = &r->items[i];

        if (at->first >= a->end || a->first >= at->end) continue;
        if (a->expects == TAG_NONE)
            return fail(c, "it overwrites what is still needed");
        if (at->first == a->first && at->end == a->end &&
            at->tag == a->expects)
            found = true;
    }
    if (found) return OK;
    return fail(c, "it uses what is not there: not made yet, freed or "
                   "overwritten");
}

static status check_access(void *argument, const struct access *a)
{
    struct check *c = argument;
    struct regions *r =
        &c->regions[(int)a->space * c->pipeline->count + a->chunk];

    pending_touch(&c->open, a);
    if (c->open.touched > 0)
        return fail(c, "it touches the memory of an instruction under way "
                       "that it does not wait for");
    TRY(check_content(c, r, a));
    if (!a->writes || a->leaves == TAG_ANY) return OK;
    clear(r, a);
    if (a->leaves == TAG_NONE || a->first == a->end) return OK;
    return put_region(r, (struct region){a->first, a->end, a->leaves});
}

/* ---- needs ---- */

static status check_needs(struct check *c, const struct instruction *i)
{
    const int32_t *needs = list_needs(c->list, c->number);

    if (i->needs < 0 || i->first_need < 0 ||
        i->first_need + i->needs > c->list->need_count)
        return fail(c, "its needs are outside the list's");
    for (int n = 0; n < i->needs; n++) {
        int at = 0;

        while (at < c->open.count && c->open.items[at].number != needs[n])
            at++;
        if (at == c->open.count)
            return fail(c, "it needs what is not under way");
        pending_close(&c->open, at);
    }
    return OK;
}

/* Gathers of a chunk that are under way stay below its limit, but for one. */
static status check_in_flight(struct check *c, const struct instruction *i)
{
    int64_t elements = 0;
    int count = 0;

    if (i->kind != DO_GATHER) return OK;
    const struct stage *stage = &c->pipeline->stages[i->chunk];

    for (int n = 0; n < c->open.count; n++) {
        const struct instruction *at =
            &c->list->items[c->open.items[n].number];

        if (at->kind != DO_GATHER || at->chunk != i->chunk) continue;
        elements += stage->shards.units[at->unit].room;
        count++;
    }
    if (count < 2 || stage->request.divided.gather.in_flight == 0 ||
        elements <= stage->request.divided.gather.in_flight)
        return OK;
    return fail(c, "more weights are under way than the limit allows");
}

/* Watchers read weights when a step asks whether to stop. */
static status check_asks(struct check *c, const struct instruction *i)
{
    for (int n = 0; i->kind == DO_ASK && n < c->open.count; n++)
        if (c->list->items[c->open.items[n].number].resource != RESOURCE_HOST)
            return fail(c, "new weights are under way");
    return OK;
}

static status check_open(struct check *c, const struct instruction *i)
{
    if (!instruction_rows[i->kind].background) {
        if (i->handle >= 0) return fail(c, "it has a handle and no use of it");
        return OK;
    }
    if (i->handle < 0 || i->handle >= c->list->handles)
        return fail(c, "it has no handle");
    for (int n = 0; n < c->open.count; n++)
        if (c->open.items[n].handle == i->handle)
            return fail(c, "its handle is in use");
    TRY(pending_add(&c->open, c->number, i, i->handle));
    return check_in_flight(c, i);
}

/* ---- completeness ---- */

static struct progress_of *progress_at(const struct check *c,
                                       const struct instruction *i)
{
    return &c->progress[(size_t)i->chunk * (size_t)c->microbatches +
                        (size_t)i->microbatch];
}

static int pass_of(const struct instruction *i)
{
    return i->kind == DO_FORWARD ? 0 : i->kind == DO_BACKWARD ? 1 : 2;
}

static status check_compute(struct check *c, const struct instruction *i)
{
    const struct frame_plan *frame = &c->pipeline->stages[i->chunk].frame;
    const int ends[] = {0, frame->forward_end, frame->backward_end,
                        frame->event_count};
    const int pass = pass_of(i);
    const int who = 1 + i->chunk * c->microbatches + i->microbatch;
    struct progress_of *p = progress_at(c, i);

    if (pass > 0 && !p->ended[pass - 1])
        return fail(c, "the pass before it is not over");
    int *open = &c->open_pass[c->pipeline->takes_turns ? 0 : i->chunk];

    if (*open > 0 && *open != who)
        return fail(c, "another pass has the room of a pass");
    if (p->ended[pass] || i->first_event != ends[pass] + p->next[pass] ||
        i->last_event < i->first_event || i->last_event > ends[pass + 1])
        return fail(c, "its events are not those that come next");
    p->next[pass] = i->last_event - ends[pass];
    p->ended[pass] = i->last_event == ends[pass + 1];
    *open = p->ended[pass] ? 0 : who;
    return OK;
}

static bool is_seen_once(enum instruction_kind kind)
{
    return kind == DO_SAMPLE || kind == DO_COPY || kind == DO_KEEP ||
           kind == DO_COPY_BACK || kind == DO_SEND || kind == DO_RECEIVE ||
           kind == DO_SEND_BACK || kind == DO_RECEIVE_BACK;
}

/* Micro-batches of F alone have no other bound than those that are there. */
static status check_place(struct check *c, const struct instruction *i)
{
    struct progress_of *p;
    const char *wrong;

    if (i->kind >= DO_COUNT || i->resource >= RESOURCE_COUNT)
        FAIL(ERR_VERIFY, "the list of rank %d of the pipe: instruction %d is "
                         "of no kind", c->list->rank, c->number);
    wrong = list_fields_wrong(c->list, c->pipeline, i, c->begun);
    if (wrong != NULL) return fail(c, wrong);
    if (i->microbatch >= c->microbatches)
        return fail(c, "it is of no micro-batch");
    if (i->kind == DO_ROUND) c->begun[i->chunk]++;
    if (instruction_computes(i)) return check_compute(c, i);
    if (!is_seen_once(i->kind)) return OK;
    p = progress_at(c, i);
    if (p->seen >> i->kind & 1) return fail(c, "it stands twice");
    p->seen |= 1U << i->kind;
    return OK;
}

/* Transfers that a micro-batch must have. */
static uint32_t expected(const struct check *c, int chunk, int microbatch)
{
    const struct pipeline *p = c->pipeline;
    const struct schedule *s = &p->schedule;
    const bool trains = !c->list->forward;
    const int m = trains ? microbatch % s->microbatches : 0;
    const int stage = p->chunks[chunk].number;
    uint32_t kinds = 1U << DO_SAMPLE;

    if (stage > 0 && schedule_rank(s, stage - 1, m) == p->rank)
        kinds |= 1U << DO_COPY | (trains ? 1U << DO_COPY_BACK : 0);
    else if (stage > 0)
        kinds |= 1U << DO_RECEIVE |
                 (trains ? 1U << DO_KEEP | 1U << DO_SEND_BACK : 0);
    if (stage < s->stages - 1 && schedule_rank(s, stage + 1, m) != p->rank)
        kinds |= 1U << DO_SEND | (trains ? 1U << DO_RECEIVE_BACK : 0);
    return kinds;
}

static bool is_of_chunk(const struct check *c, int chunk, int microbatch)
{
    const struct pipeline *p = c->pipeline;
    const int m = c->list->forward ? 0
                                   : microbatch % p->schedule.microbatches;

    return pipeline_chunk(p, p->chunks[chunk].number, m) == chunk;
}

static status check_passes(const struct check *c)
{
    const int passes = c->list->forward ? 1 : 3;

    for (int i = 0; i < c->pipeline->count * c->microbatches; i++) {
        const int chunk = i / c->microbatches, m = i % c->microbatches;
        const int stage = c->pipeline->chunks[chunk].number;

        if (!is_of_chunk(c, chunk, m)) continue;
        for (int pass = 0; pass < passes; pass++)
            if (!c->progress[i].ended[pass])
                FAIL(ERR_VERIFY, "the list of rank %d of the pipe: %s of stage "
                                 "%d, micro-batch %d, is not complete",
                     c->list->rank, pass == 0 ? "F" : pass == 1 ? "B" : "W",
                     stage, m);
        if (c->progress[i].seen != expected(c, chunk, m))
            FAIL(ERR_VERIFY, "the list of rank %d of the pipe: a transfer of "
                             "stage %d, micro-batch %d, is missing or too "
                             "many", c->list->rank, stage, m);
    }
    return OK;
}

/* Nothing lies in rooms and frames after the step but weights that are kept. */
static status check_rooms(const struct check *c)
{
    static const enum space spaces[] = {SPACE_ROOM, SPACE_BUCKET, SPACE_FRAME,
                                        SPACE_BATCH};
    const int count = c->pipeline->count;

    for (int i = 0; i < 4 * count; i++) {
        const enum space space = spaces[i / count];
        const struct stage *stage = &c->pipeline->stages[i % count];

        if (space == SPACE_ROOM ? !stage->request.divided.gather.reshard
                                : c->list->forward)
            continue;
        if (c->regions[(int)space * count + i % count].count > 0)
            FAIL(ERR_VERIFY, "the list of rank %d of the pipe: a room or frame "
                             "of stage %d is never freed", c->list->rank,
                 c->pipeline->chunks[i % count].number);
    }
    return OK;
}

/* Whether ranks divide parameters of a class. */
static bool is_shared(const struct pipeline *p, int chunk, int class)
{
    const struct shards *shards = &p->stages[chunk].shards;
    struct instruction i = instruction_of(DO_SHARE);

    i.chunk = chunk;
    for (i.unit = 0; i.unit < shards->count; i.unit++)
        if (shards->units[i.unit].class == class)
            return list_group(p, &i).size > 1;
    return false;
}

/* How often a kind stands in the list that is of no micro-batch. */
static void count_chunk(const struct check *c, int chunk,
                        int counts[DO_COUNT])
{
    const struct pipeline *p = c->pipeline;
    const struct stage *stage = &p->stages[chunk];
    const struct pipeline_share share = pipeline_share(p, chunk);
    const struct gradients *g = &stage->gradients;
    const bool divides = stage_divides(stage, MEMORY_GRADIENTS);
    const int rounds = stage_rounds(stage);
    struct instruction sent = instruction_of(DO_REGATHER);

    sent.chunk = chunk;
    counts[DO_ROUND] += rounds;
    counts[DO_CLOSE] += rounds;
    counts[DO_HALVES] += p->chunks[chunk].copies > 1 ? rounds : 0;
    counts[DO_MERGE] += divides ? rounds : 0;
    if (!divides)
        counts[DO_JOIN] += gradients_joined(g, gradients_all(g)) > 0 ? rounds
                                                                     : 0;
    for (int i = 0; divides && i < stage->reduced.count; i++)
        if (gradients_joined(g, stage->reduced.items[i].joined) > 0)
            counts[DO_JOIN] += rounds;
    counts[DO_SECOND]++;
    counts[DO_BLOCKS]++;
    counts[DO_UPDATE] += stage->shards.count;
    counts[DO_AVERAGE] += stage_averages(stage) ? stage->shards.count : 0;
    counts[DO_MATRICES] += stage->states.matrices.count > 0;
    counts[DO_CLIP] += stage->request.qk_clip > 0;
    counts[DO_BALANCE] += stage->request.regular.bias_rate > 0;
    if (share.param != NULL && share.elements > 0)
        counts[DO_TIE] += share.chunk < 0 || p->chunks[chunk].number == 0;
    for (sent.unit = 0; sent.unit < stage->shards.count; sent.unit++)
        counts[DO_REGATHER] +=
            (list_group(p, &sent).size > 1 && !stage_gathers(stage)) +
            (shard_class(&stage->shards, sent.unit)->parts > 1);
    for (int unit = 0; unit < stage->shards.count; unit++)
        counts[DO_ENCODE] += list_encodes(stage, unit);
    for (int class = 0; class < stage->shards.class_count; class++) {
        counts[DO_SHARE] += is_shared(p, chunk, class);
        counts[DO_SHARE] += stage->shards.classes[class].parts > 1;
    }
}

static status check_counts(const struct check *c)
{
    static const enum instruction_kind kinds[] = {
        DO_ROUND, DO_JOIN, DO_CLOSE, DO_HALVES, DO_MERGE, DO_LOSS, DO_Z_LOSS,
        DO_BATCH, DO_TARGETS, DO_LATER_LOSSES,
        DO_SECOND, DO_TIE, DO_PEAKS, DO_LATE, DO_ROUTES, DO_BLOCKS, DO_SHARE,
        DO_NORM, DO_DECIDE, DO_UPDATE, DO_MATRICES, DO_CLIP, DO_BALANCE,
        DO_AVERAGE, DO_REGATHER, DO_ENCODE, DO_ASK, DO_END};
    const struct stage *first = &c->pipeline->stages[0];
    int expected[DO_COUNT] = {[DO_END] = 1}, counts[DO_COUNT] = {0};

    for (int i = 0; i < c->list->count; i++) counts[c->list->items[i].kind]++;
    if (pipeline_reads_ahead(c->pipeline))
        expected[DO_BATCH] = c->microbatches;
    for (int i = 0; i < c->pipeline->count && !c->list->forward; i++)
        count_chunk(c, i, expected);
    if (!c->list->forward) {
        expected[DO_LOSS] = expected[DO_NORM] = expected[DO_DECIDE] =
            expected[DO_ASK] = 1;
        expected[DO_Z_LOSS] = first->program.regular.z_loss > 0;
        expected[DO_TARGETS] = expected[DO_LATER_LOSSES] =
            first->program.later.depth > 0;
        expected[DO_PEAKS] = first->request.qk_clip > 0;
        expected[DO_LATE] = pipeline_late_values(c->pipeline) > 0;
        expected[DO_ROUTES] = pipeline_route_values(c->pipeline) > 0;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (counts[kinds[i]] != expected[kinds[i]])
            FAIL(ERR_VERIFY, "the list of rank %d of the pipe: %s stands in it "
                             "%d times, not %d", c->list->rank,
                 instruction_rows[kinds[i]].name, counts[kinds[i]],
                 expected[kinds[i]]);
    return OK;
}

static int count_units(const struct pipeline *p, int chunks)
{
    int count = 0;

    for (int i = 0; i < chunks; i++) count += p->stages[i].shards.count;
    return count;
}

/* Kept codes are made before they go; others of weights that came. */
static int order_of(const struct check *c, const struct instruction *i)
{
    if (!c->pipeline->stages[i->chunk].coded.kept) return i->kind;
    return i->kind == DO_REGATHER  ? DO_ENCODE
           : i->kind == DO_ENCODE ? DO_REGATHER
                                  : (int)i->kind;
}

/* After the decision: kinds come in their order for each unit; what is of a
 * whole stage comes after all kinds before it of all units. */
static status check_stage_order(struct check *c, const struct instruction *i)
{
    const int chunks = c->pipeline->count, kind = order_of(c, i);
    int *stage = &c->last[1 + i->chunk], *units = stage + chunks;
    int *own = &c->last[1 + 2 * chunks + count_units(c->pipeline, i->chunk) +
                        (i->unit > 0 ? i->unit : 0)];

    if (kind < *stage || kind < (i->unit < 0 ? *units : *own))
        return fail(c, "it comes too late");
    if (kind == *own && (kind == DO_UPDATE || kind == DO_AVERAGE))
        return fail(c, "it stands twice");
    if (i->unit < 0) *stage = kind;
    else *own = kind;
    if (i->unit >= 0 && kind > *units) *units = kind;
    return OK;
}

/* From the loss to the decision kinds come in their order; from then on those
 * of each unit do. */
static status check_order(struct check *c, const struct instruction *i)
{
    const bool decided = i->kind > DO_DECIDE;

    if (i->kind < DO_LOSS) {
        if (c->last[0] == 0) return OK;
        return fail(c, "it stands after the loss");
    }
    if (i->kind == DO_END && c->number + 1 < c->list->count)
        return fail(c, "it is not the last");
    if (decided && i->kind != DO_END && c->last[0] != DO_DECIDE)
        return fail(c, "nothing has been decided");
    if (!decided && c->last[0] == DO_DECIDE)
        return fail(c, "it comes after the decision");
    if (c->asked && i->kind != DO_END)
        return fail(c, "it comes after the question whether to stop");
    if (i->kind == DO_ASK) c->asked = true;
    if (decided && i->chunk >= 0) return check_stage_order(c, i);
    if (i->kind < c->last[0]) return fail(c, "it comes too late");
    if (!decided) c->last[0] = i->kind;
    return OK;
}

/* ---- all ---- */

static status walk(struct check *c)
{
    for (c->number = 0; c->number < c->list->count; c->number++) {
        const struct instruction *i = &c->list->items[c->number];

        TRY(check_place(c, i));
        TRY(check_order(c, i));
        TRY(check_needs(c, i));
        TRY(check_asks(c, i));
        TRY(list_accesses(c->pipeline, c->list->forward, i, check_access, c));
        TRY(check_open(c, i));
    }
    if (c->open.count > 0)
        FAIL(ERR_VERIFY, "the list of rank %d of the pipe: nobody waits for "
                         "instruction %d", c->list->rank,
             c->open.items[0].number);
    TRY(check_rooms(c));
    TRY(check_passes(c));
    return check_counts(c);
}

static int count_microbatches(const struct step_list *list,
                              const struct pipeline *p)
{
    int most = 0;

    if (!list->forward)
        return p->schedule.microbatches * stage_repeats(&p->stages[0]);
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == DO_FORWARD &&
            list->items[i].microbatch >= most)
            most = list->items[i].microbatch + 1;
    return most;
}

status list_verify(const struct step_list *list,
                   const struct pipeline *pipeline)
{
    struct check c = {.list = list, .pipeline = pipeline,
                      .open = {.pipeline = pipeline,
                               .forward = list->forward}};
    const size_t spaces = (size_t)SPACE_COUNT * (size_t)pipeline->count;
    void *regions = NULL, *progress = NULL, *last = NULL;
    void *open_pass = NULL, *begun = NULL;
    status result;

    c.microbatches = count_microbatches(list, pipeline);
    TRY_GOTO(done, result, memory_take(spaces, sizeof *c.regions, &regions));
    c.regions = regions;
    TRY_GOTO(done, result,
             memory_take((size_t)pipeline->count * (size_t)c.microbatches,
                         sizeof *c.progress, &progress));
    c.progress = progress;
    TRY_GOTO(done, result, memory_take((size_t)pipeline->count,
                                       sizeof *c.open_pass, &open_pass));
    c.open_pass = open_pass;
    TRY_GOTO(done, result, memory_take((size_t)pipeline->count,
                                       sizeof *c.begun, &begun));
    c.begun = begun;
    TRY_GOTO(done, result,
             memory_take((size_t)(1 + 2 * pipeline->count +
                                  count_units(pipeline, pipeline->count)),
                         sizeof *c.last, &last));
    c.last = last;
    result = walk(&c);
done:
    for (size_t i = 0; c.regions != NULL && i < spaces; i++)
        memory_free(c.regions[i].items);
    memory_free(regions);
    memory_free(progress);
    memory_free(open_pass);
    memory_free(begun);
    memory_free(last);
    pending_free(&c.open);
    return result;
}
