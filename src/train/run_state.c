/* SPDX-License-Identifier: Apache-2.0 */
/* run_state.c - the way of a trainer's state to a checkpoint and back. */
#include "train/run_state.h"

#include <string.h>

#include <lockstep.h>

#include "base/log.h"
#include "base/retry.h"
#include "base/status_kept.h"
#include "checkpoint/best.h"
#include "checkpoint/identity.h"
#include "checkpoint/mirror.h"
#include "control/lease.h"
#include "models/lora.h"
#include "train/local_save.h"

enum { TOKENIZER_COPY_BYTES = 64 << 20 };

status keeper_build(struct keeper *keeper, const struct setup *setup,
                    const struct inventory_of *of, const char *run)
{
    const unsigned kinds = 1u << INVENTORY_WEIGHT | INVENTORY_STATES;

    *keeper = (struct keeper){.setup = setup, .stages = of->stages,
                              .stage_count = of->count,
                              .team = of->team, .run = run};
    TRY(inventory_build(&keeper->inventory, of));
    TRY(session_parts_divide(&keeper->parts, &keeper->inventory, kinds));
    if (setup->model.lora.rank > 0)
        TRY(lora_write_config(&setup->model, false, &keeper->adapter));
    return model_write_config(&setup->model, keeper->inventory.dtype,
                              &keeper->config);
}

void keeper_free(struct keeper *keeper)
{
    session_parts_free(&keeper->parts);
    inventory_free(&keeper->inventory);
    text_free(&keeper->config);
    text_free(&keeper->adapter);
    *keeper = (struct keeper){0};
}

static const char *product_name(const struct setup *setup)
{
    return setup->request.machine.product == PRODUCT_TILES ? "tiles" : "pairs";
}

/* Writes the extra state of a run with a narrow type. */
static void write_narrow(const struct keeper *keeper,
                         const struct counters *counters,
                         struct json_writer *w)
{
    const enum dtype dtype = keeper->setup->request.dtype;

    if (!dtype_is_narrow(dtype)) return;
    json_write_key(w, "dtype");
    json_write_string(w, dtype_name(dtype));
    if (dtype == DTYPE_BF16) {
        json_write_key(w, "bfloat16");
        json_write_string(w, product_name(keeper->setup));
    }
    if (counters->loss_scale <= 0) return;
    json_write_key(w, "loss_scale");
    json_write_real(w, counters->loss_scale);
    json_write_key_integer(w, "loss_scale_steps", counters->good);
    json_write_key_integer(w, "skipped", counters->skipped);
}

static void write_policies(const struct keeper *keeper, struct json_writer *w)
{
    if (keeper->left_out != NULL && keeper->left_out->count > 0) {
        json_write_key(w, "left_out");
        ranges_write(keeper->left_out, w);
    }
    if (keeper->policy != NULL) policy_write(keeper->policy, w);
    if (keeper->noise != NULL) noise_write(keeper->noise, w);
}

/* Whether the micro-batch is a part of the result. */
static bool keeps_micro_batch(const struct keeper *keeper)
{
    return keeper->setup->request.regular.scope == BALANCE_MICRO_BATCH;
}

static void write_balance(const struct keeper *keeper, struct json_writer *w)
{
    if (keeps_micro_batch(keeper))
        json_write_key_integer(w, "micro_batch",
                               keeper->setup->request.size.micro_batch);
    if (keeper->routing != NULL) routing_write(keeper->routing, w);
}

static void write_loss(struct json_writer *w, const char *name, double loss)
{
    json_write_key(w, name);
    json_write_real(w, loss);
}

/* The losses that checkpoint/best.h reads. */
static void write_best(const struct keeper *keeper, const struct counters *c,
                       struct json_writer *w)
{
    if (!keeper->setup->set->values.checkpoint.keep_best) return;
    if (c->valid.step == c->step && c->step > 0)
        write_loss(w, "valid_loss", c->valid.loss);
    if (c->best.step <= 0) return;
    json_write_key_integer(w, "best_step", c->best.step);
    write_loss(w, "best_loss", c->best.loss);
}

static bool keeps_rates(const struct keeper *keeper)
{
    return keeper->setup->request.training.choice.kind ==
           &optimizer_schedule_free;
}

