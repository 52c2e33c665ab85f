/* SPDX-License-Identifier: Apache-2.0 */
/* test_arena.c - mirrors src/base/arena.c. */
#include <sys/mman.h>
#include "base/arena.h"
#include "base/lent_memory.h"

#include "tests/test.h"

static bool all_zero(const void *bytes, size_t length)
{
    const char *at = bytes;

    while (length > 0 && *at == 0) {
        at++;
        length--;
    }
    return length == 0;
}

TEST(a_growing_arena_gives_zeroed_aligned_pieces)
{
    struct arena arena;
    char *pieces[300];
    size_t used = 0;

    arena_init(&arena, "test", 0);
    for (size_t i = 0; i < 300; i++) {
        const size_t bytes = i * i * 7; /* beyond the largest block's start */
        void *piece;

        IS_OK(arena_take(&arena, bytes, &piece));
        EQUAL_INT((uintptr_t)piece % ARENA_ALIGN, 0);
        CHECK(all_zero(piece, bytes));
        memset(piece, (int)i + 1, bytes);
        pieces[i] = piece;
        used += (bytes > 0 ? bytes + 63 : 64) / 64 * 64;
    }
    for (size_t i = 1; i < 300; i++) { /* no piece overlaps another */
        EQUAL_INT((unsigned char)pieces[i][0], (i + 1) & 0xFF);
        EQUAL_INT((unsigned char)pieces[i][i * i * 7 - 1], (i + 1) & 0xFF);
    }
    EQUAL_INT(arena.used, used);
    EQUAL_INT(arena.peak, used);
    CHECK(arena_bytes_out() >= used);
    arena_reset(&arena);
    EQUAL_INT(arena.used, 0);
    EQUAL_INT(arena.peak, used);
    EQUAL_INT(arena_bytes_out(), test_bytes_before);
    arena_free(&arena);
    arena_free(&arena); /* a zeroed one */
}

TEST(a_limit_is_kept)
{
    struct arena arena;
    void *piece;

    arena_init(&arena, "tables", 1000);
    IS_OK(arena_take(&arena, 100, &piece));
    FAILS(arena_take(&arena, 900, &piece), ERR_MEMORY,
          "tables: asked for 900 bytes, 872 bytes of 1000 bytes left");
    CHECK(piece == NULL);
    IS_OK(arena_take(&arena, 800, &piece));
    arena_free(&arena);
}

TEST(a_planned_arena_gives_exactly_what_was_planned)
{
    enum { PLANNED = 3 << 20 };
    struct arena arena;
    int64_t allocations;
    void *first, *piece;

    IS_OK(arena_init_planned(&arena, "plan", PLANNED));
    allocations = arena_allocations();
    for (int life = 0; life < 2; life++) {
        IS_OK(arena_take(&arena, PLANNED / 2, &piece));
        CHECK(all_zero(piece, PLANNED / 2));
        memset(piece, 1, PLANNED / 2);
        if (life == 0) first = piece;
        CHECK(piece == first);
        IS_OK(arena_take(&arena, PLANNED / 2, &piece));
        CHECK(all_zero(piece, PLANNED / 2));
        memset(piece, 1, PLANNED / 2);
        FAILS(arena_take(&arena, 1, &piece), ERR_MEMORY,
              "plan: asked for 1 byte, 0 bytes of 3.0 MiB left");
        EQUAL_INT(arena.peak, PLANNED);
        arena_reset(&arena);
    }
    EQUAL_INT(arena_allocations(), allocations);
    arena_free(&arena);
    IS_OK(arena_init_planned(&arena, "empty", 0));
    arena_free(&arena);
}

TEST(what_no_machine_has_is_refused)
{
    struct arena arena;
    void *piece;

    FAILS(arena_init_planned(&arena, "plan", (size_t)1 << 55), ERR_MEMORY,
          "plan needs 32.0 PiB, this machine has ");
    arena_free(&arena);
    FAILS(arena_init_planned(&arena, "plan", SIZE_MAX), ERR_MEMORY, "bytes");
    arena_free(&arena);
    arena_init(&arena, "parse", 0);
    FAILS(arena_take(&arena, SIZE_MAX - 100, &piece), ERR_MEMORY, "");
    FAILS(arena_take_array(&arena, (size_t)1 << 40, (size_t)1 << 30, &piece),
          ERR_MEMORY, "items of 1073741824 bytes do not fit in memory");
    FAILS(memory_take((size_t)1 << 40, (size_t)1 << 30, &piece), ERR_MEMORY,
          "do not fit");
    FAILS(memory_take(SIZE_MAX - 4, 1, &piece), ERR_MEMORY, "do not fit");
    CHECK(piece == NULL);
    arena_free(&arena);
}

TEST(texts_are_copied)
{
    struct arena arena;
    char *copy;

    arena_init(&arena, "test", 0);
    IS_OK(arena_copy_text(&arena, "words", &copy));
    EQUAL_TEXT(copy, "words");
    IS_OK(arena_copy_text(&arena, "", &copy));
    EQUAL_TEXT(copy, "");
    arena_free(&arena);
}

TEST(the_counted_family_counts)
{
    const int64_t allocations = arena_allocations();
    void *memory = NULL;

    IS_OK(memory_grow(&memory, 3, 100));
    EQUAL_INT(arena_bytes_out(), test_bytes_before + 300);
    CHECK(all_zero(memory, 300));
    memset(memory, 1, 300);
    IS_OK(memory_grow(&memory, 5, 100));
    CHECK(((char *)memory)[299] == 1);
    CHECK(all_zero((char *)memory + 300, 200));
    EQUAL_INT(arena_bytes_out(), test_bytes_before + 500);
    IS_OK(memory_grow(&memory, 1, 10));
    EQUAL_INT(arena_bytes_out(), test_bytes_before + 10);
    EQUAL_INT(arena_allocations() - allocations, 3);
    memory_free(memory);
    memory_free(NULL);
    EQUAL_INT(arena_bytes_out(), test_bytes_before);
}

static bool is_mapped(void *at)
{
    unsigned char page;
    const uintptr_t start = (uintptr_t)at & ~(uintptr_t)4095;

    return mincore((void *)start, 1, &page) == 0;
}

/* Memory that MPI may still read stays; the next call frees it. */
TEST(memory_that_is_lent_stays)
{
    struct arena arena, other;
    void *piece, *memory;

    for (int lends = 0; lends < 2; lends++) {
        IS_OK(arena_init_planned(&arena, "test", (size_t)1 << 22));
        IS_OK(arena_init_planned(&other, "other", (size_t)1 << 22));
        IS_OK(arena_take(&arena, 100, &piece));
        IS_OK(memory_take(1, 100, &memory));
        memset(memory, 7, 100);
        memset(piece, 7, 100);
        lent_add(lends);
        arena_free(&arena);
        memory_free(memory);
        EQUAL_INT(is_mapped(piece), lends);
        if (lends) CHECK(((char *)memory)[50] == 7);
        if (lends) CHECK(((char *)piece)[50] == 7);
        lent_add(-lends);
        arena_free(&other);
        EQUAL_INT(is_mapped(piece), 0);
    }
    EQUAL_INT(arena_bytes_out(), test_bytes_before);
}

TEST_MAIN(memory_that_is_lent_stays,
          a_growing_arena_gives_zeroed_aligned_pieces, a_limit_is_kept,
          a_planned_arena_gives_exactly_what_was_planned,
          what_no_machine_has_is_refused, texts_are_copied,
          the_counted_family_counts)
