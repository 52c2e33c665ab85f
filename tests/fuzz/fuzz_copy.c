/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_copy.c - can a copy of state in memory, written by a rank that was
 * killed or by another node, hurt who takes it? One that is whole has counters
 * and rows within its slot.
 *
 *   input   mode, pages of rows, then words of the head, counters, rows
 *
 * Most inputs get the checksums of what they say, or no copy would be whole. */
#include <string.h>
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "control/copy_slot.h"
#include "tests/fuzz/grammar.h"
#include "tests/sanitized.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PAGES = 2, HEAD_WORDS = 8, REPAIRED = 3 };

/* Slots begin at pages. */
static _Alignas(COPY_PAGE) char memory[COPY_ROWS + PAGES * COPY_PAGE];

struct input { const uint8_t *bytes; size_t left; };

static void take(struct input *in, void *out, size_t length)
{
    const size_t some = length < in->left ? length : in->left;

    if (some > 0) memcpy(out, in->bytes, some);
    in->bytes += some;
    in->left -= some;
}

static bool fits(const struct copy_slot *slot, size_t slot_bytes)
{
    return slot->magic == copy_magic &&
           slot->state_length < COPY_STATE_BYTES && slot_bytes >= COPY_ROWS &&
           slot->bytes <= slot_bytes - COPY_ROWS;
}

static void read_counters(const struct copy_slot *slot)
{
    const struct json *root;
    struct arena arena;

    arena_init(&arena, "copy", 0);
    if (json_read(&root, &arena, slot->state, (size_t)slot->state_length,
                  "the copy in memory") == OK)
        CHECK(root != NULL);
    status_clear();
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static size_t dirty;
    struct copy_slot *slot = (struct copy_slot *)(void *)memory;
    struct input in = {data, size};
    uint8_t mode[2] = {0};
    uint64_t words[HEAD_WORDS] = {0};

    take(&in, mode, sizeof mode);
    take(&in, words, sizeof words);
    slot->magic = (mode[0] & 4) != 0 ? words[0] : copy_magic;
    atomic_store(&slot->step, (int64_t)words[1]);
    slot->ranks = words[2];
    slot->bytes = (mode[0] & 8) != 0 ? words[3] : words[3] % (COPY_PAGE + 1);
    slot->layout = words[4];
    slot->carried = words[5];
    slot->state_length =
        (mode[0] & 16) != 0 ? words[6] : words[6] % (in.left + 1);
    slot->sum = slot->state_sum = words[7];
    memset(slot->state, 0, dirty);
    dirty = in.left;
    memcpy(slot->state, in.bytes, in.left);
    memcpy(memory + COPY_ROWS, in.bytes,
           in.left < COPY_PAGE ? in.left : COPY_PAGE);

    const size_t slot_bytes = COPY_ROWS - 1 + mode[1] % (PAGES * COPY_PAGE);
    const bool good = fits(slot, slot_bytes);

    if (good && (mode[0] & REPAIRED) != 0) {
        slot->state_sum = copy_sum(slot->state, slot->state_length);
        slot->sum = copy_sum(memory + COPY_ROWS, slot->bytes);
        CHECK(copy_slot_is_whole(slot, slot_bytes));
    }
    if (!copy_slot_is_whole(slot, slot_bytes)) return 0;
    CHECK(good);
    read_counters(slot);
    return 0;
}

/* ---- the mutator ---- */

enum { HEAD = 2 + 8 * HEAD_WORDS, ROWS_WORD = 3, LENGTH_WORD = 6 };

static const char *const marks[] = {"step", "tokens", "samples", "epoch",
                                    "loss_scale", "lines", NULL};
static const struct grammar counters = {json_grammar_read, json_grammar_write,
                                        marks};

/* Counters keep their form, and mostly the length that the head says; the
 * head's fields and the mode change by themselves. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    struct out length = {.bytes = data + 2 + 8 * LENGTH_WORD, .room = 8};

    mutate_seed(seed);
    if (size < HEAD || draw(16) == 0)
        return LLVMFuzzerMutate(data, size, room);
    if (draw(3) == 0) data[draw(2)] = (uint8_t)draw(256);
    if (draw(3) == 0)
        mutate_integer(data, size, 2 + 8 * draw(HEAD_WORDS), 8);
    if (draw(4) == 0) mutate_integer(data, size, 2 + 8 * ROWS_WORD, 8);
    if (size > HEAD && draw(2) == 0)
        size = mutate_from(&counters, data, size, room, HEAD);
    if (size >= HEAD && draw(4) != 0) put_integer(&length, size - HEAD, 8);
    return size;
}
