/* SPDX-License-Identifier: Apache-2.0 */
/* perturb.c - perturb files, and classes of copies of the pipe. */
#include "planner/perturb.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 1 << 22, RANKS_LISTED = 1 << 16 };

/* Beyond these nothing runs, and sums of seconds leave the range of numbers. */
static const double FAILURES_LEAST = 1e-9, FAILURES_MOST = 1e6,
                    INTERVAL_LEAST = 1e-3, SECONDS_MOST = 1e9;

/* ---- the file ---- */

static status read_rank(const struct json *row, const char *path, int ranks,
                        struct slow_rank *out)
{
    static const char *const keys[] = {"rank", "factor"};
    int64_t rank = -1;

    if (row->kind != JSON_OBJECT || json_get(row, "rank") == NULL)
        FAIL(ERR_FORMAT, "%s: an entry names no rank; expected {\"rank\": R, "
                         "\"factor\": X}", path);
    TRY(json_only_keys(row, path, keys, 2));
    TRY(json_get_integer(row, path, "rank", &rank));
    TRY(json_get_real(row, path, "factor", &out->factor));
    if (rank < 0 || rank >= ranks)
        FAIL(ERR_CONFIG, "%s: rank %lld; the layout has ranks 0 to %d", path,
             (long long)rank, ranks - 1);
    if (!(out->factor >= 1 && out->factor <= 1e6))
        FAIL(ERR_CONFIG, "%s: rank %lld: factor is %g; expected 1 (as fast) to "
                         "1e6 (times slower)", path, (long long)rank,
             out->factor);
    out->rank = (int)rank;
    return OK;
}

