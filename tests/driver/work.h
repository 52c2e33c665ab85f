/* SPDX-License-Identifier: Apache-2.0 */
/* work.h - work that a stream of the driver for tests is given. */
#ifndef LOCKSTEP_TESTS_DRIVER_WORK_H
#define LOCKSTEP_TESTS_DRIVER_WORK_H

#include <stdatomic.h>
#include "driver.h"

/* A side of a copy: memory of the device, or of the host, whose bytes of now
 * `kept` has where it is not pinned. */
struct side {
    bool host;
    CUdeviceptr at;
    size_t pitch;
    void *kept; /* owned; or NULL */
};
enum what { COPY, FILL, LAUNCH, CALL, MARK, WAIT, TRY };
struct work {
    enum what what;
    struct side to, from;
    size_t bytes, rows;
    int byte;
    const struct CUfunc_st *function;
    int64_t blocks;
    void *call;  /* owned; of LAUNCH and CALL a copy of call_bytes */
    size_t call_bytes;
    void (*run)(void *); /* CALL: a library's, with `call` */
    CUstream after;
    uint64_t number;
    CUevent event; /* whose time it sets; or NULL */
    struct shared_event *shared; /* MARK: that it sets, WAIT: that it waits for,
                                  * to `number`; or NULL */
    bool inside; /* a graph */
    bool (*done)(void *); /* TRY: asked again and again, with `call` */
    struct work *next;
};

/* Calls of the driver, for DRIVER_COUNTS. */
enum count {
    COUNT_LAUNCHES, COUNT_COPIES, COUNT_WAITS,
    COUNT_CALLS,    /* that give a stream work */
    COUNT_STOPS,    /* of the host, until work is done */
    COUNT_TAKEN,    /* memory, events, streams, graphs that were made */
    COUNT_GRAPHS,   /* that were started */
    COUNT_TOLD,     /* nodes of graphs that were told something new */
    COUNT_OPENED,   /* memory and events of other processes */
    COUNT_EARLY,    /* of them that were given back before they were closed */
    COUNT_LEFT,     /* streams, events, memory (also pinned), there now */
    COUNTS
};
void driver_count(enum count what);
void driver_gone(void); /* one of COUNT_LEFT */

/* CUDA_SUCCESS: the thread may give the stream work. */
CUresult stream_usable(CUstream s);
/* A copy of the work, and of what it owns, behind what the stream has; `waits`:
 * until it is done. */
CUresult stream_give(CUstream s, const struct work *what, bool waits);
/* A kernel that is started. *call: all that it reads. INVALID_VALUE: a GPU
 * refuses it. */
struct started {
    CUfunction function;
    const unsigned *grid, *block; /* [3] */
    unsigned shared;
    void **parameters, **extra;
};
CUresult launch_read(const struct started *of, const void **call);
void *driver_keep(const void *at, size_t bytes);

/* ---- what other processes open (ipc.c) ---- */

enum { SHARED_HEAD = 4096 };
struct shared_head {
    uint64_t serial;     /* process << 32, and a number of it */
    _Atomic int open;
    _Atomic bool gone;   /* its owner has given it back */
};
struct shared_event {
    struct shared_head head;
    CUevent owner;       /* as its process knows it */
    _Atomic uint64_t recorded, asked, done;
};
/* A file of a page and `bytes`, and its first page; NULL: there is none. */
struct shared_head *shared_make(size_t bytes, int *file);
void shared_end(struct shared_head *head, int file);
struct shared_event *shared_event_make(int *file);
void shared_event_end(struct shared_event *event, int file);
/* Whether record `number` is over; from now on it is asked for. */
bool shared_event_done(struct shared_event *event, uint64_t number);
/* `ask` for each event of this process that another one asks for. */
void shared_events_ask(void (*ask)(CUevent));
bool shared_events_any(void);
/* An event that was made for other processes has it; NULL: others. */
struct shared_event *event_shared(CUevent event, int *file);
CUresult event_open(struct shared_event *shared, CUevent *out);
/* Memory that begins there; false: none does. */
bool memory_file(CUdeviceptr at, int *file, uint64_t *bytes, uint64_t *serial);
/* Memory of another process, on the GPU of the thread's context. */
CUresult memory_open(int file, struct shared_head *head, size_t bytes,
                     CUdeviceptr *out);
CUresult memory_close(CUdeviceptr at);
/* Becomes a node of the graph, behind the one before it (graphs.c): so is what
 * a stream is given that is captured. */
CUresult graph_capture(CUgraph graph, const struct work *work);

#endif
