/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_events.c - can an event file or a client of the endpoint for metrics
 * hurt us? The first byte says which. A message gets its record and
 * checksums here, or the fuzzer would see nothing behind them. */
#include <string.h>
#include "base/arena.h"
#include "base/file.h"
#include "observe/events.h"
#include "observe/events_read.h"
#include "observe/prometheus.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static status see(void *argument, const struct events_value *value)
{
    size_t *bytes = argument;

    CHECK(value->buckets >= 0);
    *bytes += value->tag_length + value->text_length;
    return OK;
}

static void set(unsigned char *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> 8 * i);
}

static void scan(const void *bytes, size_t length)
{
    size_t seen = 0;
    struct events_scan scan = {.source = "fuzz", .step_kept = -1,
                               .value = see, .argument = &seen};

    (void)events_scan(&scan, bytes, length);
    CHECK(scan.kept <= length && seen <= 2 * length);
}

static void scan_message(const uint8_t *message, size_t length)
{
    static unsigned char record[1 << 16];

    if (length > sizeof record - 16) return;
    set(record, length, 8);
    set(record + 8, events_mask(crc32c(0, record, 8)), 4);
    if (length > 0) memcpy(record + 12, message, length);
    set(record + 12 + length, events_mask(crc32c(0, message, length)), 4);
    scan(record, length + 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    switch (data[0]) {
    case 'r': scan(data + 1, size - 1); break;
    case 'h': prometheus_parse((const char *)data + 1, size - 1); break;
    default: scan_message(data + 1, size - 1); break;
    }
    status_clear();
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const struct grammar message = {proto_grammar_read, proto_grammar_write,
                                       NULL};
static const char *const marks[] = {"GET ", "HEAD ", " HTTP/1.1", "\r\n",
                                    "/metrics", "Host: x", NULL};
static const struct grammar lines = {words_grammar_read, words_grammar_write,
                                     marks};

/* One record of a file is changed; its length and checksums follow. */
static size_t mutate_records(uint8_t *data, size_t size, size_t room)
{
    uint64_t skip = draw(8);
    size_t at = 1, length, now, more;

    for (;; skip--, at += 16 + length) {
        if (size - at < 16) return LLVMFuzzerMutate(data, size, room);
        length = (size_t)get_integer(data + at, 8);
        if (length > size - at - 16) return LLVMFuzzerMutate(data, size, room);
        if (skip == 0 || size - at - 16 - length < 16) break;
    }
    now = mutate_range(&message, data, size, room,
                       (size_t[]){at + 12, at + 12 + length});
    if (now == 0) return LLVMFuzzerMutate(data, size, room);
    more = length + now - size;
    set(data + at, more, 8);
    set(data + at + 8, events_mask(crc32c(0, data + at, 8)), 4);
    set(data + at + 12 + more,
        events_mask(crc32c(0, data + at + 12, more)), 4);
    return now;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    if (size > 16 && data[0] == 'r' && draw(8) != 0)
        return mutate_records(data, size, room);
    return mutate_from(size > 0 && data[0] == 'h' ? &lines : &message, data,
                       size, room, 1);
}