/* records: of a copy in memory, RUN/records (local_run.h); 0: none. */
static status write_state(const struct keeper *keeper,
                          const struct counters *counters, int64_t records,
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
    if (records > 0) json_write_key_integer(w, "records", records);
    write_narrow(keeper, counters, w);
    if (keeps_rates(keeper)) {
        json_write_key(w, "rate_most");
        json_write_real(w, counters->rates.most);
        json_write_key(w, "rate_sum");
        json_write_real(w, counters->rates.sum);
    }
    write_best(keeper, counters, w);
    write_policies(keeper, w);
    write_balance(keeper, w);
    if (keeper->delayed != NULL) TRY(delayed_write(keeper->delayed, w));
    json_write_object_end(w);
    return json_write_end(w);
}

/* ---- saving ---- */

static bool leads(const struct keeper *keeper)
{
    return keeper->team == NULL || team_rank(keeper->team) == 0;
}

static status agree(const struct keeper *keeper, status mine)
{
    return keeper->team == NULL ? mine : team_agree(keeper->team, mine);
}

static status job_agree(const struct keeper_job *job, status mine)
{
    return job->group == NULL ? mine : comm_agree(job->group, mine);
}

static bool job_leads(const struct keeper_job *job)
{
    return job->group == NULL || job->group->rank == 0;
}

/* Sends the ranks' lists of written parts to rank 0 by a tree: in round k,
 * ranks that are odd multiples of 2^k send their lists and those of the ranks
 * after them. */
static status join_shares(struct group *group, struct checkpoint_save *save,
                          void *mine)
{
    const int64_t bytes = (int64_t)checkpoint_share_bytes(save);
    const struct tensor share = tensor_1d(mine, DTYPE_U8, bytes);

    for (int step = 1; step < group->size; step *= 2) {
        if (group->rank & step) {
            checkpoint_save_share(save, mine);
            return comm_send(group, share, group->rank - step, 0);
        }
        if (group->rank + step >= group->size) continue;
        TRY(comm_recv(group, share, group->rank + step, 0));
        checkpoint_save_add(save, mine);
    }
    return OK;
}

/* Every rank its own elements; nothing has its final name yet. */
static status write_together(const struct keeper_job *job,
                             struct checkpoint_save *save)
{
    void *share = NULL;
    status result;

    result = checkpoint_save_write(save, save->plan->parts);
    if (result == OK && !job_leads(job)) result = checkpoint_save_sync(save);
    TRY(job_agree(job, result));
    if (job->group == NULL) return OK;
    TRY(memory_take(checkpoint_share_bytes(save) + 1, 1, &share));
    result = join_shares(job->group, save, share);
    memory_free(share);
    return result;
}

static status save_together(const struct keeper_job *job,
                            const struct checkpoint_plan *plan)
{
    const int rank = job->group == NULL ? 0 : job->group->rank;
    const int ranks = job->group == NULL ? 1 : job->group->size;
    struct checkpoint_save save = {0};
    status result;

    result = rank == 0 ? checkpoint_save_begin(&save, plan) : OK;
    TRY_GOTO(done, result, job_agree(job, result));
    if (rank > 0) result = checkpoint_save_join(&save, plan);
    TRY_GOTO(done, result, job_agree(job, result));
    TRY_GOTO(done, result, write_together(job, &save));
    if (rank == 0) result = checkpoint_save_finish(&save);
    TRY_GOTO(done, result, job_agree(job, result));
    result = checkpoint_save_check(&save, rank, ranks);
    TRY_GOTO(done, result, job_agree(job, result));
    if (rank == 0) result = lease_holds(plan->run, true);
    if (rank == 0 && result == OK) result = checkpoint_save_commit(&save);
    result = job_agree(job, result);
done:
    checkpoint_save_free(&save);
    return result;
}

static int64_t best_kept(const struct keeper *keeper,
                         const struct counters *counters)
{
    return keeper->setup->set->values.checkpoint.keep_best ? counters->best.step
                                                           : -1;
}

static status prune_store(const struct keeper *keeper,
                          const struct keeper_job *job)
{
    const struct options *o = &keeper->setup->set->values;
    const char *store = keeper->local != NULL ? keeper->local->store
                                              : keeper->run;
    int64_t best = best_kept(keeper, &job->counters);

    if (best >= 0) TRY(checkpoint_best_step(store, best, &best));
    return checkpoint_prune(store, o->checkpoint.keep_last,
                            o->checkpoint.keep_every, best);
}

