/* SPDX-License-Identifier: Apache-2.0 */
/* memory_codes.c - bytes of weights that are kept, or travel, as codes of a
 * recipe: what the frames say of a block, for the blocks of a rank. */
#include "plan/coded_weights.h"
#include "planner/memory_parts.h"

static bool divides(const struct layout *l)
{
    return layout_division(l, 3) > 1;
}

/* As setup/recipe.c decides: a rank that has codes of y and of dx has them in
 * turns, and makes nothing of y again. */
static bool has_turns(const struct layout *l)
{
    return divides(l) && l->recompute == RECOMPUTE_NONE && !l->again_latent;
}

static bool keeps_codes(const struct layout *l, const struct shape *s)
{
    if (!s->precision.on || !s->precision.kept) return false;
    return coded_sets(&s->precision) == 1 ||
           (has_turns(l) && !l->parts[1] && !l->parts[2]);
}

bool memory_gathers_codes(const struct layout *l, const struct shape *s)
{
    if (!shape_has_codes(s) || !divides(l)) return false;
    return keeps_codes(l, s) ||
           (s->gathers_codes &&
            (coded_sets(&s->precision) == 1 || has_turns(l)));
}

/* Blocks of a stage that the recipe is for. */
static struct stage_blocks coded_blocks(const struct layout *l,
                                        const struct shape *s, int stage)
{
    const struct stage_blocks all = layout_stage_blocks(l, s, stage);
    const struct precision_use *use = &s->precision;
    const int first = all.first > use->first ? all.first : use->first;
    const int end = all.first + all.all < use->end ? all.first + all.all
                                                   : use->end;

    if (end <= first) return (struct stage_blocks){0};
    return layout_blocks_between(s, first, end - first);
}

/* Bytes of codes of a part of the weights on a rank, for weights without. */
static double part_of(const struct layout *l, const struct shape *s,
                      double bytes, double lacks)
{
    const int ranks = layout_division(l, 3);
    const int sets = coded_sets(&s->precision);

    return (sets * bytes - (keeps_codes(l, s) ? 2 * lacks : 0)) / ranks;
}

static double of_blocks(const struct layout *l, const struct shape *s,
                        const struct frame_codes *c, int blocks)
{
    struct layout copies = *l; /* of an expert: expert ranks hold others */
    const double experts = c->bytes > 0 ? c->experts / c->bytes : 0;
    const double each = part_of(l, s, (1 - experts) * c->bytes,
                                (1 - experts) * c->lacks);

    copies.expert = 1;
    return blocks * (each + c->scales +
                     part_of(&copies, s, experts * c->bytes,
                             experts * c->lacks));
}

double memory_codes(const struct layout *l, const struct shape *s,
                    int position)
{
    const struct frames *f = &l->frames;
    double bytes = 0, peaks = 0;

    if (!keeps_codes(l, s) && !memory_gathers_codes(l, s)) return 0;
    for (int chunk = 0; chunk < l->chunks; chunk++) {
        const struct stage_blocks coded =
            coded_blocks(l, s, layout_stage(l, chunk, position));

        bytes += of_blocks(l, s, &f->plain, coded.all - coded.mixed) +
                 of_blocks(l, s, &f->mixed, coded.mixed);
        if (coded.all > coded.mixed) peaks += 4 * f->plain.peaks;
        else if (coded.mixed > 0) peaks += 4 * f->mixed.peaks;
    }
    return bytes + peaks;
}

void memory_codes_units(const struct layout *l, const struct shape *s,
                        int position, struct unit_sizes *units)
{
    const struct frame_codes *mixed = &l->frames.mixed;
    double dense = 0;

    for (int chunk = 0; chunk < l->chunks; chunk++) {
        const int stage = layout_stage(l, chunk, position);

        if (coded_blocks(l, s, stage).all < layout_blocks(l, s, stage)) return;
    }
    dense = mixed->bytes - mixed->experts;
    if (l->frames.plain.bytes > dense) dense = l->frames.plain.bytes;
    units->dense = dense;
    units->experts = mixed->experts;
}
