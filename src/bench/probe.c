/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - the peaks of the machine, measured in the run that is judged by
 * them. */
#include "bench/probe.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/text.h"

enum { ROUNDS = 5 };

double probe_now_s(void)
{
    return clock_s();
}

double probe_thread_s(void)
{
    return clock_thread_s();
}

status probe_memory(const char *who, double bytes, const char *hint)
{
    const double has = (double)sysconf(_SC_PHYS_PAGES) *
                       (double)sysconf(_SC_PAGESIZE);
    char asked[32], present[32];

    if (bytes <= has) return OK;
    return status_hint(
        status_fail(ERR_MEMORY, __FILE__, __LINE__,
                    "%s needs %s, this machine has %s", who,
                    text_bytes(asked, (uint64_t)bytes),
                    text_bytes(present, (uint64_t)has)), "%s", hint);
}

status probe_memory_rate(const struct kernels *kernels, struct stream *stream,
                         size_t area_bytes, double *bytes_per_s)
{
    const int64_t elements = (int64_t)(area_bytes /
                                       (size_t)dtype_bytes(kernels->dtype));
    struct tensor areas[3];
    struct arena arena;
    double best = 0;
    status result = OK;

    arena_init(&arena, "bandwidth", 0);
    for (int i = 0; i < 3; i++) {
        void *data;

        TRY_GOTO(done, result, arena_take(&arena, area_bytes, &data));
        memset(data, 0, area_bytes); /* pages of our own */
        areas[i] = tensor_1d(data, kernels->dtype, elements);
    }
    for (int i = 0; i < ROUNDS; i++) {
        double before = probe_now_s(), rate;

        TRY_GOTO(done, result, kernels->add(stream, areas[0], areas[1],
                                            areas[2]));
        rate = 3.0 * (double)area_bytes / (probe_now_s() - before);
        if (rate > best) best = rate;
    }
    *bytes_per_s = best;
done:
    arena_free(&arena);
    return result;
}

status probe_peer_open(struct probe_peer *peer)
{
    static const char *const names[] = {"libdnnl.so.2", "libdnnl.so.3"};

    peer->library = NULL;
    for (int i = 0; i < 2 && !peer->library; i++)
        peer->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!peer->library) return OK;
    /* ISO C has no cast from an object pointer to a function's. */
    *(void **)&peer->sgemm = dlsym(peer->library, "dnnl_sgemm");
    if (!peer->sgemm) probe_peer_close(peer);
    return threads_check_rounding();
}

void probe_peer_close(struct probe_peer *peer)
{
    if (peer->library) dlclose(peer->library);
    peer->library = NULL;
}