/* An old checkpoint too many is no reason to end a run. */
static void prune(const struct keeper *keeper, struct keeper_job *job)
{
    const struct local_run *local = keeper->local;
    const bool here = local != NULL
                          ? local_leads(local, job->group == NULL
                                                   ? 0 : job->group->rank)
                          : job_leads(job);

    if (!here || prune_store(keeper, job) == OK) return;
    snprintf(job->pruned, sizeof job->pruned, "%s", status_message());
    status_clear();
}

status keeper_mirror(const struct keeper *keeper,
                     const struct counters *counters)
{
    const struct options *o = &keeper->setup->set->values;

    return mirror_send(&(struct mirror_step){
        .run = keeper->run, .url = o->checkpoint.mirror,
        .step = counters->step, .best = best_kept(keeper, counters),
        .writer = keeper->writer,
        .keep_last = o->checkpoint.keep_last,
        .keep_every = o->checkpoint.keep_every, .may_write = lease_holds});
}

/* A storage that is away for a while is no reason to end a run. */
static void send_away(const struct keeper *keeper, struct keeper_job *job)
{
    if (!job_leads(job) || !job->mirrors ||
        keeper->setup->set->values.checkpoint.mirror[0] == '\0' ||
        keeper_mirror(keeper, &job->counters) == OK)
        return;
    snprintf(job->unsent, sizeof job->unsent, "%s", status_message());
    status_clear();
}

status keeper_job_init(struct keeper_job *job, struct keeper *keeper,
                       const struct counters *counters)
{
    *job = (struct keeper_job){
        .group = keeper->team == NULL ? NULL : keeper->team->world,
        .parts = keeper->parts.items, .threads = keeper->stages->threads,
        .counters = *counters};
    TRY(stages_fetch(keeper->stages, keeper->stage_count));
    return write_state(keeper, counters, 0, &job->state);
}

void keeper_job_free(struct keeper_job *job)
{
    if (job->pruned[0] != '\0')
        LOG(WARNING, "checkpoint", "an old one was not removed, the next save "
            "tries again: %s", job->pruned);
    if (job->unsent[0] != '\0')
        LOG(WARNING, "checkpoint", "step %lld is whole on the disk, but not in "
            "checkpoint.mirror, the next save tries again: %s",
            (long long)job->counters.step, job->unsent);
    json_writer_free(&job->state);
    *job = (struct keeper_job){.group = NULL};
}

status keeper_job_run(const struct keeper *keeper, struct keeper_job *job)
{
    const struct tokenizer *t = keeper->tokenizer;
    struct checkpoint_file files[3] = {
        {"config.json", keeper->config.bytes, keeper->config.length}};
    int file_count = 1;

    if (keeper->adapter.length > 0)
        files[file_count++] = (struct checkpoint_file){
            "adapter_config.json", keeper->adapter.bytes,
            keeper->adapter.length};
    if (t != NULL && t->json_length <= TOKENIZER_COPY_BYTES)
        files[file_count++] = (struct checkpoint_file){t->file_name, t->json,
                                                       t->json_length};
    struct checkpoint_plan plan = {
        .run = keeper->run, .step = job->counters.step,
        .tokens = job->counters.tokens, .grid = keeper->setup->grid,
        .lockstep = LOCKSTEP_VERSION, .numerics = LOCKSTEP_NUMERICS_VERSION,
        .config_json = keeper->config.bytes,
        .tokenizer = t != NULL ? t->digest : NULL,
        .state_json = job->state.out.bytes, .parts = job->parts,
        .part_count = keeper->parts.count, .files = files,
        .file_count = file_count, .threads = job->threads};

    TRY(keeper->local != NULL ? local_save(keeper->local, job->group, &plan)
                              : save_together(job, &plan));
    prune(keeper, job);
    send_away(keeper, job);
    return OK;
}

status keeper_save(struct keeper *keeper, const struct counters *counters)
{
    struct keeper_job job;
    status result;

    TRY_GOTO(done, result, keeper_job_init(&job, keeper, counters));
    result = keeper_job_run(keeper, &job);
done:
    keeper_job_free(&job);
    return result;
}

/* ---- restoring ---- */

