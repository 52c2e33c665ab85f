/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - where a rank stands in the mesh, and with whom.
 *
 * A rank's number is its coordinates in mixed radix, the fastest axis last, so
 * every question about it is a division. */
#include "mesh/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/text.h"

const struct mesh_order mesh_order_default = {
    {AXIS_PIPE, AXIS_DATA, AXIS_SHARD, AXIS_CONTEXT, AXIS_EXPERT,
     AXIS_TENSOR}, MESH_AXES};

static bool order_has(const struct mesh_order *order, enum axis axis)
{
    for (int i = 0; i < order->count; i++)
        if (order->axis[i] == axis) return true;
    return false;
}

static status order_add(struct mesh_order *order, const char *word,
                        const char *text)
{
    for (int a = AXIS_NONE + 1; a < AXIS_COUNT; a++) {
        if (strcmp(word, axis_names[a]) != 0) continue;
        if (order_has(order, (enum axis)a))
            FAIL(ERR_CONFIG, "the order of axes names %s twice: %s", word,
                 text);
        order->axis[order->count++] = (enum axis)a;
        return OK;
    }
    const char *nearest = text_nearest(word, axis_names + 1, MESH_AXES);

    FAIL(ERR_CONFIG, "%s is not an axis of the mesh%s%s", word,
         nearest != NULL ? "; the nearest is " : "",
         nearest != NULL ? nearest : "");
}

/* The named axes are the fastest; all other axes lie outside them. */
static void order_complete(struct mesh_order *order,
                           const struct mesh_order *named)
{
    order->count = 0;
    for (int i = 0; i < MESH_AXES; i++)
        if (!order_has(named, mesh_order_default.axis[i]))
            order->axis[order->count++] = mesh_order_default.axis[i];
    for (int i = 0; i < named->count; i++)
        order->axis[order->count++] = named->axis[i];
}

status mesh_order_parse(struct mesh_order *order, const char *text)
{
    struct mesh_order named = {.count = 0};
    char word[24];

    for (const char *at = text; *at != '\0';) {
        const size_t bytes = strcspn(at, ", ");

        snprintf(word, sizeof word, "%.*s", (int)bytes, at);
        if (bytes > 0 && strcmp(word, "x") != 0)
            TRY(order_add(&named, word, text));
        at += bytes + (at[bytes] != '\0');
    }
    order_complete(order, &named);
    return OK;
}

int mesh_group_size(const struct mesh *mesh, axis_set axes)
{
    int64_t size = 1;

    for (int a = AXIS_NONE + 1; a < AXIS_COUNT; a++)
        if (axes >> a & 1) size *= mesh->size[a];
    CHECK(size <= MESH_RANKS_MAX);
    return (int)size;
}

int mesh_ranks(const struct mesh *mesh)
{
    return mesh_group_size(mesh, ~0u);
}

int mesh_batch_ranks(const struct mesh *mesh)
{
    return mesh_group_size(mesh, AXES_BATCH);
}

int mesh_batch_index(const struct mesh *mesh, const struct place *place,
                     axis_set axes)
{
    int index = 0;

    for (int i = 0; i < BATCH_AXES; i++) {
        const enum axis axis = batch_axes[i];

        if (axes >> axis & 1) index = index * mesh->size[axis] +
                                      place->at[axis];
    }
    return index;
}

int mesh_batch_rank(const struct mesh *mesh, const struct place *place)
{
    return mesh_batch_index(mesh, place, AXES_BATCH);
}

void mesh_batch_members(const struct mesh *mesh,
                        const struct mesh_order *order,
                        const struct place *place, axis_set axes,
                        int *members)
{
    const int size = mesh_group_size(mesh, axes);
    struct place at = *place;

    for (int m = 0; m < size; m++) {
        int rest = m;

        for (int i = BATCH_AXES - 1; i >= 0; i--) {
            const enum axis axis = batch_axes[i];

            if (!(axes >> axis & 1)) continue;
            at.at[axis] = rest % mesh->size[axis];
            rest /= mesh->size[axis];
        }
        members[m] = mesh_rank(mesh, order, &at);
    }
}

