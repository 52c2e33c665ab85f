/* SPDX-License-Identifier: Apache-2.0 */
/* test_first_touch.c - mirrors src/base/first_touch.c. */
#include "base/first_touch.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/test.h"

enum { MAPPED = 9 << 20 };

/* Whole pages of [first, first + bytes) are there, contents as they were, and
 * what lies outside is not. */
static void check_area(struct threads *threads, size_t first, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char there[MAPPED / 4096];
    char *at = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED && page >= 4096);
    madvise(at, MAPPED, MADV_NOHUGEPAGE);
    at[MAPPED / 2] = 'x';
    first_touch(threads, at + first, bytes);
    EQUAL_INT(mincore(at, MAPPED, there), 0);
    for (size_t i = 0; i < MAPPED / page; i++) {
        const bool inside = i * page >= first &&
                            (i + 1) * page <= first + bytes;
        const bool written = i == MAPPED / 2 / page;

        EQUAL_INT(there[i] & 1, inside || written);
    }
    for (size_t i = 0; i < MAPPED; i += page)
        EQUAL_INT(at[i], i == MAPPED / 2 ? 'x' : 0);
    munmap(at, MAPPED);
}

TEST(pages_of_an_area)
{
    static const struct {
        size_t first, bytes;
    } areas[] = {{0, MAPPED}, {64, MAPPED - 64}, {5000, 3 << 20}, {100, 200},
                 {4096, 4096}, {1, 4096}, {(2 << 20) - 1, 2}, {0, 0}};

    for (int count = 1; count <= 3; count++) {
        struct threads *threads;

        IS_OK(threads_build(&threads, count));
        for (size_t i = 0; i < sizeof areas / sizeof *areas; i++)
            check_area(threads, areas[i].first, areas[i].bytes);
        threads_free(threads);
    }
}

TEST_MAIN(pages_of_an_area)
