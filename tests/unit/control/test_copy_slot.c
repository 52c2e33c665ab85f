/* SPDX-License-Identifier: Apache-2.0 */
/* test_copy_slot.c - mirrors src/control/copy_slot.c and courier_slots.c: rows
 * that replicas have alike are found, and filled in where they are needed;
 * rows that are gone, damaged or of another step never are. Rows that were
 * written or damaged on their way are not taken for whole. */
#include "control/copy_slot.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "control/courier_slots.h"
#include "tests/test.h"

enum { RANKS = 4, ROWS_BYTES = 2 * COPY_PAGE, SLOT_BYTES = COPY_ROWS +
                                                          ROWS_BYTES };

static struct copy_memory memory_make(void)
{
    const struct copy_memory memory = {memfd_create("copies", 0), RANKS,
                                       SLOT_BYTES};

    CHECK(memory.file >= 0);
    CHECK(ftruncate(memory.file, (off_t)RANKS * COPY_SLOTS * SLOT_BYTES) == 0);
    return memory;
}

static char *rows_of(struct copy_slot *slot)
{
    return (char *)slot + COPY_ROWS;
}

/* A whole copy of that step; its rows are `letter`. */
static struct copy_slot *copy_of(const struct copy_memory *memory, int rank,
                                 int index, int64_t step, char letter)
{
    struct copy_slot *slot = copy_slot_map(memory, (uint64_t)rank, index,
                                           SLOT_BYTES);

    CHECK(slot != NULL);
    slot->magic = copy_magic;
    slot->ranks = RANKS;
    slot->bytes = ROWS_BYTES - 100;
    slot->layout = 7;
    slot->twin = 0;
    slot->state_length = 5;
    memcpy(slot->state, "state", 5);
    slot->state_sum = copy_sum(slot->state, 5);
    memset(rows_of(slot), letter, ROWS_BYTES);
    slot->sum = copy_sum(rows_of(slot), slot->bytes);
    atomic_store(&slot->step, step);
    return slot;
}

/* The same without rows of its own. */
static struct copy_slot *twin_of(const struct copy_memory *memory, int rank,
                                 int64_t step, char letter, int twin)
{
    struct copy_slot *slot = copy_of(memory, rank, 1, step, letter);

    memset(rows_of(slot), 0, ROWS_BYTES);
    slot->twin = (uint64_t)twin + 1;
    return slot;
}

static void release(struct copy_memory *memory, struct copy_slot *a,
                    struct copy_slot *b)
{
    munmap(a, SLOT_BYTES);
    munmap(b, SLOT_BYTES);
    close(memory->file);
}

TEST(rows_come_from_a_twin)
{
    for (int index = 0; index < COPY_SLOTS; index++) {
        struct copy_memory memory = memory_make();
        struct copy_slot *source = copy_of(&memory, 0, index, 5, 'a');
        struct copy_slot *twin = twin_of(&memory, 2, 5, 'a', 0);

        CHECK(!copy_slot_is_whole(twin, SLOT_BYTES));
        copy_slot_fill(&memory, twin);
        CHECK(copy_slot_is_whole(twin, SLOT_BYTES));
        EQUAL_INT(atomic_load(&twin->step), 5);
        EQUAL_BYTES(rows_of(twin), rows_of(source), ROWS_BYTES - 100);
        /* From now on they are its own. */
        atomic_store(&source->step, -1);
        copy_slot_fill(&memory, twin);
        CHECK(copy_slot_is_whole(twin, SLOT_BYTES));
        release(&memory, source, twin);
    }
}

/* These happen to the rows before they are needed. */
static void another_step(struct copy_slot *source, struct copy_slot *twin)
{
    (void)twin;
    atomic_store(&source->step, 6);
}

static void half_written(struct copy_slot *source, struct copy_slot *twin)
{
    (void)twin;
    atomic_store(&source->step, -1);
}

static void damaged(struct copy_slot *source, struct copy_slot *twin)
{
    (void)twin;
    rows_of(source)[77] ^= 1;
}

