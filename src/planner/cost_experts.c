/* SPDX-License-Identifier: Apache-2.0 */
/* cost_experts.c - rows of tokens on their way to experts and back. */
#include "nn/row_codes.h"
#include "planner/cost_parts.h"
#include "planner/expert_travel.h"
#include "planner/network.h"

/* DualPipe runs F of one micro-batch beside B of another: exchanges of one pass
 * lie under the products of the other (arXiv:2412.19437, section 3.2.1). */
static double hidden_by_pairs(const struct cost *cost, int pass,
                              const struct passes *block)
{
    const struct spent *other = &block->pass[pass == COST_F ? COST_B : COST_F];
    const struct layout *l = cost->layout;

    if (!layout_joins_passes(l)) return 0;
    return other->seconds[CAUSE_PRODUCT] /
           cost->machine->value[M_COMM_BESIDE];
}

/* How many of `parts` of the experts have experts of a token, at most and in
 * the mean. Experts are spread evenly; a router may choose them in some of
 * their groups only. */
static double parts_reached(const struct moe *m, double parts)
{
    double missed = 1, most = parts, draws = m->top_k, reached;

    if (m->groups_chosen > 0 && m->groups <= parts)
        most = m->groups_chosen * parts / m->groups;
    else if (m->groups_chosen > 0 && m->groups_chosen < draws)
        draws = m->groups_chosen; /* a group lies in one part */
    for (int i = 0; i < draws; i++) missed *= 1 - 1 / parts;
    reached = parts * (1 - missed);
    return reached < most ? reached : most;
}

/* The shares of a token's rows that leave the node, and that go over its links,
 * where it goes once to each node and from there once to each rank: of those
 * that would. Lockstep's rows go once there, and come back one by one. */
static struct rows_once sent_once(const struct cost *cost,
                                  struct group_shape group)
{
    const struct moe *m = &cost->shape->model.moe;
    const int near = group_on_node(cost->layout, group);
    const double nodes = (double)group.ranks / near;
    const bool own = cost->layout->as == AS_LOCKSTEP;
    struct rows_once once = {1, 0};

    if (cost->layout->rows_straight ||
        (!own && !habits_of[cost->layout->as].rows_once) || m->top_k == 0)
        return once;
    if (nodes > 1) once.outside = parts_reached(m, nodes) / m->top_k;
    if (own) once.outside = (once.outside + 1) / 2;
    else once.inside = parts_reached(m, layout_experts(cost->layout).places) /
                       m->top_k * (near - 1) / near;
    return once;
}

/* Bytes of an element of a row on its way there: blocks that have a recipe may
 * send codes. */
static double coded_bytes(const struct cost *cost, int pass)
{
    const struct precision_use *use = &cost->shape->precision;
    const int64_t width = cost->shape->width;
    const double element = cost_element_bytes(cost);
    const struct precision_role *role =
        row_codes_of(use, pass == COST_B, width);

    if (cost->layout->as != AS_LOCKSTEP || role == NULL) return element;
    return element + ((double)row_codes_bytes(role, width) / (double)width -
                      element) *
                         (use->end - use->first) / cost->shape->layers;
}

/* Bytes of an element of a row, mean over there and back: rows for products of
 * 8 bits go there in 8 bits (arXiv:2412.19437, section 3.3.3); what ranks that
 * cut an expert return are sums, which Lockstep sends as float32. */
static double row_bytes(const struct cost *cost, const struct expert_ranks *e,
                        int pass)
{
    const double element = cost_element_bytes(cost);
    const bool sums = cost->layout->as == AS_LOCKSTEP && e->cut > 1;

    if (cost->layout->bits == 8) return 1.5;
    return (coded_bytes(cost, pass) + (sums ? 4 : element)) / 2;
}

/* The share of a source's rows that a rank sends: its part of the tokens, where
 * tensor ranks divide them. Lockstep's ranks that cut an expert each send all
 * rows to those that have the same part. */
static double row_share(const struct cost *cost, const struct expert_ranks *e)
{
    const struct layout *l = cost->layout;

    if (e->folded) return 1.0 / l->tensor;
    return l->sequence_parallel && l->as != AS_LOCKSTEP ? 1.0 / l->tensor : 1;
}

/* Products of a block with experts, in each pass: of its experts that ranks
 * divide; of those of all tokens; of both passes of a pair. */
struct rows_beside { double work[COST_PASSES], shared[COST_PASSES]; };

static void beside_rows(const struct cost *cost, struct rows_beside *out)
{
    const struct shape *s = cost->shape;
    struct passes work = {0}, shared = {0};

    for (int i = 0; i < s->product_count; i++) {
        const struct shape_product *p = &s->products[i];

        if (p->expert) cost_products(cost, p, p->each_block, &work);
        cost_products(cost, p, p->beside, &shared);
    }
    for (int pass = 0; pass < COST_PASSES; pass++) {
        out->work[pass] = spent_seconds(&work.pass[pass]) / s->expert_blocks;
        out->shared[pass] = spent_seconds(&shared.pass[pass]) /
                            s->expert_blocks;
    }
}

