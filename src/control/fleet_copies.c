/* SPDX-License-Identifier: Apache-2.0 */
/* fleet_copies.c - which node keeps copies of which, and what that survives. */
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "control/fleet.h"

enum {
    MOVE_MS = 30000,
    TOGETHER_MS = 100 /* losses that come together are told one by one */
};

/* ---- partners ---- */

static bool is_here(const struct node *node)
{
    return node->wire.descriptor >= 0;
}

static bool is_paired(const struct fleet *fleet, int node)
{
    const int partner = fleet->nodes[node].partner;

    return partner >= 0 && is_here(&fleet->nodes[partner]) &&
           fleet->nodes[partner].partner == node;
}

/* The last node of an odd number joins a pair: a keeps for b, b for c, c for
 * a. */
static void make_three(struct fleet *fleet, int odd)
{
    for (int a = 0; a < fleet->count; a++) {
        const int b = fleet->nodes[a].partner;

        if (a == odd || !is_here(&fleet->nodes[a]) || !is_paired(fleet, a))
            continue;
        fleet->nodes[b].partner = odd;
        fleet->nodes[odd].partner = a;
        return;
    }
}

/* Nodes that are lost together are told one after the other. The first loss may
 * give the second node a new partner, which has no copies yet; the one before
 * still has them. */
int fleet_copies_of(const struct fleet *fleet, int index)
{
    const struct node *node = &fleet->nodes[index];

    return node->before >= 0 && is_here(&fleet->nodes[node->before]) &&
                   clock_ns() - node->paired_ns <
                       (int64_t)TOGETHER_MS * 1000000
               ? node->before : node->partner;
}

static void note_partners(struct fleet *fleet, const int *before)
{
    for (int i = 0; i < fleet->count; i++)
        if (fleet->nodes[i].partner != before[i]) {
            fleet->nodes[i].before = before[i];
            fleet->nodes[i].paired_ns = clock_ns();
        }
}

/* Pairs of nodes keep copies for each other: of all ways to keep one more copy
 * this one survives the most losses of two nodes. Pairs that stand stay. */
void fleet_pair(struct fleet *fleet)
{
    int before[NODES_MOST], odd = -1;

    for (int i = 0; i < fleet->count; i++)
        before[i] = fleet->nodes[i].partner;
    for (int i = 0; i < fleet->count; i++)
        if (!is_here(&fleet->nodes[i]) || !is_paired(fleet, i))
            fleet->nodes[i].keeps = -1;
        else
            fleet->nodes[i].keeps = fleet->nodes[i].partner;
    for (int i = 0; i < fleet->count; i++)
        fleet->nodes[i].partner = fleet->nodes[i].keeps;
    for (int i = 0; i < fleet->count; i++) {
        if (!is_here(&fleet->nodes[i]) || fleet->nodes[i].partner >= 0)
            continue;
        if (odd < 0) {
            odd = i;
            continue;
        }
        fleet->nodes[i].partner = odd;
        fleet->nodes[odd].partner = i;
        odd = -1;
    }
    if (odd >= 0) make_three(fleet, odd);
    note_partners(fleet, before);
    fleet->beat_ns = 0; /* they are told at once */
}

/* ---- moves ---- */

/* A node that holds copies of the rank now has been asked to send them to the
 * node that will be the rank. */
static int ask_moves(struct fleet *fleet)
{
    int asked = 0;

    for (int i = 0; i < fleet->crew->size; i++) {
        const int home = fleet->home[i], to = fleet->at[i].node;
        struct node_move said = {.rank = i};

        if (home < 0 || home == to || !is_here(&fleet->nodes[home])) continue;
        memcpy(said.name, fleet->nodes[to].name, sizeof said.name);
        memcpy(said.address, fleet->nodes[to].address, sizeof said.address);
        if (wire_put(&fleet->nodes[home].wire, WIRE_MOVE, &said,
                     sizeof said) == OK)
            asked++;
        else
            status_clear();
    }
    return asked;
}

void fleet_move(struct fleet *fleet)
{
    const int losses = fleet->losses;
    int64_t end = clock_ns() + (int64_t)MOVE_MS * 1000000;
    int moved = 0;

    fleet->moved = 0;
    const int asked = ask_moves(fleet);

    /* A node that is lost meanwhile is the next incident's. */
    while (fleet->moved < asked && clock_ns() < end &&
           fleet->losses == losses) {
        fleet_look(fleet, 20);
        if (fleet->moved == moved) continue;
        moved = fleet->moved;
        end = clock_ns() + (int64_t)MOVE_MS * 1000000;
    }
    if (fleet->moved < asked && fleet->losses == losses)
        fprintf(stderr, "copies    of %d ranks did not come to their new node "
                "within %d s\n", asked - fleet->moved, MOVE_MS / 1000);
}

/* ---- what is survived ---- */

/* Whether every node has copies on one that is left. */
static bool survives_both(const struct fleet *fleet, int a, int b)
{
    return fleet->nodes[a].partner != b && fleet->nodes[b].partner != a;
}

void fleet_survives(const struct fleet *fleet, char out[256])
{
    const int here = fleet_nodes(fleet);
    int pairs = 0, lived = 0;
    size_t used;
    bool cut = false;
    char lost[128] = "";

    out[0] = '\0';
    if (here < 2) return;
    for (int a = 0; a < fleet->count; a++)
        for (int b = a + 1; b < fleet->count; b++) {
            const size_t at = strlen(lost);

            if (!is_here(&fleet->nodes[a]) || !is_here(&fleet->nodes[b]))
                continue;
            pairs++;
            if (survives_both(fleet, a, b)) lived++;
            else if (at < 80)
                snprintf(lost + at, sizeof lost - at, "%s%.20s and %.20s",
                         at > 0 ? ", " : "", fleet->nodes[a].name,
                         fleet->nodes[b].name);
            else cut = true;
        }
    used = (size_t)snprintf(out, 256, "copies on %d nodes: any one may be "
                            "lost; of two at once %d of %d pairs", here, lived,
                            pairs);
    if (lost[0] != '\0' && used < 256)
        snprintf(out + used, 256 - used, ", not %s%s", lost,
                 cut ? " ..." : "");
}
