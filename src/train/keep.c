/* SPDX-License-Identifier: Apache-2.0 */
/* keep.c - what survives: a trainer's state to a checkpoint and back. */
#include "train/keep.h"

#include <lockstep.h>

#include "checkpoint/identity.h"

enum { TOKENIZER_COPY_BYTES = 64 << 20 };

static const struct {
    enum memory_owner owner;
    const char *kind;
} arenas[] = {{MEMORY_WEIGHTS, "weight"}, {MEMORY_FIRST_MOMENT, "m"},
              {MEMORY_SECOND_MOMENT, "v"}};
enum { ARENAS = sizeof arenas / sizeof *arenas };

status keeper_build(struct keeper *keeper, const struct setup *setup,
                    struct stage *stage, const char *run)
{
    *keeper = (struct keeper){.setup = setup, .stage = stage, .run = run};
    for (int i = 0; i < ARENAS; i++) {
        void *flat = stage->memory[arenas[i].owner].data;

        if (stage_divides(stage, arenas[i].owner)) {
            TRY(memory_take((size_t)stage->program.params.elements,
                            (size_t)dtype_bytes(stage->program.dtype),
                            &keeper->full[i]));
            flat = keeper->full[i];
        }
        TRY(session_parts_add(&keeper->parts, stage, arenas[i].kind, flat));
    }
    return model_write_config(&setup->model, stage->program.dtype,
                              &keeper->config);
}

void keeper_free(struct keeper *keeper)
{
    session_parts_free(&keeper->parts);
    for (int i = 0; i < ARENAS; i++) memory_free(keeper->full[i]);
    text_free(&keeper->config);
    *keeper = (struct keeper){0};
}

status keeper_collect(struct keeper *keeper, struct zero *zero)
{
    for (int i = 0; i < ARENAS; i++) {
        const struct update_arena arena = {
            keeper->stage->memory[arenas[i].owner].data, true};

        if (keeper->full[i] != NULL)
            TRY(zero_collect(zero, &arena, keeper->full[i]));
    }
    return OK;
}

void keeper_divide(struct keeper *keeper)
{
    for (int i = 0; i < ARENAS; i++)
        if (keeper->full[i] != NULL)
            stage_take_shards(keeper->stage, keeper->full[i],
                              keeper->stage->memory[arenas[i].owner].data);
}

static status write_state(const struct counters *counters,
                          struct json_writer *w)
{
    json_write_begin(w, 2);
    json_write_object(w);
    json_write_key_integer(w, "step", counters->step);
    json_write_key_integer(w, "tokens", counters->tokens);
    json_write_key_integer(w, "samples", counters->samples);
    json_write_key_integer(w, "epoch", counters->epoch);
    json_write_key_integer(w, "data_tokens", counters->data_tokens);
    json_write_key_integer(w, "data_crc32c", counters->data_crc);
    json_write_object_end(w);
    return json_write_end(w);
}

status keeper_save(struct keeper *keeper, const struct counters *counters)
{
    const struct options *o = &keeper->setup->set->values;
    const struct tokenizer *t = &keeper->setup->tokenizer;
    struct checkpoint_file files[2] = {
        {"config.json", keeper->config.bytes, keeper->config.length},
        {"tokenizer.json", t->json, t->json_length}};
    const bool copy = keeper->setup->has_tokenizer &&
                      t->json_length <= TOKENIZER_COPY_BYTES;
    struct json_writer state = {0};
    status result;

    TRY_GOTO(done, result, write_state(counters, &state));
    const struct checkpoint_plan plan = {
        .run = keeper->run, .step = counters->step,
        .tokens = counters->tokens, .grid = keeper->setup->grid,
        .lockstep = LOCKSTEP_VERSION, .numerics = LOCKSTEP_NUMERICS_VERSION,
        .config_json = keeper->config.bytes,
        .tokenizer = keeper->setup->has_tokenizer ? t->digest : NULL,
        .state_json = state.out.bytes, .parts = keeper->parts.items,
        .part_count = keeper->parts.count, .files = files,
        .file_count = copy ? 2 : 1, .threads = keeper->stage->threads};

    TRY_GOTO(done, result, checkpoint_save(&plan));
    TRY_GOTO(done, result, checkpoint_prune(keeper->run,
                                            o->checkpoint.keep_last,
                                            o->checkpoint.keep_every));
done:
    json_writer_free(&state);
    return result;
}

static status read_state(const struct checkpoint *checkpoint,
                         struct counters *out)
{
    const char *source = "state.json";

    TRY(json_get_integer(checkpoint->state, source, "step", &out->step));
    TRY(json_get_integer(checkpoint->state, source, "tokens", &out->tokens));
    TRY(json_get_integer(checkpoint->state, source, "samples",
                         &out->samples));
    TRY(json_get_integer(checkpoint->state, source, "epoch", &out->epoch));
    TRY(json_get_integer_or(checkpoint->state, source, "data_tokens", 0,
                            &out->data_tokens));
    TRY(json_get_integer_or(checkpoint->state, source, "data_crc32c", 0,
                            &out->data_crc));
    if (out->step != checkpoint->manifest.step || out->samples < 0)
        FAIL(ERR_FORMAT, "%s: state.json is of step %lld, the manifest of "
                         "step %lld", checkpoint->directory,
             (long long)out->step, (long long)checkpoint->manifest.step);
    return OK;
}

static status check_numerics(const struct checkpoint *c)
{
    if (c->manifest.numerics == LOCKSTEP_NUMERICS_VERSION) return OK;
    FAIL(ERR_CONFIG, "%s was made with numerics version %lld, this program has "
                     "%d: the bits would change silently; start a new run with "
                     "init.from", c->directory,
         (long long)c->manifest.numerics, LOCKSTEP_NUMERICS_VERSION);
}

status keeper_restore(struct keeper *keeper, struct counters *counters,
                      struct text *notice)
{
    struct checkpoint checkpoint = {0};
    status result;

    TRY_GOTO(done, result,
             checkpoint_open_newest_valid(&checkpoint, keeper->run,
                                          keeper->stage->threads, notice));
    TRY_GOTO(done, result, check_numerics(&checkpoint));
    TRY_GOTO(done, result,
             checkpoint_match_model(&checkpoint, keeper->parts.items,
                                    keeper->parts.count,
                                    keeper->config.bytes));
    if (keeper->setup->has_tokenizer)
        TRY_GOTO(done, result,
                 checkpoint_match_tokenizer(&checkpoint,
                                            keeper->setup->tokenizer.digest));
    TRY_GOTO(done, result, read_state(&checkpoint, counters));
    TRY_GOTO(done, result, session_parts_load(&keeper->parts, &checkpoint));
done:
    checkpoint_close(&checkpoint);
    return result;
}

status keeper_grid(const char *run, struct grid *out)
{
    struct checkpoint checkpoint = {0};
    char directory[PATH_BYTES];
    int64_t step;
    status result;

    TRY_GOTO(done, result, checkpoint_find_newest(run, directory, &step));
    TRY_GOTO(done, result, checkpoint_open(&checkpoint, directory, NULL));
    *out = checkpoint.manifest.grid;
done:
    checkpoint_close(&checkpoint);
    return result;
}
