/* SPDX-License-Identifier: Apache-2.0 */
/* search_sets.c - divisions inside a node that search tries. */
#include "planner/search_sets.h"

const struct search_set search_sets[SEARCH_SETS] = {
    {"zero 1 of shards", 1, false, false},
    {"zero 2 of shards", 2, false, false},
    {"zero 2 of shards, all states", 2, true, false},
    {"hsdp", 3, false, false},
    {"hsdp, all states", 3, true, false},
    {"hsdp, all gradients", 3, true, true}};

int search_set_of(const struct layout *layout)
{
    int i = 0;

    while (search_sets[i].zero != layout->zero ||
           search_sets[i].states != layout->parts[1] ||
           search_sets[i].gradients != layout->parts[2])
        i++;
    return i;
}
