/* SPDX-License-Identifier: Apache-2.0 */
/* fleet_copies.c - which node keeps copies of which, and what that survives. */
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "control/copies_place.h"
#include "control/fleet.h"

enum { MOVE_MS = 30000 };

static bool is_here(const struct node *node)
{
    return node->wire.descriptor >= 0;
}

/* ---- where copies are ---- */

void fleet_unpaired(struct node *node)
{
    node->group = -1;
    for (int i = 0; i < PARTNERS_MOST; i++)
        node->partners[i] = node->holders[i] = -1;
}

void fleet_settle(struct fleet *fleet, int rank, int node)
{
    struct rank_home *home = &fleet->home[rank];

    *home = (struct rank_home){.node = node};
    for (int i = 0; i < PARTNERS_MOST; i++) home->others[i] = -1;
}

/* Nodes that are lost together are told one after the other. The first loss may
 * give the second node another partner, which has no copies until its agent
 * says so. */
void fleet_held(struct fleet *fleet, int index, uint64_t turn, uint32_t held)
{
    struct node *node = &fleet->nodes[index];
    int now[PARTNERS_MOST], count = 0;
    bool all = true;

    if (turn != node->turn) return;
    for (int i = 0; i < PARTNERS_MOST; i++) {
        const bool has = (held >> i & 1) != 0 && node->partners[i] >= 0;

        if (has) now[count++] = node->partners[i];
        all = all && (has || node->partners[i] < 0);
    }
    if (count == 0) return;
    for (int i = 0; i < PARTNERS_MOST && !all && count < PARTNERS_MOST; i++)
        if (node->holders[i] >= 0 && node->holders[i] != now[0])
            now[count++] = node->holders[i];
    for (int i = 0; i < PARTNERS_MOST; i++)
        node->holders[i] = i < count ? now[i] : -1;
}

void fleet_homeless(struct fleet *fleet, int index)
{
    for (int rank = 0; rank < fleet->most; rank++) {
        struct rank_home *home = &fleet->home[rank];

        if (home->node != index) continue;
        if (!home->lost)
            memcpy(home->others, fleet->nodes[index].holders,
                   sizeof home->others);
        home->lost = true;
        home->node = -1;
        for (int i = 0; i < PARTNERS_MOST && home->node < 0; i++)
            if (home->others[i] >= 0 &&
                is_here(&fleet->nodes[home->others[i]]))
                home->node = home->others[i];
    }
}

/* ---- partners ---- */

/* Groups of as many nodes as there are copies, all of them here, stand. */
static void break_groups(struct fleet *fleet)
{
    int here[NODES_MOST] = {0}, all[NODES_MOST] = {0};

    for (int i = 0; i < fleet->count; i++) {
        const struct node *node = &fleet->nodes[i];

        if (node->group < 0) continue;
        all[node->group]++;
        here[node->group] += is_here(node);
    }
    for (int i = 0; i < fleet->count; i++) {
        struct node *node = &fleet->nodes[i];

        if (node->group >= 0 && (here[node->group] != fleet->replicas ||
                                 all[node->group] != fleet->replicas))
            node->group = -1;
    }
}

static bool is_loose(const struct node *node)
{
    return is_here(node) && node->group < 0;
}

/* Nodes without a group, those that had one together beside each other. */
static int find_loose(const struct fleet *fleet, const int *before,
                      int loose[NODES_MOST])
{
    int count = 0;

    for (int group = 0; group < fleet->count; group++)
        for (int i = 0; i < fleet->count; i++)
            if (is_loose(&fleet->nodes[i]) && before[i] == group)
                loose[count++] = i;
    for (int i = 0; i < fleet->count; i++)
        if (is_loose(&fleet->nodes[i]) && before[i] < 0) loose[count++] = i;
    return count;
}

static int free_group(const struct fleet *fleet)
{
    for (int group = 0;; group++) {
        bool used = false;

        for (int i = 0; i < fleet->count; i++)
            used = used || fleet->nodes[i].group == group;
        if (!used) return group;
    }
}

/* Nodes that are left over join the group that was made last, or one that
 * stands. */
static void make_groups(struct fleet *fleet, const int *loose, int count)
{
    int group = -1, done = 0;

    for (int i = 0; i < fleet->count; i++)
        if (fleet->nodes[i].group > group) group = fleet->nodes[i].group;
    while (count - done >= fleet->replicas) {
        group = free_group(fleet);
        for (int i = 0; i < fleet->replicas; i++)
            fleet->nodes[loose[done++]].group = group;
    }
    if (group < 0) group = 0;
    while (done < count) fleet->nodes[loose[done++]].group = group;
}

/* Each keeps copies of those before it in the circle of its group. */
static void find_partners(const struct fleet *fleet, int index,
                          int partners[PARTNERS_MOST])
{
    int found = 0;

    for (int i = 0; i < PARTNERS_MOST; i++) partners[i] = -1;
    if (!is_here(&fleet->nodes[index])) return;
    for (int i = 1; i < fleet->count && found < fleet->replicas - 1; i++) {
        const int next = (index + i) % fleet->count;

        if (is_here(&fleet->nodes[next]) &&
            fleet->nodes[next].group == fleet->nodes[index].group)
            partners[found++] = next;
    }
}

