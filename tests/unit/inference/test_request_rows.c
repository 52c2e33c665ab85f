/* SPDX-License-Identifier: Apache-2.0 */
/* test_request_rows.c - mirrors src/inference/request_rows.c: every request
 * lies in one row, where its sums fall as they would alone, and nothing
 * overlaps. */
#include "inference/request_rows.h"

#include "tests/test.h"

enum { REQUESTS = 200, LENGTH_MOST = 1100 };

/* Lengths that a small generator draws. */
static void make(struct task_requests *r, int64_t most, uint32_t seed)
{
    *r = (struct task_requests){0};
    for (int i = 0; i < REQUESTS; i++) {
        struct task_request request = {.first = r->ids.count, .item = i};
        int32_t ids[LENGTH_MOST + 1];
        void *grown = r->items;

        seed = seed * 1664525u + 1013904223u;
        request.length = 1 + (int32_t)((seed >> 8) % (uint32_t)
                                       (i % 3 == 0 ? most : 60));
        if (request.length > most) request.length = (int32_t)most;
        request.scored = 1 + (int32_t)((seed >> 4) %
                                       (uint32_t)request.length);
        for (int32_t j = 0; j <= request.length; j++) ids[j] = 1000 * i + j;
        IS_OK(token_list_append(&r->ids, ids, request.length + 1));
        IS_OK(memory_grow(&grown, (size_t)r->count + 1, sizeof *r->items));
        r->items = grown;
        r->items[r->count++] = request;
        r->scored += request.scored;
        if (request.length > r->longest) r->longest = request.length;
    }
}

static void check_place(const struct request_place *place, int64_t length)
{
    int64_t slot = 128;

    while (slot < length) slot *= 2;
    if (length > 128) EQUAL_INT(place->offset % slot, 0);
    EQUAL_INT(place->offset % 16, 0);
    if (length <= 128)
        EQUAL_INT(place->offset / 128, (place->offset + length - 1) / 128);
}

/* Row by row: targets and cells are those of the requests in it. */
static void check_row(const struct request_rows *rows, int64_t row,
                      int *seen)
{
    static int32_t inputs[LENGTH_MOST], targets[LENGTH_MOST],
        positions[LENGTH_MOST], documents[LENGTH_MOST];
    static int64_t cells[LENGTH_MOST];
    int64_t scored = 0;

    request_rows_fill(rows, row, inputs, targets, positions, documents);
    request_rows_cells(rows, row, cells);
    for (int64_t t = 0; t < rows->length; t++) {
        EQUAL_INT(targets[t] >= 0, cells[t] >= 0);
        CHECK(t == 0 || documents[t] >= documents[t - 1]);
        CHECK(t == 0 || positions[t] == 0 ||
              positions[t] == positions[t - 1] + 1);
        scored += targets[t] >= 0;
    }
    if (row >= rows->count) {
        EQUAL_INT(scored, 0);
        return;
    }
    EQUAL_INT(scored, rows->value[row + 1] - rows->value[row]);
    for (int64_t i = rows->first[row]; i < rows->first[row + 1]; i++) {
        const struct request_place *place = &rows->places[i];
        const struct task_request *r =
            &rows->requests->items[place->request];

        check_place(place, r->length);
        seen[place->request]++;
        for (int32_t j = 0; j < r->length; j++) {
            const int64_t t = place->offset + j;
            const bool asked = j >= r->length - r->scored;

            EQUAL_INT(inputs[t], 1000 * place->request + j);
            EQUAL_INT(positions[t], j);
            EQUAL_INT(documents[t], place->offset);
            EQUAL_INT(targets[t], asked ? inputs[t] + 1 : -1);
            if (asked)
                EQUAL_INT(cells[t],
                          place->value + j - (r->length - r->scored));
        }
    }
}

TEST(requests_lie_where_their_sums_fall_as_alone)
{
    static const int64_t lengths[] = {37, 100, 128, 200, 300, 512, 700, 1100};

    for (int i = 0; i < ROWS(lengths); i++) {
        struct task_requests requests;
        struct request_rows rows;
        int seen[REQUESTS] = {0};
        int64_t tokens = 0;

        make(&requests, lengths[i], (uint32_t)i + 1);
        IS_OK(request_rows_build(&rows, &requests, lengths[i]));
        for (int64_t row = 0; row <= rows.count; row++)
            check_row(&rows, row, seen);
        for (int j = 0; j < REQUESTS; j++) {
            EQUAL_INT(seen[j], 1);
            tokens += requests.items[j].length;
        }
        if (lengths[i] >= 128) /* less than half is room between them */
            CHECK(2 * tokens > rows.count * rows.length);
        request_rows_free(&rows);
        task_requests_free(&requests);
    }
}

TEST(a_row_is_a_granule_or_what_the_longest_needs)
{
    struct task_requests r = {.longest = 5};

    EQUAL_INT(request_rows_length(&r, 2048), 128);
    EQUAL_INT(request_rows_length(&r, 100), 100);
    r.longest = 129;
    EQUAL_INT(request_rows_length(&r, 2048), 256);
    EQUAL_INT(request_rows_length(&r, 200), 200);
}

TEST_MAIN(requests_lie_where_their_sums_fall_as_alone,
          a_row_is_a_granule_or_what_the_longest_needs)