int mesh_batch_run(const struct mesh *mesh, axis_set axes)
{
    bool ends = false;
    int run = 1;

    for (int i = BATCH_AXES - 1; i >= 0; i--) {
        const enum axis axis = batch_axes[i];
        const int size = mesh->size[axis], inside = mesh->inside[axis];

        if (!(axes >> axis & 1) || size == 1) continue;
        if (inside == 0 || (ends && inside > 1)) return 0;
        run *= inside;
        ends = ends || inside < size;
    }
    return ends ? run : 0;
}

/* ---- ranks that divide the experts ---- */

static const enum axis expert_axes[] = {AXIS_EXPERT, AXIS_CONTEXT,
                                        AXIS_TENSOR};
enum { EXPERT_AXES = sizeof expert_axes / sizeof *expert_axes };

static axis_set divides_experts(const struct mesh *mesh)
{
    return mesh->folded | 1u << AXIS_EXPERT;
}

static status check_cut(const struct mesh *mesh, int64_t cut)
{
    const int ranks = mesh_expert_ranks(mesh);

    if (cut > ranks || ranks % cut != 0)
        FAIL(ERR_CONFIG, "mesh.expert_tensor: %" PRId64 " ranks cannot cut "
                         "each expert: they do not divide the %d ranks that "
                         "hold all experts (mesh.expert times the axes that "
                         "divide experts); a divisor of %d can, or 0: the "
                         "ranks of mesh.tensor do", cut, ranks, ranks);
    return OK;
}

status mesh_fold(struct mesh *mesh, int64_t expert_tensor,
                 bool expert_context)
{
    const int tensor = mesh->size[AXIS_TENSOR];

    mesh->folded = 0;
    mesh->expert_cut = 0;
    if (expert_context && mesh->size[AXIS_CONTEXT] > 1)
        mesh->folded |= 1u << AXIS_CONTEXT;
    if (expert_tensor == 0 || expert_tensor == tensor) return OK;
    if (tensor > 1) mesh->folded |= 1u << AXIS_TENSOR;
    TRY(check_cut(mesh, expert_tensor));
    mesh->expert_cut = (int)expert_tensor;
    return OK;
}

int mesh_expert_cut(const struct mesh *mesh)
{
    return mesh->expert_cut > 1 ? mesh->expert_cut : 1;
}

int mesh_expert_places(const struct mesh *mesh)
{
    return mesh_expert_ranks(mesh) / mesh_expert_cut(mesh);
}

int mesh_expert_place(const struct mesh *mesh, const struct place *place)
{
    return mesh_expert_rank(mesh, place) / mesh_expert_cut(mesh);
}

int mesh_expert_ranks(const struct mesh *mesh)
{
    return mesh_group_size(mesh, divides_experts(mesh));
}

int mesh_expert_rank(const struct mesh *mesh, const struct place *place)
{
    int rank = 0;

    for (int i = 0; i < EXPERT_AXES; i++) {
        const enum axis axis = expert_axes[i];

        if (divides_experts(mesh) >> axis & 1)
            rank = rank * mesh->size[axis] + place->at[axis];
    }
    return rank;
}

void mesh_expert_members(const struct mesh *mesh,
                         const struct mesh_order *order,
                         const struct place *place, int *members)
{
    const int size = mesh_expert_ranks(mesh);
    struct place at = *place;

    for (int m = 0; m < size; m++) {
        int rest = m;

        for (int i = EXPERT_AXES - 1; i >= 0; i--) {
            const enum axis axis = expert_axes[i];

            if (!(divides_experts(mesh) >> axis & 1)) continue;
            at.at[axis] = rest % mesh->size[axis];
            rest /= mesh->size[axis];
        }
        members[m] = mesh_rank(mesh, order, &at);
    }
}

/* ---- nodes ---- */