static int by_rank(const void *a, const void *b)
{
    const struct slow_rank *x = a, *y = b;

    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Sorts them: of two factors of one rank neither is what was meant. */
static status each_once(struct slow_rank *rows, int count, const char *path,
                        const char *key)
{
    qsort(rows, (size_t)count, sizeof *rows, by_rank);
    for (int i = 1; i < count; i++)
        if (rows[i].rank == rows[i - 1].rank)
            FAIL(ERR_FORMAT, "%s: %s names rank %d twice; expected each rank "
                             "once", path, key, rows[i].rank);
    return OK;
}

static status read_ranks(const struct json *root, const char *path,
                         const char *key, int ranks, struct perturb *to)
{
    const struct json *rows = json_get(root, key);
    const bool slow = strcmp(key, "slow") == 0;
    void *memory = NULL;

    if (rows == NULL) return OK;
    if (rows->kind != JSON_ARRAY || rows->count > RANKS_LISTED)
        FAIL(ERR_FORMAT, "%s: %s: expected an array of at most %d entries",
             path, key, RANKS_LISTED);
    if (rows->count == 0)
        FAIL(ERR_FORMAT, "%s: %s names no rank", path, key);
    TRY(memory_take((size_t)rows->count, sizeof *to->slow, &memory));
    if (slow) to->slow = memory;
    else to->links = memory;
    for (int i = 0; i < rows->count; i++)
        TRY(read_rank(&rows->items[i], path, ranks,
                      (struct slow_rank *)memory + i));
    TRY(each_once(memory, rows->count, path, key));
    if (slow) to->slow_count = rows->count;
    else to->link_count = rows->count;
    return OK;
}

static status read_failures(const struct json *root, const char *path,
                            struct failures *out)
{
    const struct json *row = json_get(root, "failures");
    const struct { const char *key; double *value, most; } fields[] = {
        {"per_node_day", &out->per_node_day, FAILURES_MOST},
        {"restart_s", &out->restart_s, SECONDS_MOST},
        {"interval_s", &out->interval_s, SECONDS_MOST},
        {"stall_s", &out->stall_s, SECONDS_MOST}};
    static const char *const keys[] = {"per_node_day", "restart_s",
                                       "interval_s", "stall_s"};

    if (row == NULL) return OK;
    if (row->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: failures: expected an object", path);
    TRY(json_only_keys(row, path, keys, 4));
    for (int i = 0; i < 4; i++) {
        TRY(json_get_real_or(row, path, fields[i].key, 0, fields[i].value));
        if (!(*fields[i].value >= 0 && *fields[i].value <= fields[i].most))
            FAIL(ERR_CONFIG, "%s: failures.%s is %g; expected 0 to %g", path,
                 fields[i].key, *fields[i].value, fields[i].most);
    }
    if (out->per_node_day > 0 && out->per_node_day < FAILURES_LEAST)
        FAIL(ERR_CONFIG, "%s: failures.per_node_day is %g; expected at least "
                         "%g: a failure of a node in %g years", path,
             out->per_node_day, FAILURES_LEAST, 1 / (365 * FAILURES_LEAST));
    if (out->interval_s > 0 && out->interval_s < INTERVAL_LEAST)
        FAIL(ERR_CONFIG, "%s: failures.interval_s is %g; expected 0 (the best) "
                         "or %g to %g", path, out->interval_s, INTERVAL_LEAST,
             SECONDS_MOST);
    if (out->per_node_day <= 0)
        FAIL(ERR_FORMAT, "%s: failures.per_node_day is missing or 0; expected "
                         "the failures of a node in a day", path);
    return OK;
}

static status read_all(struct perturb *p, const char *path, int ranks,
                       struct arena *arena)
{
    static const char *const keys[] = {"slow", "links", "failures",
                                       "version"};
    const struct json *root;
    double version = 1;

    TRY(json_read_file(&root, arena, path, FILE_BYTES));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: expected an object", path);
    TRY(json_only_keys(root, path, keys, 4));
    TRY(json_get_real_or(root, path, "version", 1, &version));
    if (version != 1)
        FAIL(ERR_FORMAT, "%s: version is %g; this program reads 1", path,
             version);
    TRY(read_ranks(root, path, "slow", ranks, p));
    TRY(read_ranks(root, path, "links", ranks, p));
    TRY(read_failures(root, path, &p->failures));
    if (p->slow_count + p->link_count == 0 && p->failures.per_node_day <= 0)
        FAIL(ERR_FORMAT, "%s names no rank and no failures: nothing is "
                         "perturbed", path);
    return OK;
}

status perturb_read(struct perturb *perturb, const char *path, int ranks)
{
    struct arena arena;
    status result;

    *perturb = (struct perturb){0};
    arena_init(&arena, "perturb", 0);
    result = read_all(perturb, path, ranks, &arena);
    arena_free(&arena);
    if (result != OK) perturb_free(perturb);
    return result;
}

void perturb_free(struct perturb *perturb)
{
    memory_free(perturb->slow);
    memory_free(perturb->links);
    *perturb = (struct perturb){0};
}

/* ---- classes ---- */

/* Copies of the pipe: rank numbers vary slowest along the pipe. Tensor,
 * context and expert ranks wait for each other in every block, and so do ranks
 * that divide the weights: a copy is as slow as the slowest of them. */
struct copies {
    int pipe, count;       /* count: copies */
    int team;              /* ranks of a copy at one position */
    double *slow, *links;  /* owned, [pipe] */
};

static void divide(struct copies *c, const struct layout *l)
{
    const int sharing = l->zero < 3 ? 1
                        : l->whole_shards ? l->shard : l->data * l->shard;

    *c = (struct copies){.pipe = l->pipe,
                         .count = l->data * l->shard / sharing,
                         .team = l->tensor * l->context * l->expert * sharing};
}

/* A position of a copy that is slower than others. */
struct touched {
    int copy, position;
    bool link;
    double factor;
};

static struct touched touched_by(const struct copies *c, struct slow_rank s,
                                 bool link)
{
    const int beside = c->count * c->team;

    return (struct touched){s.rank % beside / c->team, s.rank / beside, link,
                            s.factor};
}

/* The largest factor of a position first. */
static int by_place(const void *a, const void *b)
{
    const struct touched *x = a, *y = b;

    if (x->copy != y->copy) return x->copy < y->copy ? -1 : 1;
    if (x->link != y->link) return x->link ? 1 : -1;
    if (x->position != y->position) return x->position < y->position ? -1 : 1;
    return (x->factor < y->factor) - (x->factor > y->factor);
}

/* A copy, and what is slow in it. */
struct slow_copy { const struct touched *rows; int count; };

static int by_rows(const void *a, const void *b)
{
    const struct slow_copy *x = a, *y = b;

    if (x->count != y->count) return x->count < y->count ? -1 : 1;
    for (int i = 0; i < x->count; i++) {
        const struct touched *p = &x->rows[i], *q = &y->rows[i];

        if (p->link != q->link) return p->link ? 1 : -1;
        if (p->position != q->position)
            return p->position < q->position ? -1 : 1;
        if (p->factor != q->factor) return p->factor < q->factor ? -1 : 1;
    }
    return 0;
}

/* Each position of each copy once, in the order of copies; how many. */
static int touch(const struct copies *c, const struct perturb *p,
                 struct touched *rows)
{
    int count = 0, kept = 0;

    for (int i = 0; i < p->slow_count; i++)
        if (p->slow[i].factor > 1)
            rows[count++] = touched_by(c, p->slow[i], false);
    for (int i = 0; i < p->link_count; i++)
        if (p->links[i].factor > 1)
            rows[count++] = touched_by(c, p->links[i], true);
    qsort(rows, (size_t)count, sizeof *rows, by_place);
    for (int i = 0; i < count; i++) {
        const struct touched *last = &rows[kept - (kept > 0)];

        if (kept == 0 || last->copy != rows[i].copy ||
            last->link != rows[i].link || last->position != rows[i].position)
            rows[kept++] = rows[i];
    }
    return kept;
}

/* Equal copies are neighbours; how many copies there are. */
static int gather(const struct touched *rows, int count,
                  struct slow_copy *copies)
{
    int found = 0;

    for (int i = 0; i < count; i++) {
        if (i == 0 || rows[i].copy != rows[i - 1].copy)
            copies[found++] = (struct slow_copy){&rows[i], 0};
        copies[found - 1].count++;
    }
    qsort(copies, (size_t)found, sizeof *copies, by_rows);
    return found;
}

static status run_copy(struct perturbed *out, const struct copies *c,
                       const struct slow_copy *copy, struct steps *steps,
                       const struct cost *cost)
{
    const struct weather weather = {.slow = c->slow, .slow_link = c->links};
    struct prediction found;

    for (int i = 0; i < c->pipe; i++) c->slow[i] = c->links[i] = 1;
    for (int i = 0; i < copy->count; i++) {
        const struct touched *row = &copy->rows[i];

        (row->link ? c->links : c->slow)[row->position] = row->factor;
    }
    TRY(predict_steps(&found, steps, cost, &weather));
    out->simulated++;
    /* The others wait for the slowest copy before the norm. */
    if (found.step_s > out->slow.step_s) out->slow = found;
    return OK;
}

static status run_copies(struct perturbed *out, const struct copies *c,
                         const struct perturb *perturb, struct steps *steps,
                         const struct cost *cost, bool unfold)
{
    const int most = perturb->slow_count + perturb->link_count;
    const struct slow_copy healthy = {.count = 0};
    void *rows = NULL, *copies = NULL;
    const struct slow_copy *slow;
    status result;
    int count;

    TRY_GOTO(done, result, memory_take((size_t)most + 1,
                                       sizeof(struct touched), &rows));
    TRY_GOTO(done, result, memory_take((size_t)most + 1,
                                       sizeof(struct slow_copy), &copies));
    slow = copies;
    count = gather(rows, touch(c, perturb, rows), copies);
    for (int i = 0; i < count; i++) {
        const bool first = i == 0 || by_rows(&slow[i - 1], &slow[i]) != 0;

        out->classes += first;
        if (first || unfold)
            TRY_GOTO(done, result, run_copy(out, c, &slow[i], steps, cost));
    }
    for (int i = count; i < c->count && unfold; i++)
        TRY_GOTO(done, result, run_copy(out, c, &healthy, steps, cost));
    if (count < c->count) out->classes++; /* the healthy ones */
    result = OK;
done:
    memory_free(copies);
    memory_free(rows);
    return result;
}

status perturb_step(struct perturbed *out, const struct perturb *perturb,
                    struct steps *steps, const struct cost *cost, bool unfold)
{
    const struct weather calm = {.slow = NULL};
    void *memory = NULL;
    struct copies c;
    status result;

    *out = (struct perturbed){.classes = 0};
    divide(&c, cost->layout);
    TRY(predict_steps(&out->healthy, steps, cost, &calm));
    out->slow = out->healthy;
    out->simulated = 1;
    TRY(memory_take(2 * (size_t)c.pipe, sizeof *c.slow, &memory));
    c.slow = memory;
    c.links = c.slow + c.pipe;
    result = run_copies(out, &c, perturb, steps, cost, unfold);
    memory_free(memory);
    return result;
}
