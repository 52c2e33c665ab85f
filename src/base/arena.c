/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - host memory with one lifetime.
 *
 * Blocks come from mmap: zeroed, page-aligned, and given back to the system at
 * once. A block opens with its own header, padded to ARENA_ALIGN. */
#include "base/arena.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/huge_pages.h"
#include "base/lent_memory.h"
#include "base/text.h"

#if defined(__SANITIZE_ADDRESS__)
#define POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISONS 1
#endif
#endif
#ifdef POISONS
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(bytes, length) \
    ((void)(bytes), (void)(length))
#define ASAN_UNPOISON_MEMORY_REGION(bytes, length) \
    ((void)(bytes), (void)(length))
#endif

enum {
    BLOCK_BYTES_FIRST = 1 << 16, /* a growing arena begins small and doubles */
    BLOCK_BYTES_MOST = 1 << 24
};

struct arena_block {
    struct lent lent; /* first; used when the block is freed */
    struct arena_block *next;
    size_t mapped; /* bytes of the whole mapping */
    size_t first;  /* bytes before the first piece, this header included */
    size_t used;   /* bytes from the start of the block */
    size_t dirty;  /* bytes below this may be other than zero */
};

enum { HEADER_BYTES = 64 };
_Static_assert(sizeof(struct arena_block) <= HEADER_BYTES, "header fits");

static _Atomic size_t bytes_out;
static _Atomic int64_t allocations;

static size_t physical_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);

    if (pages <= 0 || page <= 0) return SIZE_MAX;
    return (size_t)pages * (size_t)page;
}

static status round_up(size_t bytes, size_t multiple, size_t *out)
{
    if (bytes > SIZE_MAX - (multiple - 1))
        FAIL(ERR_MEMORY, "%zu bytes are more than any machine has", bytes);
    *out = (bytes + multiple - 1) / multiple * multiple;
    return OK;
}

/* Arrays that a loop walks together (weights, gradients, moments) should not
 * lie at distances that caches take for one place: large blocks start at
 * different lines of their first page. */
static size_t block_offset(size_t bytes)
{
    enum { STEP = 5 * ARENA_ALIGN, PLACES = 12 }; /* within a page */
    static _Atomic unsigned count;

    if (bytes < HUGE_PAGE_BYTES) return HEADER_BYTES;
    return HEADER_BYTES + STEP * (atomic_fetch_add(&count, 1) % PLACES);
}