/* Nodes divide the ranks of one axis, and those of slower axes lie on several
 * nodes each: then all groups look alike. */
static bool find_inside(struct mesh *mesh, const struct mesh_order *order)
{
    int left = mesh->node;

    for (int i = order->count - 1; i >= 0; i--) {
        const enum axis axis = order->axis[i];
        const int size = mesh->size[axis];

        mesh->inside[axis] = left < size ? left : size;
        if (left >= size ? left % size != 0 : size % left != 0) return false;
        left = left > size ? left / size : 1;
    }
    return true;
}

static bool spans_nodes(const struct mesh *mesh)
{
    for (int i = 0; i < EXPERT_AXES; i++) {
        const enum axis axis = expert_axes[i];

        if (divides_experts(mesh) >> axis & 1 &&
            mesh->inside[axis] < mesh->size[axis])
            return true;
    }
    return false;
}

static status choose_exchange(struct mesh *mesh, bool even,
                              const char *exchange)
{
    const bool spans = mesh->node > 0 && even && spans_nodes(mesh);

    mesh->relays = spans && strcmp(exchange, "flat") != 0;
    if (strcmp(exchange, "auto") == 0 || strcmp(exchange, "flat") == 0)
        return OK;
    if (strcmp(exchange, "two_level") != 0)
        FAIL(ERR_CONFIG, "moe.exchange: %s is not auto, flat or two_level",
             exchange);
    if (spans || mesh_expert_ranks(mesh) == 1) return OK;
    if (mesh->node == 0)
        FAIL(ERR_CONFIG, "moe.exchange: two_level needs nodes, and all ranks "
                         "are on one; mesh.node=%d makes two of them, auto and "
                         "flat work", (mesh_ranks(mesh) + 1) / 2);
    if (!even)
        FAIL(ERR_CONFIG, "moe.exchange: two_level with mesh.node=%d, which "
                         "cuts an axis of the mesh in unequal parts; auto and "
                         "flat work", mesh->node);
    FAIL(ERR_CONFIG, "moe.exchange: two_level, but the %d ranks that divide "
                     "experts are on one node (mesh.node=%d); auto and flat "
                     "work", mesh_expert_ranks(mesh), mesh->node);
}

status mesh_nodes(struct mesh *mesh, const struct mesh_order *order, int node,
                  const char *exchange)
{
    const int ranks = mesh_ranks(mesh);

    if (node > 0 && node < ranks && ranks % node != 0) {
        int near = node;

        while (ranks % near != 0) near--;
        FAIL(ERR_CONFIG, "mesh.node: nodes of %d ranks do not divide the %d "
                         "ranks; %d does", node, ranks, near);
    }
    mesh->node = node < ranks ? node : 0;
    memset(mesh->inside, 0, sizeof mesh->inside);
    const bool even = mesh->node == 0 || find_inside(mesh, order);

    if (!even) memset(mesh->inside, 0, sizeof mesh->inside);
    return choose_exchange(mesh, even, exchange);
}

int mesh_expert_nodes(const struct mesh *mesh)
{
    int nodes = 1;

    for (int i = 0; i < EXPERT_AXES && mesh->relays; i++) {
        const enum axis axis = expert_axes[i];

        if (divides_experts(mesh) >> axis & 1)
            nodes *= mesh->size[axis] / mesh->inside[axis];
    }
    return nodes;
}

struct expert_seat mesh_expert_seat(const struct mesh *mesh, int rank)
{
    struct expert_seat seat = {0, 0};
    int nodes = 1, places = 1;

    for (int i = EXPERT_AXES - 1; i >= 0; i--) {
        const enum axis axis = expert_axes[i];
        const int size = mesh->size[axis];
        const int inside = mesh->inside[axis] > 0 ? mesh->inside[axis] : size;

        if (!(divides_experts(mesh) >> axis & 1)) continue;
        seat.node += rank % size / inside * nodes;
        seat.place += rank % size % inside * places;
        nodes *= size / inside;
        places *= inside;
        rank /= size;
    }
    return seat;
}

