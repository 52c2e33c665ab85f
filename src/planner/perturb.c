/* SPDX-License-Identifier: Apache-2.0 */
/* perturb.c - perturb files, and classes of copies of the pipe. */
#include "planner/perturb.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 1 << 22, RANKS_LISTED = 1 << 16 };

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
    const struct { const char *key; double *value; } fields[] = {
        {"per_node_day", &out->per_node_day}, {"restart_s", &out->restart_s},
        {"interval_s", &out->interval_s}, {"stall_s", &out->stall_s}};

    static const char *const keys[] = {"per_node_day", "restart_s",
                                       "interval_s", "stall_s"};

    if (row == NULL) return OK;
    if (row->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: failures: expected an object", path);
    TRY(json_only_keys(row, path, keys, 4));
    for (int i = 0; i < 4; i++) {
        TRY(json_get_real_or(row, path, fields[i].key, 0, fields[i].value));
        if (*fields[i].value < 0)
            FAIL(ERR_CONFIG, "%s: failures.%s is %g; expected 0 or more", path,
                 fields[i].key, *fields[i].value);
    }
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
 * context and expert ranks wait for each other in every block: a copy is as
 * slow as the slowest of them. */
struct copies {
    const struct perturb *perturb;
    int pipe, count;       /* count: copies */
    int team;              /* ranks of a copy at one position */
    double *slow, *links;  /* owned, [pipe] */
};

static int copy_of(const struct copies *c, int rank)
{
    return rank % (c->count * c->team) / c->team;
}

static int position_of(const struct copies *c, int rank)
{
    return rank / (c->count * c->team);
}

static bool fill_copy(const struct copies *c, int copy)
{
    bool any = false;

    for (int i = 0; i < c->pipe; i++) c->slow[i] = c->links[i] = 1;
    for (int i = 0; i < c->perturb->slow_count; i++) {
        const struct slow_rank s = c->perturb->slow[i];
        double *at = &c->slow[position_of(c, s.rank)];

        if (copy_of(c, s.rank) != copy) continue;
        any = true;
        if (s.factor > *at) *at = s.factor;
    }
    for (int i = 0; i < c->perturb->link_count; i++) {
        const struct slow_rank s = c->perturb->links[i];
        double *at = &c->links[position_of(c, s.rank)];

        if (copy_of(c, s.rank) != copy) continue;
        any = true;
        if (s.factor > *at) *at = s.factor;
    }
    return any;
}

static status run_copies(struct perturbed *out, const struct copies *c,
                         struct steps *steps, const struct cost *cost,
                         bool unfold)
{
    const struct weather weather = {.slow = c->slow, .slow_link = c->links};
    status result = OK;

    for (int copy = 0; copy < c->count && result == OK; copy++) {
        const bool own = fill_copy(c, copy);
        struct prediction found;

        if (own) out->classes++;
        else if (!unfold) continue;
        result = predict_steps(&found, steps, cost, &weather);
        out->simulated++;
        /* The others wait for the slowest copy before the norm. */
        if (result == OK && found.step_s > out->slow.step_s)
            out->slow = found;
    }
    return result;
}

status perturb_step(struct perturbed *out, const struct perturb *perturb,
                    struct steps *steps, const struct cost *cost, bool unfold)
{
    const struct layout *l = cost->layout;
    struct copies c = {.perturb = perturb, .pipe = l->pipe,
                       .count = l->data * l->shard,
                       .team = l->tensor * l->context * l->expert};
    const struct weather calm = {.slow = NULL};
    void *memory = NULL;
    status result;

    *out = (struct perturbed){.classes = 0};
    TRY(predict_steps(&out->healthy, steps, cost, &calm));
    out->slow = out->healthy;
    out->simulated = 1;
    TRY(memory_take(2 * (size_t)l->pipe, sizeof *c.slow, &memory));
    c.slow = memory;
    c.links = c.slow + l->pipe;
    result = run_copies(out, &c, steps, cost, unfold);
    if (out->classes < c.count) out->classes++; /* the healthy ones */
    memory_free(memory);
    return result;
}
