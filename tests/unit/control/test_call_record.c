/* SPDX-License-Identifier: Apache-2.0 */
/* test_call_record.c - mirrors src/control/call_record.c: the newest calls of
 * each rank are in the file of their generation, in order, and no more than
 * the bounds say, whatever a dying rank left on its page. */
#include "control/call_record.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/json.h"
#include "tests/test.h"

enum { SEEN_NS = 1000000000 };

struct fixture {
    char run[PATH_BYTES], control[PATH_BYTES];
    struct board *board;
    int file;
    struct arena arena;
    const struct json *lines[CALLS_MOST + 2];
    int count;
};

static void open_run(struct fixture *f, int ranks, bool begun)
{
    memset(f, 0, sizeof *f);
    test_directory(f->run);
    IS_OK(path_join(f->control, PATH_BYTES, f->run, "control"));
    if (begun) IS_OK(directory_make_own(f->control));
    IS_OK(board_make(&f->board, ranks, &f->file));
    arena_init(&f->arena, "lines", 0);
}

static void close_run(struct fixture *f)
{
    arena_free(&f->arena);
    board_close(f->board);
    close(f->file);
    IS_OK(directory_remove(f->run));
}

static struct flight_entry *entry(struct fixture *f, int rank, uint64_t number)
{
    struct flight *flight = &f->board->pages[rank].flight;
    struct flight_entry *e = &flight->entries[number % FLIGHT_ENTRIES];

    *e = (struct flight_entry){
        .number = number, .call = number, .peer = -1, .group = "data",
        .began_ns = (int64_t)number * 1000, .ended_ns = (int64_t)number * 1000,
        .kind = COMM_ALL_REDUCE, .channel = CHANNEL_NOW, .size = 2};
    return e;
}

static void name_file(const struct fixture *f, uint64_t generation,
                      char path[PATH_BYTES])
{
    char name[64];

    snprintf(name, sizeof name, CALLS_NAME, generation);
    IS_OK(path_join(path, PATH_BYTES, f->control, name));
}

/* Keeps what is on the board, and reads it. */
static void keep(struct fixture *f, int ranks, uint64_t generation)
{
    char path[PATH_BYTES];
    struct text text = {0};

    call_record_keep(f->run, f->board, ranks, generation, SEEN_NS);
    name_file(f, generation, path);
    IS_OK(file_read_own(path, CALLS_BYTES, &text));
    f->count = 0;
    for (char *at = text.bytes, *end; at < text.bytes + text.length;
         at = end + 1) {
        end = strchr(at, '\n');
        CHECK(end != NULL && f->count < CALLS_MOST + 2);
        IS_OK(json_read(&f->lines[f->count++], &f->arena, at,
                        (size_t)(end - at), path));
    }
    text_free(&text);
}

static int64_t number(const struct fixture *f, int line, const char *key)
{
    int64_t value;

    IS_OK(json_get_integer(f->lines[line], "lines", key, &value));
    return value;
}

TEST(calls_are_kept_in_their_order)
{
    static struct fixture f;
    const char *text;

    open_run(&f, 2, true);
    for (uint64_t n = FLIGHT_ENTRIES - 2; n <= FLIGHT_ENTRIES + 3; n++)
        (void)entry(&f, 0, n);
    struct flight_entry *e = entry(&f, 1, 7);

    e->kind = COMM_RECV;
    e->peer = 0;
    e->bytes = 12;
    e->ended_ns = 0;
    e->channel = CHANNEL_BACKGROUND;
    keep(&f, 2, 3);
    EQUAL_INT(f.count, 8);
    EQUAL_INT(number(&f, 0, "generation"), 3);
    EQUAL_INT(number(&f, 0, "ranks"), 2);
    for (int i = 1; i <= 6; i++) {
        EQUAL_INT(number(&f, i, "rank"), 0);
        EQUAL_INT(number(&f, i, "call"), FLIGHT_ENTRIES - 3 + i);
        EQUAL_INT(number(&f, i, "began_us"),
                  FLIGHT_ENTRIES - 3 + i - SEEN_NS / 1000);
        CHECK(json_get(f.lines[i], "peer")->kind == JSON_NULL);
    }
    EQUAL_INT(number(&f, 7, "rank"), 1);
    EQUAL_INT(number(&f, 7, "peer"), 0);
    EQUAL_INT(number(&f, 7, "bytes"), 12);
    CHECK(json_get(f.lines[7], "ended_us")->kind == JSON_NULL);
    CHECK(json_get(f.lines[7], "background")->kind == JSON_TRUE);
    IS_OK(json_get_string(f.lines[7], "lines", "kind", &text));
    EQUAL_TEXT(text, comm_kind_name(COMM_RECV));
    close_run(&f);
}