int mesh_expert_run(const struct mesh *mesh)
{
    const int ranks = mesh_expert_ranks(mesh);
    const int each = ranks / mesh_expert_nodes(mesh);

    if (!mesh->relays) return 0;
    for (int m = 0; m < ranks; m++) {
        const struct expert_seat seat = mesh_expert_seat(mesh, m);

        if (seat.node * each + seat.place != m) return 0;
    }
    return each;
}

int mesh_axis_group_size(const struct mesh *mesh, enum axis axis)
{
    return axis == AXIS_EXPERT ? mesh_expert_ranks(mesh) : mesh->size[axis];
}

int mesh_axis_group_rank(const struct mesh *mesh, const struct place *place,
                         enum axis axis)
{
    return axis == AXIS_EXPERT ? mesh_expert_rank(mesh, place)
                               : place->at[axis];
}

const char *mesh_axis_group_name(const struct mesh *mesh, enum axis axis)
{
    return axis == AXIS_EXPERT && mesh->folded != 0 ? "experts"
                                                    : axis_names[axis];
}

struct group_id mesh_axis_group_id(const struct mesh *mesh, enum axis axis)
{
    const bool folded = axis == AXIS_EXPERT && mesh->folded != 0;

    return (struct group_id){folded ? GROUP_EXPERTS : GROUP_AXIS, (int)axis};
}

struct group_id mesh_group_id(const struct mesh *mesh, axis_set axes)
{
    axis_set longer = 0;
    int axis = 0, count = 0;

    for (int i = AXIS_NONE + 1; i < AXIS_COUNT; i++)
        if (axes >> i & 1 && mesh->size[i] > 1) {
            longer |= 1u << i;
            axis = i;
            count++;
        }
    if (mesh_is_batch(mesh, axes))
        return (struct group_id){GROUP_BATCH, (int)longer};
    return count == 1 ? (struct group_id){GROUP_AXIS, axis}
                      : (struct group_id){GROUP_AXES, (int)longer};
}

bool mesh_is_batch(const struct mesh *mesh, axis_set axes)
{
    return axes >> AXIS_DATA & 1 && axes >> AXIS_SHARD & 1 &&
           (axes >> AXIS_EXPERT & 1 || mesh->size[AXIS_EXPERT] == 1);
}

void mesh_text(const struct mesh *mesh, char *out, size_t bytes)
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < MESH_AXES; i++) {
        const enum axis a = mesh_order_default.axis[i];

        if (mesh->size[a] == 1 || used >= bytes) continue;
        used += (size_t)snprintf(out + used, bytes - used, "%s%s %d",
                                 used > 0 ? " x " : "", axis_names[a],
                                 mesh->size[a]);
    }
    if (used == 0) snprintf(out, bytes, "data 1");
}

static status fail_product(const struct mesh *mesh, int64_t product,
                           int ranks)
{
    char found[MESH_TEXT_BYTES];

    mesh_text(mesh, found, sizeof found);
    FAIL(ERR_CONFIG, "mesh: %s is %" PRId64 " ranks, but there %s %d", found,
         product, ranks == 1 ? "is" : "are", ranks);
}

status mesh_resolve(struct mesh *mesh, int ranks)
{
    enum axis filled = AXIS_NONE;
    int64_t product = 1;

    mesh->size[AXIS_NONE] = 1;
    for (int a = AXIS_NONE + 1; a < AXIS_COUNT; a++) {
        int *size = &mesh->size[a];

        if (*size == 0) *size = 1;
        if (*size == MESH_AUTO) {
            if (filled != AXIS_NONE)
                FAIL(ERR_CONFIG, "mesh: both %s and %s are auto; one axis can "
                     "be", axis_names[filled], axis_names[a]);
            filled = (enum axis)a;
            *size = 1;
        }
        if (*size < 1 || *size > MESH_RANKS_MAX ||
            product * *size > MESH_RANKS_MAX)
            FAIL(ERR_CONFIG, "mesh.%s: %d; sizes are 1 or more, at most %d "
                 "ranks in all, or -1 on one axis for what is left",
                 axis_names[a], *size, MESH_RANKS_MAX);
        product *= *size;
    }
    if (filled != AXIS_NONE && ranks % product == 0) {
        mesh->size[filled] = (int)(ranks / product);
        return OK;
    }
    return product == ranks ? OK : fail_product(mesh, product, ranks);
}

