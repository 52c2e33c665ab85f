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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static status see(void *argument, const struct events_value *value)
{
    size_t *bytes = argument;

    CHECK(value->buckets >= 0);
    *bytes += value->tag_length + value->text_length;
    return OK;
}

static void put(unsigned char *out, uint64_t value, int bytes)
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
    put(record, length, 8);
    put(record + 8, events_mask(crc32c(0, record, 8)), 4);
    if (length > 0) memcpy(record + 12, message, length);
    put(record + 12 + length, events_mask(crc32c(0, message, length)), 4);
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