/* As many of each rank, and of all no more than the bound. */
TEST(calls_have_bounds)
{
    enum { RANKS = 32 };
    static struct fixture f;
    const int each = CALLS_MOST / RANKS;

    open_run(&f, RANKS, true);
    for (int rank = 0; rank < RANKS; rank++)
        for (uint64_t n = 1; n <= 500; n++) (void)entry(&f, rank, n);
    keep(&f, 2, 1);
    EQUAL_INT(f.count, 1 + 2 * CALLS_EACH);
    EQUAL_INT(number(&f, 1, "call"), 500 - CALLS_EACH + 1);
    keep(&f, RANKS, 2);
    EQUAL_INT(f.count, 1 + RANKS * each);
    for (int rank = 0; rank < RANKS; rank++) {
        EQUAL_INT(number(&f, rank * each + each, "rank"), rank);
        EQUAL_INT(number(&f, rank * each + each, "call"), 500);
    }
    close_run(&f);
}

TEST(the_newest_generations_are_kept)
{
    static struct fixture f;
    char path[PATH_BYTES];

    open_run(&f, 1, true);
    (void)entry(&f, 0, 1);
    for (uint64_t g = 1; g <= CALLS_FILES + 4; g++)
        keep(&f, 1, 3 * g); /* not each of them had an incident */
    for (uint64_t g = 1; g <= CALLS_FILES + 4; g++) {
        name_file(&f, 3 * g, path);
        EQUAL_INT(file_exists(path), g > 4);
    }
    close_run(&f);
}

TEST(nonsense_of_a_dying_rank_does_no_harm)
{
    static struct fixture f;
    struct flight_entry *e;

    open_run(&f, 1, true);
    for (uint64_t n = 1; n <= 3; n++) (void)entry(&f, 0, n);
    entry(&f, 0, 9)->number = 77; /* it does not lie where 77 would */
    e = entry(&f, 0, 3);
    e->kind = 1 << 30;
    e->began_ns = INT64_MAX;
    e->ended_ns = INT64_MIN;
    e->bytes = e->peer = INT64_MIN;
    memset(e->group, '\n', sizeof e->group);
    keep(&f, 1, 1);
    EQUAL_INT(f.count, 4);
    CHECK(json_get(f.lines[3], "ended_us")->kind == JSON_NULL);
    *entry(&f, 0, 4) = (struct flight_entry){.number = UINT64_MAX};
    f.board->pages[0].flight.entries[FLIGHT_ENTRIES - 1].number = UINT64_MAX;
    keep(&f, 1, 2);
    CHECK(f.count <= 2);
    close_run(&f);
}

/* A new run has no folder yet, nor has one whose storage is gone. */
TEST(where_there_is_no_folder_nothing_is_written)
{
    static struct fixture f;

    open_run(&f, 1, false);
    (void)entry(&f, 0, 1);
    call_record_keep(f.run, f.board, 1, 1, SEEN_NS);
    CHECK(!file_exists(f.control));
    close_run(&f);
}

TEST_MAIN(calls_are_kept_in_their_order, calls_have_bounds,
          the_newest_generations_are_kept,
          nonsense_of_a_dying_rank_does_no_harm,
          where_there_is_no_folder_nothing_is_written)
