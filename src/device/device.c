/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - the kinds of devices, and copies. */
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "device/apart_devices.h"
#include "device/products.h"

static const struct device_about kinds[DEVICE_KINDS] = {
    [DEVICE_CPU] = {"cpu", "the processors of this machine", false},
    [DEVICE_FAR] = {"far", "a second device made of the CPU, for tests", true},
    [DEVICE_CUDA] = {"cuda", "a GPU of this machine", true},
};

const struct device_about *device_about(enum device_kind kind)
{
    return &kinds[kind];
}

status device_parse(enum device_kind *kind, const char *name)
{
    *kind = DEVICE_AUTO;
    if (strcmp(name, "auto") == 0) return OK;
    for (int i = 0; i < DEVICE_KINDS; i++)
        if (strcmp(name, kinds[i].name) == 0) {
            *kind = (enum device_kind)i;
            return OK;
        }
    FAIL(ERR_CONFIG, "device is %s; expected auto, cpu, cuda or far", name);
}

status device_environment(enum device_haste *haste)
{
    const char *text = getenv("LOCKSTEP_FAR");

    *haste = DEVICE_LATE;
    if (text == NULL || *text == '\0' || strcmp(text, "late") == 0) return OK;
    if (strcmp(text, "early") != 0)
        FAIL(ERR_CONFIG, "LOCKSTEP_FAR=%s: expected late or early", text);
    *haste = DEVICE_EARLY;
    return OK;
}

status device_open(struct device **out, const struct device_choice *choice)
{
    *out = NULL;
    if (choice->kind == DEVICE_CPU) return OK;
    return choice->kind == DEVICE_FAR ? far_open(out, choice)
                                      : cuda_open(out, choice);
}

size_t device_ring_bytes(const struct device_choice *choice)
{
    return choice->kind == DEVICE_CUDA ? cuda_ring_bytes(choice) : 0;
}

size_t device_room_bytes(const struct device_choice *choice)
{
    return choice->kind == DEVICE_CUDA && choice->products.sums > 0
               ? products_bytes(choice->products.widest, choice->products.sums)
               : 0;
}

size_t device_attention_bytes(const struct device_choice *choice)
{
    return choice->kind == DEVICE_CUDA ? choice->attention.bytes : 0;
}

void device_maker(const struct device *device, char *text, size_t bytes)
{
    if (device == NULL || device->kind->maker == NULL)
        snprintf(text, bytes, "the kernels of this program");
    else
        device->kind->maker(device, text, bytes);
}

void device_close(struct device *device)
{
    if (device != NULL) device->kind->close(device);
}

/* ---- copies ---- */

status device_copy(struct stream *stream, void *to, const void *from,
                   size_t bytes)
{
    if (bytes == 0) return OK;
    return device_copy_rows(stream, (struct device_rows){to, 0},
                            (struct device_rows){(void *)(uintptr_t)from, 0},
                            1, bytes);
}

void rows_copy(struct device_rows to, struct device_rows from, int64_t rows,
               size_t row)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)to.at + i * to.apart,
               (const char *)from.at + i * from.apart, row);
}

status device_copy_rows(struct stream *stream, struct device_rows to,
                        struct device_rows from, int64_t rows, size_t row)
{
    if (stream->device != NULL)
        return stream->device->kind->copy(stream->device, &to, &from, rows,
                                          row);
    rows_copy(to, from, rows, row);
    return OK;
}

#define TURN(type)                                                          \
    do {                                                                    \
        type *out = to;                                                     \
        const type *in = from;                                              \
        for (size_t i = 0; i < half; i++)                                   \
            for (size_t second = 0; second < 2; second++) {                 \
                const size_t halves = i + second * half;                    \
                const size_t near = 2 * i + second;                         \
                out[apart ? halves : near] = in[apart ? near : halves];     \
            }                                                               \
    } while (0)

/* Pairs of neighbours to two halves, or back. */
static void turn_part(const struct device_parts *copy, void *to,
                      const void *from)
{
    const size_t half = copy->bytes / (size_t)copy->element / 2;
    const bool apart = copy->turn == TURN_APART;

    if (copy->element == 2) TURN(uint16_t);
    else if (copy->element == 4) TURN(uint32_t);
    else TURN(uint64_t);
}

void parts_copy(const struct device_parts *copy)
{
    for (int64_t i = 0; i < copy->rows; i++) {
        char *to = (char *)copy->to.at + i * copy->to.apart;
        const char *from = (const char *)copy->from.at;

        if (from != NULL) from += i * copy->from.apart;
        for (int64_t j = 0; j < copy->parts; j++, to += copy->to_part) {
            if (copy->from.at == NULL) memset(to, 0, copy->bytes);
            else if (copy->turn != TURN_NONE) turn_part(copy, to, from);
            else memcpy(to, from, copy->bytes);
            if (from != NULL) from += copy->from_part;
        }
    }
}

status device_copy_parts(struct stream *stream,
                         const struct device_parts *copy)
{
    if (copy->rows == 0 || copy->parts == 0 || copy->bytes == 0) return OK;
    if (stream->device != NULL)
        return stream->device->kind->copy_parts(stream->device, copy);
    parts_copy(copy);
    return OK;
}

status device_fill(struct stream *stream, void *to, int byte, size_t bytes)
{
    if (bytes == 0) return OK;
    if (stream->device != NULL)
        return stream->device->kind->fill(stream->device, to, byte, bytes);
    memset(to, byte, bytes);
    return OK;
}

status device_write(struct stream *stream, void *to, const void *from,
                    size_t bytes)
{
    if (stream->device != NULL)
        return stream->device->kind->write(stream->device, to, from, bytes);
    if (bytes > 0 && to != from) memcpy(to, from, bytes);
    return OK;
}

status device_read(struct stream *stream, void *to, const void *from,
                   size_t bytes)
{
    return device_read_all(stream, &(struct device_bytes){to, from, bytes},
                           bytes > 0);
}

status device_read_all(struct stream *stream, const struct device_bytes *all,
                       int count)
{
    if (count == 0) return OK;
    if (stream->device != NULL)
        return stream->device->kind->read(stream->device, all, count);
    for (int i = 0; i < count; i++)
        if (all[i].to != all[i].from)
            memcpy(all[i].to, all[i].from, all[i].bytes);
    return OK;
}
