/* SPDX-License-Identifier: Apache-2.0 */
/* test_huge_pages.c - mirrors src/base/huge_pages.c. */
#include "base/huge_pages.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/test.h"

/* Any number of pages; what was asked for besides is free again, so a mapping
 * with MAP_FIXED_NOREPLACE right behind it succeeds. */
TEST(memory_begins_at_a_huge_page)
{
    static const size_t sizes[] = {4096, HUGE_PAGE_BYTES, 5 << 20};

    for (int i = 0; i < 3; i++) {
        char *at = huge_pages_map(sizes[i], PROT_READ | PROT_WRITE);
        void *behind;

        CHECK(at != NULL && (uintptr_t)at % HUGE_PAGE_BYTES == 0);
        CHECK(at[0] == 0 && at[sizes[i] - 1] == 0);
        memset(at, 1, sizes[i]);
        behind = mmap(at + sizes[i], 4096, PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(behind == at + sizes[i]);
        munmap(behind, 4096);
        munmap(at, sizes[i]);
    }
    CHECK(huge_pages_map(SIZE_MAX / 2, PROT_NONE) == NULL);
    EQUAL_INT(huge_pages_round(1), HUGE_PAGE_BYTES);
    EQUAL_INT(huge_pages_round(HUGE_PAGE_BYTES), HUGE_PAGE_BYTES);
}

TEST_MAIN(memory_begins_at_a_huge_page)
