/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - the device cuda as its own files see it: cuda.c, and libraries.c,
 * which computes by libraries of the GPU. */
#ifndef LOCKSTEP_DEVICE_CUDA_H
#define LOCKSTEP_DEVICE_CUDA_H

#include "base/status.h"
#include "device/apart_devices.h"
#include "device/plugin.h"
#include "device/products.h"
#include "device/timed.h"

enum { MARKS = 1024, LENT = 16, QUARTERS = 4, QUARTER_LEAST = 1 << 18 };

/* Host memory that the open item of work writes, and where it does. */
struct lent {
    void *host, *there;
    size_t bytes;
};

struct cuda {
    struct device device;      /* the first member: it is this one, too */
    const struct cuda_plugin *plugin;
    struct gpu *gpu;           /* owned */
    int number;
    struct gpu_event *marks[MARKS]; /* owned: number n is marks[n % MARKS] */
    struct gpu_event *met;     /* owned: where two streams meet */
    struct {
        char *host, *there;    /* borrowed */
        size_t quarter;        /* bytes */
        size_t used;           /* of the current one */
        int at;
        uint64_t last[QUARTERS]; /* item of work that uses it, 0: none */
        size_t far;            /* graphs: bytes of the twin that are used */
        uint64_t item;        /* graphs: the last one that used it */
    } ring;
    bool graphs;
    /* The end of item n is the mark of ends[n % MARKS], if n is at most
     * `marked`. Other threads read both. */
    _Atomic uint64_t marked, ends[MARKS];
    struct lent lent[LENT];
    int lent_count;
    struct timed timed;
    struct gpu_products products;
    struct {
        bool is_on, flash;
        int64_t version;       /* of the library */
        int64_t length;        /* of sequences that it may have */
        struct gpu_room room;  /* borrowed */
        char missing[256];     /* why it is not on */
    } attention;
    char name[GPU_NAME_BYTES];
};

static inline struct cuda *cuda_of(struct device *device)
{
    return (struct cuda *)device;
}

static inline status cuda_said(const struct cuda *c, const char *sentence)
{
    if (sentence == NULL) return OK;
    FAIL(ERR_DEVICE, "GPU %d: %s", c->number, sentence);
}

/* ---- libraries.c ---- */

/* Opens the libraries that are chosen. */
status cuda_open_libraries(struct cuda *c, const struct device_choice *choice);
void cuda_room(struct device *device, void *at, size_t bytes);
void cuda_attention_room(struct device *device, void *at, size_t bytes);
void cuda_maker(const struct device *device, char *text, size_t bytes);

#endif