/* Groups of nodes keep copies for each other: of all ways to keep as many
 * copies this one survives the most losses (Wang et al. 2023, "GEMINI", 5.1).
 * Groups that stand stay. */
void fleet_pair(struct fleet *fleet)
{
    int before[NODES_MOST], loose[NODES_MOST], partners[PARTNERS_MOST];

    for (int i = 0; i < fleet->count; i++) before[i] = fleet->nodes[i].group;
    break_groups(fleet);
    make_groups(fleet, loose, find_loose(fleet, before, loose));
    for (int i = 0; i < fleet->count; i++) {
        struct node *node = &fleet->nodes[i];

        if (!is_here(node)) node->group = -1;
        find_partners(fleet, i, partners);
        if (memcmp(node->partners, partners, sizeof partners) == 0) continue;
        memcpy(node->partners, partners, sizeof partners);
        node->turn++;
    }
    fleet->beat_ns = 0; /* they are told at once */
    fleet->paired = true;
}

/* ---- moves ---- */

/* A node that holds copies of the rank now has been asked to send them to the
 * node that will be the rank. */
static int ask_moves(struct fleet *fleet)
{
    int asked = 0;

    for (int i = 0; i < fleet->crew->size; i++) {
        const int home = fleet->home[i].node, to = fleet->at[i].node;
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

/* Sets of nodes that are lost at once. */
struct losses {
    int at_once, sets, survived;
    char lost[128];        /* sets that are not survived, as far as they fit */
    bool cut;
};

/* Whether every node of the set has copies on one that is left. */
static bool is_survived(const struct fleet *fleet, const int *set, int count)
{
    for (int i = 0; i < count; i++) {
        const int *partners = fleet->nodes[set[i]].partners;
        bool whole = false;

        for (int j = 0; j < PARTNERS_MOST; j++) {
            bool left = partners[j] >= 0;

            for (int k = 0; k < count; k++)
                left = left && partners[j] != set[k];
            whole = whole || left;
        }
        if (!whole) return false;
    }
    return true;
}

static void count_set(const struct fleet *fleet, const int *set,
                      struct losses *out)
{
    const size_t room = sizeof out->lost;
    size_t at = strlen(out->lost);

    out->sets++;
    if (is_survived(fleet, set, out->at_once)) {
        out->survived++;
        return;
    }
    out->cut = out->cut || at >= 80;
    if (at >= 80) return;
    for (int i = 0; i < out->at_once && at < room; i++)
        at += (size_t)snprintf(out->lost + at, room - at, "%s%.20s",
                               i > 0 ? " and " : at > 0 ? ", " : "",
                               fleet->nodes[set[i]].name);
}

/* Every set of `at_once` nodes that are here. */
static void count_losses(const struct fleet *fleet, struct losses *out)
{
    int set[PARTNERS_MOST + 1], used = 0, next = 0;

    while (used >= 0) {
        while (next < fleet->count && !is_here(&fleet->nodes[next])) next++;
        if (next == fleet->count) { /* the one before has had all behind it */
            if (--used >= 0) next = set[used] + 1;
            continue;
        }
        set[used] = next++;
        if (used + 1 < out->at_once) used++;
        else count_set(fleet, set, out);
    }
}

void fleet_survives(const struct fleet *fleet, char out[256])
{
    static const char *const numbers[] = {"no node", "one", "two", "three"};
    const int here = fleet_nodes(fleet);
    const int safe = (here < fleet->replicas ? here : fleet->replicas) - 1;
    struct losses losses = {.at_once = safe + 1};
    size_t used;

    out[0] = '\0';
    if (here < 2 || safe < 1) return;
    count_losses(fleet, &losses);
    used = (size_t)snprintf(out, 256, "copies on %d nodes: any %s may be "
                            "lost; of %s at once %d of %d %s", here,
                            numbers[safe], numbers[safe + 1], losses.survived,
                            losses.sets, safe == 1 ? "pairs" : "sets");
    if (losses.lost[0] != '\0' && used < 256)
        snprintf(out + used, 256 - used, ", not %s%s", losses.lost,
                 losses.cut ? " ..." : "");
}

void copies_place(int nodes, int replicas, int partners[][PARTNERS_MOST],
                  char survives[256])
{
    static struct fleet fleet;

    CHECK(nodes <= NODES_MOST);
    fleet = (struct fleet){.count = nodes, .replicas = replicas};
    for (int i = 0; i < nodes; i++) {
        fleet_unpaired(&fleet.nodes[i]);
        snprintf(fleet.nodes[i].name, sizeof fleet.nodes[i].name, "n%d", i);
    }
    fleet_pair(&fleet);
    for (int i = 0; i < nodes; i++)
        memcpy(partners[i], fleet.nodes[i].partners, sizeof partners[i]);
    fleet_survives(&fleet, survives);
}
