/* SPDX-License-Identifier: Apache-2.0 */
/* likelihood.c - log-likelihoods of requests. */
#include "inference/likelihood.h"

#include <math.h>
#include <string.h>

/* Numbers of a scored target in the table: its loss, then, where greedy is
 * wanted, the largest logit and its id of each tensor rank. */
struct asking {
    const struct likelihood_call *call;
    const struct program *program; /* of the stage that ends; NULL: another
                                    * rank has it */
    struct run *run;               /* of that stage */
    int64_t sequences;             /* of a micro-batch */
    int64_t width;                 /* numbers of a scored target */
    int parts, part;               /* tensor ranks, this one */
    int64_t vocab_first;           /* id of the first logit here */
    double *table;                 /* owned: of a turn */
    int64_t table_values;          /* room of it, scored targets */
    int64_t *cells;                /* owned [length] */
    struct top *tops;              /* owned [tokens]; NULL: not wanted */
    struct likelihoods *out;
};

/* ---- the largest logit ---- */

struct top likelihood_top(const struct tensor *logits, int64_t row,
                          int64_t first)
{
    const int64_t count = logits->shape[1];
    struct top top = {-(double)INFINITY, (double)first};

    for (int64_t j = 0; j < count; j++) {
        const double x = tensor_get(logits, row * count + j);

        if (x > top.logit) top = (struct top){x, (double)(first + j)};
    }
    return top;
}

static status read_tops(void *argument, int64_t first_token,
                        const struct tensor *logits)
{
    struct asking *a = argument;

    for (int64_t i = 0; i < logits->shape[0]; i++)
        if (a->run->batch.targets[first_token + i] >= 0)
            a->tops[first_token + i] =
                likelihood_top(logits, i, a->vocab_first);
    return OK;
}

/* ---- room ---- */

status likelihood_take(int64_t count, size_t bytes, void *out)
{
    void *memory;

    TRY(memory_take((size_t)count + 1, bytes, &memory));
    memcpy(out, &memory, sizeof memory);
    return OK;
}

/* Values of `rows` rows in a row, at most. */
static int64_t most_values(const struct request_rows *r, int64_t rows)
{
    int64_t most = 0;

    for (int64_t first = 0; first < r->count; first += rows) {
        const int64_t last = first + rows < r->count ? first + rows : r->count;

        if (r->value[last] - r->value[first] > most)
            most = r->value[last] - r->value[first];
    }
    return most;
}

static status begin(struct asking *a, int64_t rows_at_once)
{
    const struct request_rows *r = a->call->rows;
    const int64_t requests = r->requests->count;

    a->width = a->call->greedy ? 1 + 2 * a->parts : 1;
    a->table_values = most_values(r, rows_at_once);
    a->out->requests = requests;
    TRY(likelihood_take(requests, sizeof *a->out->sums, &a->out->sums));
    if (a->call->greedy)
        TRY(likelihood_take(requests, sizeof *a->out->greedy, &a->out->greedy));
    TRY(likelihood_take(a->table_values * a->width, sizeof *a->table,
                        &a->table));
    TRY(likelihood_take(r->length, sizeof *a->cells, &a->cells));
    if (!a->call->greedy || a->program == NULL) return OK;
    TRY(likelihood_take(a->program->size.tokens, sizeof *a->tops, &a->tops));
    a->run->logits.read = read_tops;
    a->run->logits.argument = a;
    return OK;
}

static void end(struct asking *a)
{
    if (a->run != NULL) a->run->logits.read = NULL;
    memory_free(a->table);
    memory_free(a->cells);
    memory_free(a->tops);
}

/* ---- rows ---- */

/* Copies the values of a row that this rank has computed, sequence s of its
 * micro-batch, into the table of the values from `base` on. */
static void collect(struct asking *a, int64_t row, int64_t s, int64_t base,
                    bool speaks)
{
    const struct program *p = a->program;

    request_rows_cells(a->call->rows, row, a->cells);
    for (int64_t t = 0; t < p->size.length; t++) {
        const int64_t cell = a->cells[program_position(p, t)];
        const int64_t token = s * p->size.length + t;
        double *numbers = a->table + (cell - base) * a->width;

        if (cell < 0) continue;
        if (speaks) numbers[0] = a->run->losses[token];
        if (a->tops == NULL) continue;
        numbers[1 + 2 * a->part] = a->tops[token].logit;
        numbers[2 + 2 * a->part] = a->tops[token].id;
    }
}

/* The id of the largest logit of all tensor ranks. */
static int64_t top_id(const struct asking *a, const double *numbers)
{
    int best = 0;

    for (int i = 1; i < a->parts; i++) {
        const double *x = numbers + 1 + 2 * i, *y = numbers + 1 + 2 * best;

        if (x[0] > y[0] || (x[0] == y[0] && x[1] < y[1])) best = i;
    }
    return (int64_t)numbers[2 + 2 * best];
}

