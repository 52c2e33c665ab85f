/* SPDX-License-Identifier: Apache-2.0 */
/* test_numa_nodes.c - mirrors src/base/numa_nodes.c. */
#include "base/numa_nodes.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/test.h"

static const struct {
    const char *list;
    int nodes;
} lists[] = {
    {"0\n", 1},   {"0-1\n", 2},     {"0,2-3\n", 3}, {"1-3,5,8-9\n", 6},
    {"0-3", 4},   {"", 1},          {"\n", 1},      {"three\n", 1},
    {"2-0\n", 1}, {"0-999999\n", 1}, {"0;1\n", 1},  {"0,\n", 1},
};

TEST(lists_of_nodes)
{
    static const char *const folders[] = {"devices", "devices/system",
                                          "devices/system/node"};
    char root[] = "/tmp/nodes-XXXXXX", path[64];

    CHECK(mkdtemp(root) != NULL);
    EQUAL_INT(nodes_online(root), 1); /* nothing is said */
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        EQUAL_INT(mkdir(path, 0700), 0);
    }
    snprintf(path, sizeof path, "%s/devices/system/node/online", root);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        FILE *file = fopen(path, "w");

        CHECK(file != NULL);
        fputs(lists[i].list, file);
        fclose(file);
        EQUAL_INT(nodes_online(root), lists[i].nodes);
    }
    unlink(path);
    for (int i = 2; i >= 0; i--) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        rmdir(path);
    }
    rmdir(root);
}

TEST_MAIN(lists_of_nodes)