static void *pages_take(size_t bytes)
{
    const int access = PROT_READ | PROT_WRITE;
    void *pages;

    if (bytes >= HUGE_PAGE_BYTES) return huge_pages_map(bytes, access);
    pages = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

static status block_map(struct arena *arena, size_t bytes)
{
    char asked[32], present[32];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t mapped, first = block_offset(bytes);
    struct arena_block *block;

    TRY(round_up(bytes, HEADER_BYTES, &mapped));
    if (mapped > physical_bytes() - first - page)
        FAIL(ERR_MEMORY, "%s needs %s, this machine has %s", arena->name,
             text_bytes(asked, bytes), text_bytes(present, physical_bytes()));
    TRY(round_up(mapped + first, page, &mapped));
    block = fault_due("memory.take") ? NULL : pages_take(mapped);
    if (block == NULL)
        FAIL(ERR_MEMORY, "%s: the system refused %s of memory", arena->name,
             text_bytes(asked, bytes));
    if (mapped >= HUGE_PAGE_BYTES) madvise(block, mapped, MADV_HUGEPAGE);
    *block = (struct arena_block){.next = arena->blocks, .mapped = mapped,
                                  .first = first, .used = first,
                                  .dirty = first};
    ASAN_POISON_MEMORY_REGION((char *)block + first, mapped - first);
    arena->blocks = block;
    atomic_fetch_add(&bytes_out, mapped);
    atomic_fetch_add(&allocations, 1);
    return OK;
}

static void block_unmap(struct lent *lent)
{
    munmap(lent, ((struct arena_block *)lent)->mapped);
}

static void blocks_unmap(struct arena *arena)
{
    while (arena->blocks != NULL) {
        struct arena_block *block = arena->blocks;

        arena->blocks = block->next;
        ASAN_UNPOISON_MEMORY_REGION(block, block->mapped);
        atomic_fetch_sub(&bytes_out, block->mapped);
        block->lent.give_back = block_unmap;
        lent_free(&block->lent);
    }
}

void arena_init(struct arena *arena, const char *name, size_t limit)
{
    *arena = (struct arena){.name = name, .limit = limit};
}

status arena_init_planned(struct arena *arena, const char *name, size_t bytes)
{
    *arena = (struct arena){.name = name};
    TRY(round_up(bytes, ARENA_ALIGN, &arena->planned));
    if (arena->planned == 0) arena->planned = ARENA_ALIGN;
    TRY(block_map(arena, arena->planned));
    return OK;
}

/* Makes sure that the first block has room for `bytes` (already rounded). */
static status make_room(struct arena *arena, size_t bytes)
{
    const struct arena_block *block = arena->blocks;
    size_t next = BLOCK_BYTES_FIRST;

    if (block != NULL && block->mapped - block->used >= bytes) return OK;
    if (block != NULL && block->mapped < BLOCK_BYTES_MOST)
        next = block->mapped * 2;
    else if (block != NULL)
        next = BLOCK_BYTES_MOST;
    if (bytes > next - HEADER_BYTES) next = bytes + HEADER_BYTES;
    TRY(block_map(arena, next - HEADER_BYTES));
    return OK;
}

status arena_take(struct arena *arena, size_t bytes, void **out)
{
    const size_t most = arena->planned != 0 ? arena->planned : arena->limit;
    char asked[32], left[32], all[32];
    struct arena_block *block;
    size_t rounded;
    char *piece;

    *out = NULL;
    TRY(round_up(bytes > 0 ? bytes : 1, ARENA_ALIGN, &rounded));
    if (most != 0 && rounded > most - arena->used)
        FAIL(ERR_MEMORY, "%s: asked for %s, %s of %s left", arena->name,
             text_bytes(asked, bytes), text_bytes(left, most - arena->used),
             text_bytes(all, most));
    if (arena->planned == 0) TRY(make_room(arena, rounded));
    CHECK(arena->blocks != NULL); /* a planned arena after arena_free */
    block = arena->blocks;
    piece = (char *)block + block->used;
    ASAN_UNPOISON_MEMORY_REGION(piece, bytes > 0 ? bytes : 1);
    if (block->dirty > block->used) {
        /* Only what an earlier life of the arena wrote needs wiping. */
        const size_t stale = block->dirty - block->used;

        memset(piece, 0, stale < bytes ? stale : bytes);
    }
    block->used += rounded;
    if (block->dirty < block->used) block->dirty = block->used;
    arena->used += rounded;
    if (arena->peak < arena->used) arena->peak = arena->used;
    *out = piece;
    return OK;
}

status arena_take_array(struct arena *arena, size_t count, size_t item_bytes,
                        void **out)
{
    size_t bytes;

    *out = NULL;
    if (__builtin_mul_overflow(count, item_bytes, &bytes))
        FAIL(ERR_MEMORY, "%s: %zu items of %zu bytes do not fit in memory",
             arena->name, count, item_bytes);
    TRY(arena_take(arena, bytes, out));
    return OK;
}

status arena_copy_text(struct arena *arena, const char *text, char **out)
{
    const size_t length = strlen(text);
    void *piece;

    *out = NULL;
    TRY(arena_take(arena, length + 1, &piece));
    memcpy(piece, text, length + 1);
    *out = piece;
    return OK;
}

void arena_reset(struct arena *arena)
{
    if (arena->planned == 0) {
        blocks_unmap(arena);
    } else if (arena->blocks != NULL) {
        struct arena_block *block = arena->blocks;

        block->used = block->first;
        ASAN_POISON_MEMORY_REGION((char *)block + block->first,
                                  block->mapped - block->first);
    }
    arena->used = 0;
}

void arena_free(struct arena *arena)
{
    blocks_unmap(arena);
    *arena = (struct arena){0};
}

size_t arena_bytes_out(void)
{
    return atomic_load(&bytes_out);
}

int64_t arena_allocations(void)
{
    return atomic_load(&allocations);
}

/* The counted malloc family keeps the size in front of the piece; where the
 * size was is what lent_free needs. */
enum { SIZE_BYTES = 16 };
_Static_assert(sizeof(struct lent) <= SIZE_BYTES, "what is freed fits");

static status heap_size(size_t count, size_t item_bytes, size_t *bytes)
{
    if (__builtin_mul_overflow(count, item_bytes, bytes) ||
        *bytes > PTRDIFF_MAX - SIZE_BYTES)
        FAIL(ERR_MEMORY, "%zu items of %zu bytes do not fit in memory", count,
             item_bytes);
    return OK;
}

static size_t heap_size_of(const void *pointer)
{
    size_t bytes;

    memcpy(&bytes, (const char *)pointer - SIZE_BYTES, sizeof bytes);
    return bytes;
}

status memory_take(size_t count, size_t item_bytes, void **out)
{
    char asked[32];
    size_t bytes;
    char *start;

    *out = NULL;
    TRY(heap_size(count, item_bytes, &bytes));
    start = fault_due("memory.take") ? NULL : calloc(1, bytes + SIZE_BYTES);
    if (start == NULL)
        FAIL(ERR_MEMORY, "the system refused %s of memory",
             text_bytes(asked, bytes));
    memcpy(start, &bytes, sizeof bytes);
    atomic_fetch_add(&bytes_out, bytes);
    atomic_fetch_add(&allocations, 1);
    *out = start + SIZE_BYTES;
    return OK;
}

status memory_grow(void **pointer, size_t count, size_t item_bytes)
{
    char asked[32];
    size_t bytes, before;
    char *start;

    if (*pointer == NULL) {
        TRY(memory_take(count, item_bytes, pointer));
        return OK;
    }
    TRY(heap_size(count, item_bytes, &bytes));
    before = heap_size_of(*pointer);
    start = fault_due("memory.take")
                ? NULL
                : realloc((char *)*pointer - SIZE_BYTES, bytes + SIZE_BYTES);
    if (start == NULL)
        FAIL(ERR_MEMORY, "the system refused %s of memory",
             text_bytes(asked, bytes));
    memcpy(start, &bytes, sizeof bytes);
    if (bytes > before) memset(start + SIZE_BYTES + before, 0, bytes - before);
    atomic_fetch_add(&bytes_out, bytes - before); /* wraps when it shrinks */
    atomic_fetch_add(&allocations, 1);
    *pointer = start + SIZE_BYTES;
    return OK;
}

status memory_next(void **items, int *capacity, int count, int first,
                   size_t item_bytes)
{
    const int more = *capacity > 0 ? 2 * *capacity : first;

    if (count < *capacity) return OK;
    TRY(memory_grow(items, (size_t)more, item_bytes));
    *capacity = more;
    return OK;
}

static void piece_free(struct lent *lent)
{
    free(lent);
}

void memory_free(void *pointer)
{
    struct lent *lent;

    if (pointer == NULL) return;
    atomic_fetch_sub(&bytes_out, heap_size_of(pointer));
    lent = (struct lent *)((char *)pointer - SIZE_BYTES);
    lent->give_back = piece_free;
    lent_free(lent);
}