static void add_up(struct asking *a, const struct request_place *place,
                   int64_t base)
{
    const struct task_requests *requests = a->call->rows->requests;
    const struct task_request *r = &requests->items[place->request];
    const int32_t *targets = requests->ids.ids + r->first + 1 +
                             (r->length - r->scored);
    double sum = 0;
    bool greedy = true;

    for (int32_t i = 0; i < r->scored; i++) {
        const double *numbers =
            a->table + (place->value - base + i) * a->width;

        sum += numbers[0];
        if (a->call->greedy)
            greedy = greedy && top_id(a, numbers) == targets[i];
    }
    a->out->sums[place->request] = -sum;
    if (a->call->greedy) a->out->greedy[place->request] = greedy;
}

/* Rows [first, last) are in the table. */
static void add_rows(struct asking *a, int64_t first, int64_t last)
{
    const struct request_rows *r = a->call->rows;

    for (int64_t i = r->first[first]; i < r->first[last]; i++)
        add_up(a, &r->places[i], r->value[first]);
    if (a->call->progress != NULL)
        a->call->progress(a->call->argument, (double)r->first[last],
                          (double)r->requests->count);
}

static void clear_table(struct asking *a)
{
    memset(a->table, 0,
           (size_t)(a->table_values * a->width) * sizeof *a->table);
}

/* ---- ranks ---- */

static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    const struct asking *a = argument;

    request_rows_fill(a->call->rows, index, inputs, targets, positions,
                      documents);
    return OK;
}

status likelihood_join(struct team *team, double *values, int64_t count)
{
    for (int64_t at = 0; at < count; at += LIKELIHOOD_JOIN_MOST) {
        const int64_t left = count - at;

        TRY(team_join(team, values + at,
                      left < LIKELIHOOD_JOIN_MOST ? left
                                                  : LIKELIHOOD_JOIN_MOST));
    }
    return OK;
}

/* Turn `turn`: each pipeline takes the next rows. */
static status run_turn(struct asking *a, struct train_step *step, int64_t turn)
{
    const struct request_rows *r = a->call->rows;
    const struct sample_source source = {.fill = fill, .argument = a};
    const int64_t ranks = team_batch_size(step->team);
    const int64_t first = turn * ranks * a->sequences;
    const int64_t mine = first + team_batch_rank(step->team) * a->sequences;
    int64_t last = first + ranks * a->sequences;

    if (last > r->count) last = r->count;
    clear_table(a);
    TRY(executor_forward(&step->executor, &source, mine, turn));
    for (int64_t s = 0; a->program != NULL && s < a->sequences; s++)
        if (mine + s < r->count)
            collect(a, mine + s, s, r->value[first],
                    step->team->place.at[AXIS_TENSOR] == 0);
    TRY(likelihood_join(step->team, a->table,
                        (r->value[last] - r->value[first]) * a->width));
    add_rows(a, first, last);
    return OK;
}

int64_t likelihood_first_logit(const struct program *program)
{
    const struct step *head = &program->steps[program->step_count - 1];
    const struct param *weight = &program->params.items[head->param[0]];

    return layout_held(&weight->spec, &program->layout.mesh,
                       &program->layout.place, 0)
        .first;
}

status likelihood_ranks(struct likelihoods *out, struct train_step *step,
                        const struct likelihood_call *call)
{
    struct pipeline *p = step->pipeline;
    const int ends = executor_last(&step->executor);
    const int64_t sequences = p->stages[0].program.size.sequences;
    const int64_t at_once = sequences * team_batch_size(step->team);
    struct asking a = {.call = call, .out = out, .sequences = sequences,
                       .parts = step->team->mesh.size[AXIS_TENSOR],
                       .part = step->team->place.at[AXIS_TENSOR]};
    status result;

    *out = (struct likelihoods){0};
    CHECK(program_sequence(&p->stages[0].program) == call->rows->length);
    if (a.parts < 1) a.parts = 1;
    if (ends >= 0) {
        a.program = &p->stages[ends].program;
        a.run = &p->stages[ends].run;
        a.vocab_first = likelihood_first_logit(a.program);
    }
    TRY_GOTO(done, result, begin(&a, at_once));
    for (int64_t turn = 0; turn * at_once < call->rows->count; turn++)
        TRY_GOTO(done, result, run_turn(&a, step, turn));
    TRY_GOTO(done, result, executor_settle(&step->executor));
done:
    end(&a);
    return result;
}

void likelihoods_free(struct likelihoods *likelihoods)
{
    memory_free(likelihoods->sums);
    memory_free(likelihoods->greedy);
    *likelihoods = (struct likelihoods){0};
}