/* Seconds that one pass of a block waits for its rows and is slower beside
 * them: they go in halves of `half` seconds, `before` is computed meanwhile,
 * each half is worked on when it has come and goes back, and `after` is
 * computed meanwhile (nn/expert_parallel.c). */
static double shown_rows(const struct machine *machine, double half,
                         double before, double work, double after)
{
    struct expert_travel t = {.machine = machine};
    struct under_way rows;
    double longer = 0;

    for (int k = 0; k < TRAVEL_HALVES; k++)
        expert_travel_start(&t, &rows, k, half);
    longer += expert_travel_compute(&t, before);
    for (int k = 0; k < TRAVEL_HALVES; k++) {
        longer += expert_travel_await(&t, &rows, k);
        longer += expert_travel_compute(&t, work / TRAVEL_HALVES);
        expert_travel_start(&t, &rows, k, half);
    }
    longer += expert_travel_compute(&t, after);
    for (int k = 0; k < TRAVEL_HALVES; k++)
        longer += expert_travel_await(&t, &rows, k);
    return longer;
}

/* Lockstep's rows, of `bytes` each way in F and in B. Ranks first tell each
 * other what their tokens chose. In DualPipe the other micro-batch of a pair is
 * computed where messages have been started (list/pass_beside.c): half of its
 * block at each of both places. */
static void own_rows(const struct cost *cost, const double bytes[2],
                     struct passes *out)
{
    const struct layout *l = cost->layout;
    const struct shape *s = cost->shape;
    const struct group_shape group = expert_group(l);
    const struct expert_ranks e = layout_experts(l);
    const bool fused = !layout_defers(l);
    double guessed = 0, other[2] = {0, 0};
    const struct rows_once once = sent_once(cost, group);
    const double half[] = {
        cost_exchange(cost, group, bytes[COST_F] / TRAVEL_HALVES, once,
                      &guessed),
        cost_exchange(cost, group, bytes[COST_B] / TRAVEL_HALVES, once,
                      &guessed)};
    const double choices = cost_collective(
        cost, COLLECTIVE_ALL_GATHER, group,
        4 * cost_tokens(cost) * s->choices * row_share(cost, &e) * e.ranks,
        &guessed);
    struct rows_beside p;

    beside_rows(cost, &p);
    if (layout_joins_passes(l)) {
        other[COST_F] = (spent_seconds(&out->pass[COST_B]) +
                         spent_seconds(&out->pass[COST_W])) / 2;
        other[COST_B] = spent_seconds(&out->pass[COST_F]) / 2;
    }
    const double weights = fused ? p.work[COST_W] + p.shared[COST_W] : 0;
    const double seconds[] = {
        [COST_F] = choices + shown_rows(cost->machine, half[COST_F],
                                        other[COST_F] + p.shared[COST_F],
                                        p.work[COST_F], other[COST_F]),
        [COST_B] = shown_rows(cost->machine, half[COST_B], other[COST_B],
                              p.work[COST_B],
                              other[COST_B] + p.shared[COST_B] + weights)};

    for (int pass = COST_F; pass <= COST_B; pass++) {
        out->pass[pass].seconds[CAUSE_EXPERT] += s->expert_blocks *
                                                 seconds[pass];
        out->pass[pass].guessed += s->expert_blocks * guessed;
    }
}

/* Tokens go to the ranks of their experts and come back: to all that cut one,
 * where tensor ranks have parts of the tokens each its own. */
void cost_experts(const struct cost *cost, struct passes *out)
{
    const struct layout *l = cost->layout;
    const struct expert_ranks e = layout_experts(l);
    const double copies = (double)e.ranks / e.places;
    const double elements = cost_tokens(cost) * (double)cost->shape->width *
                            cost->shape->choices * row_share(cost, &e) *
                            copies;
    const double bytes[] = {elements * row_bytes(cost, &e, COST_F),
                            elements * row_bytes(cost, &e, COST_B)};
    const double times = 2 * cost->shape->expert_blocks;
    const struct group_shape group = expert_group(l);
    double guessed = 0, seconds;

    if (e.ranks == 1 || cost->shape->expert_blocks <= 0) return;
    if (l->as == AS_LOCKSTEP) {
        own_rows(cost, bytes, out);
        return;
    }
    seconds = times * cost_exchange(cost, group, bytes[COST_F],
                                    sent_once(cost, group), &guessed);
    for (int pass = COST_F; pass <= COST_B; pass++) {
        const double shown = seconds - hidden_by_pairs(cost, pass, out);

        out->pass[pass].seconds[CAUSE_EXPERT] += shown > 0 ? shown : 0;
        out->pass[pass].guessed += times * guessed;
    }
}