/* A run goes on in the type, and with the products, that it began with. */
static status read_narrow(const struct keeper *keeper,
                          const struct checkpoint *checkpoint,
                          struct counters *out)
{
    const struct stage_request *r = &keeper->setup->request;
    const char *source = "state.json";
    const struct json *product = json_get(checkpoint->state, "bfloat16");

    if (r->dtype == DTYPE_BF16 && product != NULL &&
        product->kind == JSON_STRING &&
        strcmp(product->string, product_name(keeper->setup)) != 0)
        FAIL(ERR_CONFIG, "%s was trained with numerics.bfloat16=%s, not %s: "
                         "start a new run with init.from",
             checkpoint->directory, product->string,
             product_name(keeper->setup));
    TRY(json_get_real_or(checkpoint->state, source, "loss_scale", 0,
                         &out->loss_scale));
    TRY(json_get_integer_or(checkpoint->state, source, "loss_scale_steps", 0,
                            &out->good));
    return json_get_integer_or(checkpoint->state, source, "skipped", 0,
                               &out->skipped);
}

static status read_policies(const struct keeper *keeper,
                            const struct json *state, const char *source)
{
    if (keeper->left_out != NULL)
        TRY(ranges_join(keeper->left_out, state, source, "left_out"));
    if (keeper->policy != NULL) TRY(policy_read(keeper->policy, state, source));
    return keeper->noise != NULL ? noise_read(keeper->noise, state, source)
                                 : OK;
}

static status read_balance(const struct keeper *keeper,
                           const struct checkpoint *checkpoint,
                           const char *source)
{
    const int64_t now = keeper->setup->request.size.micro_batch;
    int64_t before = now;

    if (keeps_micro_batch(keeper))
        TRY(json_get_integer(checkpoint->state, source, "micro_batch",
                             &before));
    if (before != now)
        FAIL(ERR_CONFIG, "%s was trained with train.micro_batch=%lld, not "
                         "%lld, and moe.balance_scope=micro_batch makes it a "
                         "part of the result: leave it as it was, or start a "
                         "new run with init.from", checkpoint->directory,
             (long long)before, (long long)now);
    return keeper->routing != NULL
               ? routing_read(keeper->routing, checkpoint->state, source) : OK;
}

static status read_best(const struct json *state, const char *source,
                        struct counters *out)
{
    const struct json *loss = json_get(state, "valid_loss");

    out->valid = (struct valid_loss){.step = loss != NULL ? out->step : 0};
    TRY(json_get_real_or(state, source, "valid_loss", 0, &out->valid.loss));
    TRY(json_get_integer_or(state, source, "best_step", 0, &out->best.step));
    return json_get_real_or(state, source, "best_loss", 0, &out->best.loss);
}

static status read_state(const struct keeper *keeper,
                         const struct checkpoint *checkpoint,
                         struct counters *out)
{
    const char *source = "state.json";

    TRY(read_narrow(keeper, checkpoint, out));
    TRY(read_policies(keeper, checkpoint->state, source));
    if (keeper->delayed != NULL)
        TRY(delayed_read(keeper->delayed, checkpoint->state, source));
    TRY(read_balance(keeper, checkpoint, source));
    TRY(json_get_real_or(checkpoint->state, source, "rate_most", 0,
                         &out->rates.most));
    TRY(json_get_real_or(checkpoint->state, source, "rate_sum", 0,
                         &out->rates.sum));
    TRY(json_get_integer(checkpoint->state, source, "step", &out->step));
    TRY(read_best(checkpoint->state, source, out));
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

/* A save that was killed before it named its first checkpoint left no
 * `latest`. */
static status note_unnamed(const struct keeper *keeper, int64_t step,
                           struct text *notice)
{
    bool named;

    TRY(checkpoint_is_named(keeper->run, &named));
    if (named) return OK;
    return text_printf(notice, "%s%s/ckpt/latest names no checkpoint: step "
                       "%lld is the newest whole one",
                       notice->length > 0 ? "; " : "", keeper->run,
                       (long long)step);
}

/* The newest that is whole: rank 0 reads all of it to find out, the others
 * open the same. */
static status open_newest(const struct keeper *keeper,
                          struct checkpoint *checkpoint, struct text *notice)
{
    struct threads *threads = keeper->stages->threads;
    int64_t step = 0;
    char all[PATH_BYTES], directory[PATH_BYTES], name[32];
    status result = OK;