static void another_history(struct copy_slot *source, struct copy_slot *twin)
{
    (void)twin;
    source->layout++;
}

static void a_twin_too(struct copy_slot *source, struct copy_slot *twin)
{
    (void)twin;
    source->twin = 3;
}

static void of_nobody(struct copy_slot *source, struct copy_slot *twin)
{
    (void)source;
    twin->twin = UINT64_C(1) << 63;
}

static void of_itself(struct copy_slot *source, struct copy_slot *twin)
{
    (void)source;
    twin->twin = 2 + 1;
}

static void too_long(struct copy_slot *source, struct copy_slot *twin)
{
    source->bytes = twin->bytes = (uint64_t)SLOT_BYTES * 2;
}

TEST(rows_that_are_gone_make_no_copy)
{
    static void (*const ways[])(struct copy_slot *source,
                                struct copy_slot *twin) = {
        another_step, half_written, damaged, another_history, a_twin_too,
        of_nobody, of_itself, too_long};

    for (int i = 0; i < ROWS(ways); i++) {
        struct copy_memory memory = memory_make();
        struct copy_slot *source = copy_of(&memory, 0, 0, 5, 'a');
        struct copy_slot *twin = twin_of(&memory, 2, 5, 'a', 0);

        ways[i](source, twin);
        copy_slot_fill(&memory, twin);
        EQUAL_INT(atomic_load(&twin->step), -1);
        release(&memory, source, twin);
    }
}

/* A node with rank 0, which also keeps copies of rank 1. */
TEST(a_node_says_whose_rows_are_the_same)
{
    struct copy_memory memory = memory_make();
    struct copy_slot *own = copy_of(&memory, 0, 0, 5, 'a');
    struct copy_slot *other = copy_of(&memory, 1, 1, 5, 'b');
    struct place_memory place = {.ordered = 1, .order = {.size = RANKS}};
    struct board *board = calloc(1, sizeof *board + sizeof(struct board_page));
    struct agent agent = {.board = board, .places = &place, .count = 1,
                          .state_file = memory.file};
    struct copy_head head = {.rank = 3, .ranks = RANKS,
                             .slot_bytes = SLOT_BYTES};
    bool behind;

    CHECK(board != NULL);
    board->pages[0].slot_bytes = SLOT_BYTES;
    board->pages[0].copied = 5;
    head_from_slot(&head, own);
    CHECK(head_is_sound(&head));
    EQUAL_INT(courier_slot_twin(&agent, &head, &behind), 1);
    head.layout++;
    EQUAL_INT(courier_slot_twin(&agent, &head, &behind), 0);
    CHECK(!behind);
    head_from_slot(&head, own);
    head.step = 6; /* the rank here is not so far yet */
    EQUAL_INT(courier_slot_twin(&agent, &head, &behind), 0);
    CHECK(behind);
    head_from_slot(&head, other); /* not known to be whole */
    EQUAL_INT(courier_slot_twin(&agent, &head, &behind), 0);
    courier_slot_kept(1);
    EQUAL_INT(courier_slot_twin(&agent, &head, &behind), 2);
    head.rank = 1; /* a rank is no twin of itself */
    EQUAL_INT(courier_slot_twin(&agent, &head, &behind), 0);
    head.twin = RANKS + 1;
    CHECK(!head_is_sound(&head));
    free(board);
    release(&memory, own, other);
}

/* ---- rows on their way ---- */

static struct copy_slot *source;
static char sent[2 * ROWS_BYTES];
static size_t sent_bytes;

static void unchanged(void) {}

/* The rank begins to write the slot. */
static void spoilt(void)
{
    copy_slot_spoil(source);
}

/* It wrote the slot twice, and is at that step again. */
static void made_again(void)
{
    copy_slot_spoil(source);
    memset(rows_of(source), 'b', ROWS_BYTES);
    atomic_store(&source->step, 5);
}

static void first_flips(void)
{
    sent[0] ^= 1;
}