void mesh_place(const struct mesh *mesh, const struct mesh_order *order,
                int rank, struct place *out)
{
    *out = (struct place){{0}};
    for (int i = order->count - 1; i >= 0; i--) {
        out->at[order->axis[i]] = rank % mesh->size[order->axis[i]];
        rank /= mesh->size[order->axis[i]];
    }
    CHECK(rank == 0);
}

int mesh_rank(const struct mesh *mesh, const struct mesh_order *order,
              const struct place *place)
{
    int rank = 0;

    for (int i = 0; i < order->count; i++)
        rank = rank * mesh->size[order->axis[i]] + place->at[order->axis[i]];
    return rank;
}

int mesh_members(const struct mesh *mesh, const struct mesh_order *order,
                 int rank, axis_set axes, int *members)
{
    const int size = mesh_group_size(mesh, axes);
    struct place place;
    int mine = 0;

    mesh_place(mesh, order, rank, &place);
    for (int m = 0; m < size; m++) {
        int rest = m;

        for (int i = order->count - 1; i >= 0; i--) {
            const enum axis a = order->axis[i];

            if (!(axes >> a & 1)) continue;
            place.at[a] = rest % mesh->size[a];
            rest /= mesh->size[a];
        }
        members[m] = mesh_rank(mesh, order, &place);
        if (members[m] == rank) mine = m;
    }
    return mine;
}

static void axes_label(axis_set axes, char label[COMM_LABEL_BYTES])
{
    size_t used = 0;

    snprintf(label, COMM_LABEL_BYTES, "self");
    for (int i = 0; i < MESH_AXES && used < COMM_LABEL_BYTES; i++) {
        const enum axis a = mesh_order_default.axis[i];

        if (axes >> a & 1)
            used += (size_t)snprintf(label + used, COMM_LABEL_BYTES - used,
                                     "%s%s", used > 0 ? "+" : "",
                                     axis_names[a]);
    }
}

void mesh_batch_label(const struct mesh *mesh, axis_set axes,
                      char label[COMM_LABEL_BYTES])
{
    axis_set longer = 0;

    for (int a = AXIS_NONE + 1; a < AXIS_COUNT; a++)
        if (axes >> a & 1 && mesh->size[a] > 1) longer |= 1u << a;
    if (mesh_is_batch(mesh, axes)) snprintf(label, COMM_LABEL_BYTES, "batch");
    else axes_label(longer, label);
}

struct batch_place mesh_batch_place(const struct mesh *mesh,
                                    const struct place *place, axis_set axes)
{
    struct batch_place out = {.id = mesh_group_id(mesh, axes),
                              .size = mesh_group_size(mesh, axes),
                              .rank = mesh_batch_index(mesh, place, axes)};

    mesh_batch_label(mesh, axes, out.label);
    return out;
}

status mesh_group_build(struct group *group, const struct group *world,
                        const struct mesh *mesh,
                        const struct mesh_order *order, axis_set axes)
{
    const int size = mesh_group_size(mesh, axes);
    char label[COMM_LABEL_BYTES];
    int *members;
    status result;

    *group = (struct group){0};
    axes_label(axes, label);
    TRY(memory_take((size_t)size, sizeof *members, (void **)&members));
    mesh_members(mesh, order, world->rank, axes, members);
    result = group_build(group, world, label, members, size);
    group->id = mesh_group_id(mesh, axes);
    memory_free(members);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}
