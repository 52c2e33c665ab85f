/* SPDX-License-Identifier: Apache-2.0 */
/* test_blocks.c - mirrors src/checkpoint/blocks.c. */
#include <stdatomic.h>
#include "tests/test.h"
#include "checkpoint/blocks.h"
#include "checkpoint/manifest.h"

enum { BLOCKS = 100 };

struct counting {
    _Atomic int seen[BLOCKS];
    int64_t bad[2]; /* blocks that fail */
};

static status count_block(void *argument, int64_t block, unsigned char *buffer)
{
    struct counting *counting = argument;

    /* The buffer is this thread's alone, all of it. */
    memset(buffer, (int)block, CHECKPOINT_BLOCK_BYTES);
    atomic_fetch_add(&counting->seen[block], 1);
    if (block == counting->bad[0] || block == counting->bad[1])
        FAIL(ERR_FORMAT, "block %lld", (long long)block);
    for (int i = 0; i < CHECKPOINT_BLOCK_BYTES; i += 4096)
        CHECK(buffer[i] == (unsigned char)block);
    return OK;
}

TEST(each_block_once_on_any_number_of_threads)
{
    for (int count = 1; count <= 4; count++) {
        struct counting counting = {.bad = {-1, -1}};
        struct threads *threads = NULL;
        void *buffer = NULL;

        IS_OK(threads_build(&threads, count));
        IS_OK(memory_take((size_t)threads_count(threads),
                          CHECKPOINT_BLOCK_BYTES, &buffer));
        IS_OK(blocks_run(threads, buffer, BLOCKS, count_block, &counting));
        for (int i = 0; i < BLOCKS; i++) EQUAL_INT(counting.seen[i], 1);
        IS_OK(blocks_run(threads, buffer, 0, count_block, &counting));
        memory_free(buffer);
        threads_free(threads);
    }
}

/* The sentence of a thread reaches the caller: that of the lowest block. */
TEST(the_lowest_failure_comes_back)
{
    for (int count = 1; count <= 4; count++) {
        struct counting counting = {.bad = {99, 7}};
        struct threads *threads = NULL;
        void *buffer = NULL;

        IS_OK(threads_build(&threads, count));
        IS_OK(memory_take((size_t)threads_count(threads),
                          CHECKPOINT_BLOCK_BYTES, &buffer));
        FAILS(blocks_run(threads, buffer, BLOCKS, count_block, &counting),
              ERR_FORMAT, "block 7");
        memory_free(buffer);
        threads_free(threads);
    }
}

TEST_MAIN(each_block_once_on_any_number_of_threads,
          the_lowest_failure_comes_back)
