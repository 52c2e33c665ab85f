/* SPDX-License-Identifier: Apache-2.0 */
/* apart_devices.h - devices that are apart from the host have this in common: a
 * queue of kernels, memory that the host does not see, and the list of such
 * devices of this process. Inside device/. */
#ifndef LOCKSTEP_DEVICE_APART_DEVICES_H
#define LOCKSTEP_DEVICE_APART_DEVICES_H

#include "device/parts.h"
#include "device/plugin.h"
#include "device/point.h"
#include "device/queue.h"

enum { DEVICE_RANGES = 64 };

/* Memory that was taken. */
struct range {
    char *first;   /* the address that the program has */
    size_t bytes;
    char *near;    /* where kernels find it */
    char *seen;    /* where messages find it: the same, or a copy that
                    * device_fetch and device_store bring up to date */
};

/* A kind. Functions of one without `fetch` and `store`: messages see the memory
 * itself. */
struct device_kinds {
    void (*close)(struct device *);
    status (*take)(struct device *, struct range *);
    void (*give)(struct device *, const struct range *);
    status (*copy)(struct device *, const struct device_rows *to,
                   const struct device_rows *from, int64_t rows, size_t row);
    status (*copy_parts)(struct device *, const struct device_parts *);
    status (*fill)(struct device *, void *to, int byte, size_t bytes);
    status (*write)(struct device *, void *to, const void *from,
                    size_t bytes);
    status (*read)(struct device *, const struct device_bytes *all, int count);
    const void *(*tell)(struct device *, const void *at, size_t bytes);
    void *(*lend)(struct device *, void *at, size_t bytes, bool sets);
    /* Work that was given so far can be awaited by other threads; NULL: it
     * always can. */
    status (*seal)(struct device *);
    status (*gather)(struct device *); /* NULL: it starts nothing */
    bool (*graphs)(const struct device *, char *text, size_t bytes);
                                       /* likewise */
    void (*pin)(struct device *, void *at, size_t bytes, bool pinned);
    status (*fetch)(struct device *, const struct device_seen_rows *);
    status (*store)(struct device *, const struct device_seen_rows *);
    /* Counts the times of metered kernels; NULL: they are counted already. */
    status (*count)(struct device *);
    void (*ring)(struct device *, void *host, void *there, size_t bytes);
    void (*room)(struct device *, void *at, size_t bytes);
    void (*attention_room)(struct device *, void *at, size_t bytes);
    /* Names the library of products; NULL: there is none. */
    void (*maker)(const struct device *, char *text, size_t bytes);
    /* device/library.h; NULL: no library can use its memory. */
    status (*stream_open)(struct device *, void **out);
    void (*stream_close)(struct device *, void *stream);
    status (*stream_idle)(struct device *, void *stream, bool *out);
    status (*enter)(struct device *);
    /* Its GPU (peers.h); NULL: it has none. */
    const struct cuda_plugin *(*gpu)(const struct device *, struct gpu **out,
                                     int *number);
};

struct device {
    const struct device_kinds *kind;
    struct queue *kernels, *copies;  /* owned; copies NULL: it has none */
    struct range ranges[DEVICE_RANGES];
    int count;
    struct stream near;              /* as kernels see it */
};

/* A device of this process, from now on and no longer. */
status apart_enlist(struct device *device);
void apart_leave(const struct device *device);
/* Where kernels find its memory, which it must be. */
void *apart_own(const struct device *device, const void *at);

/* Copies that are made at once. */
void rows_copy(struct device_rows to, struct device_rows from, int64_t rows,
               size_t row);
void parts_copy(const struct device_parts *copy);

status far_open(struct device **out, const struct device_choice *choice);
status cuda_open(struct device **out, const struct device_choice *choice);
size_t cuda_ring_bytes(const struct device_choice *choice);

#endif