    if (leads(keeper)) {
        result = checkpoint_open_newest_valid(checkpoint, keeper->run,
                                              threads, notice);
        if (result == OK) step = checkpoint->manifest.step;
        if (result == OK) result = note_unnamed(keeper, step, notice);
    }
    TRY(agree(keeper, result));
    if (keeper->team == NULL || keeper->team->world == NULL) return OK;
    TRY(comm_broadcast(keeper->team->world, tensor_1d(&step, DTYPE_I64, 1),
                       0));
    if (leads(keeper)) return OK;
    step_name(name, step);
    TRY(path_join(all, sizeof all, keeper->run, "ckpt"));
    TRY(path_join(directory, sizeof directory, all, name));
    return checkpoint_open_patient(checkpoint, directory, threads);
}

static status read_checkpoint(struct keeper *keeper,
                              struct checkpoint *checkpoint,
                              struct counters *counters)
{
    struct retry retry = {0};
    status result;

    TRY(check_numerics(checkpoint));
    TRY(checkpoint_match_model(checkpoint, keeper->parts.items,
                               keeper->parts.count, keeper->config.bytes));
    if (keeper->tokenizer != NULL)
        TRY(checkpoint_match_tokenizer(checkpoint,
                                       keeper->tokenizer->digest));
    TRY(read_state(keeper, checkpoint, counters));
    do result = session_parts_load(&keeper->parts, checkpoint);
    while (retry_again(&retry, result));
    return result;
}

static struct group *group_of(const struct keeper *keeper)
{
    return keeper->team == NULL ? NULL : keeper->team->world;
}

/* From the machines' disks; where no step is whole there, from RUN/ckpt. */
static status open_local(const struct keeper *keeper,
                         struct local_source *source,
                         struct checkpoint *checkpoint, struct text *notice)
{
    struct status_trace kept;
    const status result =
        local_open_newest(keeper->local, group_of(keeper),
                          keeper->stages->threads, source, checkpoint, notice);

    if (result != ERR_MISSING) return result;
    status_keep(&kept);
    const status other = open_newest(keeper, checkpoint, notice);

    return other == ERR_MISSING ? status_again(other, &kept) : other;
}

status keeper_restore(struct keeper *keeper, struct counters *counters,
                      struct text *notice)
{
    struct local_source source = {.list.count = 0};
    struct checkpoint checkpoint = {0};
    status result;

    TRY_GOTO(done, result,
             keeper->local != NULL
                 ? open_local(keeper, &source, &checkpoint, notice)
                 : open_newest(keeper, &checkpoint, notice));
    TRY_GOTO(done, result,
             agree(keeper, read_checkpoint(keeper, &checkpoint, counters)));
    result = stages_store(keeper->stages, keeper->stage_count);
done:
    checkpoint_close(&checkpoint);
    local_source_close(&source);
    return result;
}

/* ---- copies in memory ---- */

status keeper_state(struct keeper *keeper, const struct counters *counters,
                    struct text *out)
{
    struct counters kept = *counters;
    struct json_writer w = {0};
    status result;

    kept.data_tokens = kept.data_crc = 0; /* nobody can have changed them */
    TRY_GOTO(done, result,
             write_state(keeper, &kept,
                         keeper->local != NULL ? keeper->local->records : 0,
                         &w));
    result = text_append(out, w.out.bytes, w.out.length);
done:
    json_writer_free(&w);
    return result;
}

status keeper_read_state(struct keeper *keeper, const char *state,
                         size_t length, int64_t step,
                         struct counters *counters)
{
    struct checkpoint memory = {.directory = "the copy in memory"};
    struct arena arena;
    status result;

    arena_init(&arena, "copy in memory", 0);
    memory.manifest.step = step;
    TRY_GOTO(done, result, json_read(&memory.state, &arena, state,
                                     strnlen(state, length),
                                     memory.directory));
    result = read_state(keeper, &memory, counters);
done:
    arena_free(&arena);
    return result;
}

status keeper_state_records(const char *state, size_t length, int64_t *records)
{
    const char *source = "the copy in memory";
    const struct json *root;
    struct arena arena;
    status result;

    arena_init(&arena, source, 0);
    result = json_read(&root, &arena, state, strnlen(state, length), source);
    if (result == OK)
        result = json_get_integer_or(root, source, "records", 0, records);
    arena_free(&arena);
    return result;
}
