/* SPDX-License-Identifier: Apache-2.0 */
/* context_method.c - how context ranks attend. */
#include "plan/context_method.h"

/* True if a rank of a ring holds two nodes of attention's tree. */
static bool ring_spans(const struct stage_request *r)
{
    const int64_t exchange = r->layout.method.exchange > 0
                             ? r->layout.method.exchange : 1;
    const int64_t ranks = r->layout.mesh.size[AXIS_CONTEXT] / exchange;
    const int64_t granules = r->size.length / (2 * ranks) / ATTENTION_GRANULE;

    return ranks > 1 && granules > 0 && (granules & (granules - 1)) == 0 &&
           granules * ATTENTION_GRANULE * 2 * ranks == r->size.length;
}

status context_method_check(const struct stage_request *r)
{
    const int64_t exchange = r->layout.method.exchange > 0
                             ? r->layout.method.exchange : 1;
    const int64_t ranks = r->layout.mesh.size[AXIS_CONTEXT] / exchange;
    int64_t near = 2 * ranks * ATTENTION_GRANULE;

    if (!r->layout.method.strict || ranks == 1 || ring_spans(r)) return OK;
    while (2 * near <= r->size.length) near *= 2;
    FAIL(ERR_CONFIG, "context.kind: ring needs spans of %d times a power of "
                     "two tokens; %lld tokens over %lld ranks, two spans each, "
                     "are not; %lld tokens are, and context.kind=allgather "
                     "takes any", ATTENTION_GRANULE, (long long)r->size.length,
         (long long)ranks, (long long)near);
}

struct context_method context_method_used(const struct stage_request *r)
{
    struct context_method method = r->layout.method;

    if (method.exchange == 0) method.exchange = 1;
    method.striped = method.striped && r->layout.mesh.size[AXIS_CONTEXT] > 1;
    method.ring = method.striped || (method.ring && ring_spans(r));
    return method;
}
