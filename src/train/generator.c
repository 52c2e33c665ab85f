/* SPDX-License-Identifier: Apache-2.0 */
/* generator.c - the logits of the next token, over a key-value cache. */
#include "train/generator.h"

enum { CHUNK = 256 }; /* tokens of a prompt at once */

static status keep_logits(void *argument, int64_t token,
                          const struct tensor *logits)
{
    struct generator *g = argument;

    (void)token;
    g->logits = *logits;
    return OK;
}

status generator_open(struct generator *g, struct session *session,
                      enum dtype dtype, int threads, int64_t prompt,
                      int64_t context)
{
    struct stage_request plan;
    int64_t chunk = prompt < CHUNK ? prompt : CHUNK;

    *g = (struct generator){.context = context};
    CHECK(prompt >= 1 && prompt <= context);
    TRY(session_request(session, 1, chunk, &plan));
    /* A leaf needs a token, even where nothing is summed over tokens. */
    if (chunk < plan.grid.tensor) chunk = plan.grid.tensor;
    plan.mode = PROGRAM_GENERATE;
    plan.dtype = dtype;
    plan.length = chunk;
    plan.context = context > chunk ? context : chunk;
    if (threads > 0) plan.threads = threads;
    TRY(session_stage(session, &plan, &g->stage));
    g->stage.run.read_logits = keep_logits;
    g->stage.run.read_argument = g;
    return OK;
}

void generator_close(struct generator *g)
{
    stage_free(&g->stage);
    *g = (struct generator){0};
}

status generator_feed(struct generator *g, const int32_t *ids, int64_t count)
{
    const int64_t most = g->stage.program.length;

    if (count > g->context - g->position)
        FAIL(ERR_CONFIG, "%lld tokens after %lld do not fit into a context of "
                         "%lld", (long long)count, (long long)g->position,
             (long long)g->context);
    for (int64_t first = 0; first < count; first += most) {
        const int64_t left = count - first;
        const int64_t now = left < most ? left : most;

        g->stage.run.batch = (struct batch){.inputs = ids + first,
                                            .tokens = now,
                                            .first_position = g->position};
        TRY(run_forward(&g->stage.run));
        g->position += now;
    }
    return OK;
}