static void last_flips(void)
{
    sent[sent_bytes - 17] ^= (char)0x80; /* the last of the rows */
}

static void sum_flips(void)
{
    sent[sent_bytes - 16] ^= 1;
}

/* before: after the head was read; under_way: with what was sent. */
static bool arrives(struct copy_slot *to, void (*before)(void),
                    void (*under_way)(void))
{
    struct copy_head head = {.rank = 0, .ranks = RANKS,
                             .slot_bytes = SLOT_BYTES};
    int out[2], in[2];
    bool whole = true;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, out) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, in) == 0);
    struct wire sender = {.descriptor = out[0]};
    struct wire receiver = {.descriptor = in[0]};

    head_from_slot(&head, source);
    CHECK(head_is_sound(&head));
    before();
    IS_OK(courier_rows_send(&sender, source, &head, NULL));
    sent_bytes = (size_t)recv(out[1], sent, sizeof sent, 0);
    EQUAL_INT(sent_bytes, head.rows + 16);
    under_way();
    CHECK(send(in[1], sent, sent_bytes, 0) == (ssize_t)sent_bytes);
    IS_OK(courier_rows_receive(&receiver, &head, to, &whole));
    for (int i = 0; i < 2; i++) {
        close(out[i]);
        close(in[i]);
    }
    return whole;
}

TEST(rows_arrive_whole_or_do_not_count)
{
    static void (*const before[])(void) = {spoilt, made_again};
    static void (*const under_way[])(void) = {first_flips, last_flips,
                                              sum_flips};
    struct copy_memory memory = memory_make();

    for (int state = 0; state < 2; state++) {
        struct copy_slot *to = copy_of(&memory, 1, 0, -1, 'z');

        for (int i = -1; i < ROWS(before) + ROWS(under_way); i++) {
            const int later = i - ROWS(before);

            source = copy_of(&memory, 0, 0, 5, 'a');
            source->magic = state ? copy_magic_state : copy_magic;
            if (state) source->sum = 1234; /* only its rank can tell */
            const bool whole =
                arrives(to, i >= 0 && later < 0 ? before[i] : unchanged,
                        later >= 0 ? under_way[later] : unchanged);

            EQUAL_INT(whole, i < 0);
            if (whole)
                EQUAL_BYTES(rows_of(to), rows_of(source), source->bytes);
            munmap(source, SLOT_BYTES);
        }
        source = copy_of(&memory, 0, 0, 5, 'a');
        source->sum = 1234;
        CHECK(!arrives(to, unchanged, unchanged));
        source->sum = copy_sum(rows_of(source), source->bytes);
        CHECK(arrives(to, unchanged, unchanged));
        to->state[0] ^= 1; /* counters */
        CHECK(!arrives(to, unchanged, unchanged));
        munmap(source, SLOT_BYTES);
        munmap(to, SLOT_BYTES);
    }
    close(memory.file);
}

/* A state has the rows of its twin, and of its kind. */
TEST(a_state_comes_from_a_twin_too)
{
    struct copy_memory memory = memory_make();
    struct copy_slot *own = copy_of(&memory, 0, 0, 5, 'a');
    struct copy_slot *twin = twin_of(&memory, 2, 5, 'a', 0);

    own->magic = twin->magic = copy_magic_state;
    copy_slot_fill(&memory, twin);
    EQUAL_INT(atomic_load(&twin->step), 5);
    EQUAL_INT(twin->twin, 0);
    EQUAL_BYTES(rows_of(twin), rows_of(own), ROWS_BYTES - 100);
    twin->twin = 1;
    own->magic = copy_magic;
    copy_slot_fill(&memory, twin);
    EQUAL_INT(atomic_load(&twin->step), -1);
    release(&memory, own, twin);
}

TEST_MAIN(rows_come_from_a_twin, rows_that_are_gone_make_no_copy,
          a_node_says_whose_rows_are_the_same,
          rows_arrive_whole_or_do_not_count, a_state_comes_from_a_twin_too)
