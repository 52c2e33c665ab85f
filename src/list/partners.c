/* SPDX-License-Identifier: Apache-2.0 */
/* partners.c - which send and which receive of the ranks of a pipe belong
 * together. */
#include "list/partners.h"

#include "base/arena.h"

/* Messages by what they are: number of the instruction in its list, -1. */
struct table { int *items; int stages, microbatches; };

static size_t cell(const struct table *t, enum instruction_kind kind,
                   int stage, int microbatch)
{
    const int which = kind == DO_RECEIVE ? 0 : kind == DO_SEND ? 1
                    : kind == DO_RECEIVE_BACK ? 2 : 3;

    return (((size_t)stage * (size_t)t->microbatches) +
            (size_t)microbatch) * 4 + (size_t)which;
}

static status fill_table(const struct step_list *lists, int ranks,
                         struct table *t)
{
    char text[INSTRUCTION_BYTES];

    for (int rank = 0; rank < ranks; rank++)
        for (int n = 0; n < lists[rank].count; n++) {
            const struct instruction *i = &lists[rank].items[n];
            int *at;

            if (!instruction_is_message(i)) continue;
            if (i->microbatch >= t->microbatches || i->peer < 0 ||
                i->peer >= ranks)
                FAIL(ERR_VERIFY, "rank %d of the pipe: %s goes to no rank",
                     rank, instruction_text(text, i));
            at = &t->items[cell(t, i->kind, i->stage, i->microbatch)];
            if (*at >= 0)
                FAIL(ERR_VERIFY, "%s stands on two ranks of the pipe",
                     instruction_text(text, i));
            *at = n;
        }
    return OK;
}

static status match(struct partners *out, const struct step_list *lists,
                    const struct table *t)
{
    static const struct { enum instruction_kind other; int step; } sides[] = {
        [DO_SEND] = {DO_RECEIVE, 1}, [DO_RECEIVE] = {DO_SEND, -1},
        [DO_SEND_BACK] = {DO_RECEIVE_BACK, -1},
        [DO_RECEIVE_BACK] = {DO_SEND_BACK, 1}};
    char text[INSTRUCTION_BYTES];

    for (int rank = 0; rank < out->ranks; rank++)
        for (int n = 0; n < lists[rank].count; n++) {
            const struct instruction *i = &lists[rank].items[n];
            int partner, stage;

            if (!instruction_is_message(i)) continue;
            stage = i->stage + sides[i->kind].step;
            partner = stage < 0 ? -1
                                : t->items[cell(t, sides[i->kind].other,
                                                stage, i->microbatch)];
            if (partner < 0 || partner >= lists[i->peer].count ||
                lists[i->peer].items[partner].kind !=
                    sides[i->kind].other ||
                lists[i->peer].items[partner].peer != rank)
                FAIL(ERR_VERIFY, "rank %d of the pipe: instruction %d, %s, has "
                                 "no other side on rank %d", rank, n,
                     instruction_text(text, i), i->peer);
            out->of[rank][n] = partner;
        }
    return OK;
}

/* Sets the sizes of the table: both ends of every message must have a row. A
 * message from stage s goes to stage s + 1, so there are s + 2 stages. */
static void measure(const struct step_list *lists, int ranks,
                    struct table *t)
{
    for (int rank = 0; rank < ranks; rank++)
        for (int n = 0; n < lists[rank].count; n++) {
            const struct instruction *i = &lists[rank].items[n];

            if (!instruction_is_message(i)) continue;
            if (i->stage + 2 > t->stages) t->stages = i->stage + 2;
            if (i->microbatch >= t->microbatches)
                t->microbatches = i->microbatch + 1;
        }
}

static status take(struct partners *out, const struct step_list *lists)
{
    void *memory = NULL;

    TRY(memory_take((size_t)out->ranks, sizeof *out->of, &memory));
    out->of = memory;
    for (int rank = 0; rank < out->ranks; rank++) {
        TRY(memory_take((size_t)lists[rank].count + 1, sizeof(int),
                        &memory));
        out->of[rank] = memory;
        for (int n = 0; n < lists[rank].count; n++) out->of[rank][n] = -1;
    }
    return OK;
}

status partners_build(struct partners *out, const struct step_list *lists,
                      int ranks)
{
    struct table t = {.stages = 2};
    void *memory = NULL;
    status result;

    *out = (struct partners){.ranks = ranks};
    measure(lists, ranks, &t);
    const size_t cells = (size_t)t.stages * (size_t)t.microbatches * 4;

    TRY_GOTO(failed, result, take(out, lists));
    TRY_GOTO(failed, result, memory_take(cells + 1, sizeof *t.items, &memory));
    t.items = memory;
    for (size_t i = 0; i < cells; i++) t.items[i] = -1;
    TRY_GOTO(failed, result, fill_table(lists, ranks, &t));
    TRY_GOTO(failed, result, match(out, lists, &t));
    memory_free(memory);
    return OK;
failed:
    memory_free(memory);
    partners_free(out);
    return result;
}

void partners_free(struct partners *partners)
{
    for (int i = 0; partners->of != NULL && i < partners->ranks; i++)
        memory_free(partners->of[i]);
    memory_free(partners->of);
    *partners = (struct partners){0};
}
