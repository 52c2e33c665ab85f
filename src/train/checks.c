/* SPDX-License-Identifier: Apache-2.0 */
/* checks.c - checks of a configuration beside those of setup_resolve. */
#include "train/checks.h"

#include <string.h>

#include "base/file.h"
#include "base/threads.h"
#include "checkpoint/run_dir.h"
#include "checkpoint/s3_text.h"
#include "comm/launch.h"
#include "comm/process.h"
#include "train/validation_tasks.h"
#include "train/feed.h"
#include "train/validation_sets.h"
#include "step/noise.h"
#include "step/policy.h"
#include "observe/prometheus.h"
#include "inference/prompts.h"

enum { THREADS_A_CORE = 4 };

/* Rewinding to checkpoints that a clock made would let it decide the result. */
static status check_rewind(const struct options *o)
{
    const char *option = policy_rewind_option(o);

    if (o->checkpoint.every > 0 || option == NULL) return OK;
    FAIL(ERR_CONFIG, "%s: rewind goes back to checkpoints by step count, "
                     "and checkpoint.every is 0: the run would begin again at "
                     "step 0; set checkpoint.every to some steps", option);
}

static status check_policy(const struct options *o)
{
    struct policy policy = {0};
    const status result = policy_build(&policy, o);

    policy_free(&policy);
    TRY(result);
    return check_rewind(o);
}

static status check_prompts(const struct setup *setup,
                            const struct tokenizer *tokenizer)
{
    struct prompts prompts;
    const status result = prompts_open(&prompts, setup, tokenizer);

    prompts_close(&prompts);
    return result;
}

/* Ranks would wait for the one that sends. */
static status check_mirror(const struct options *o)
{
    struct s3_place place;

    if (o->checkpoint.mirror[0] == '\0') return OK;
    if (s3_place_parse(&place, o->checkpoint.mirror) != OK)
        FAIL(ERR_CONFIG, "checkpoint.mirror: %s", status_message());
    if (o->checkpoint.async) return OK;
    FAIL(ERR_CONFIG, "checkpoint.mirror: checkpoints are sent to %s while "
                     "training goes on; set checkpoint.async=true",
         o->checkpoint.mirror);
}

/* Other launchers do not say who shares a machine, nor fetch anything. */
static status check_local(const struct options *o)
{
    if (o->checkpoint.local[0] == '\0') return OK;
    if (o->checkpoint.mirror[0] != '\0')
        FAIL(ERR_CONFIG, "checkpoint.local and checkpoint.mirror: what is sent "
                         "to a storage is sent from RUN/ckpt; leave out one "
                         "of them");
    if (launch_rank() < 0 || process_is_rank()) return OK;
    FAIL(ERR_CONFIG, "checkpoint.local: ranks under MPI cannot fetch what "
                     "other machines keep; use lockstep supervise and "
                     "lockstep agent, or leave it out");
}

/* The best of validations needs several. */
static status check_best(const struct options *o)
{
    if (!o->checkpoint.keep_best) return OK;
    if (o->validate.every == 0)
        FAIL(ERR_CONFIG, "checkpoint.keep_best: validate.every is 0, so only "
                         "the last step has a validation loss; set "
                         "validate.every");
    if (o->data.valid.count == 0 && o->data.valid_share == 0)
        FAIL(ERR_CONFIG, "checkpoint.keep_best: there is nothing to validate "
                         "with; set data.valid or data.valid_share");
    return OK;
}

status checks_run(const struct setup *setup,
                  const struct tokenizer *tokenizer)
{
    const struct options *o = &setup->set->values;
    struct noise noise;

    TRY(setup_check_length(o));
    TRY(feed_check(setup, tokenizer));
    TRY(check_policy(o));
    TRY(check_mirror(o));
    TRY(check_local(o));
    TRY(check_best(o));
    TRY(noise_plan(&noise, o, setup->grid.data));
    TRY(validation_sets_check(o));
    TRY(validation_tasks_check(setup, tokenizer));
    TRY(check_prompts(setup, tokenizer));
    return o->observe.prometheus[0] != '\0'
               ? prometheus_check(o->observe.prometheus) : OK;
}

static void note_files(const char *option, const struct option_list *list)
{
    for (int i = 0; i < list->count; i++)
        if (!file_exists(list->items[i]) && !file_is_directory(list->items[i]))
            fprintf(stderr, "note: %s: %s is not there yet; train stops "
                            "without it\n", option, list->items[i]);
}

void checks_note_threads(int threads)
{
    const int cores = threads_cores();

    if (threads <= THREADS_A_CORE * cores) return;
    fprintf(stderr, "warning   train.threads: %d threads of a rank take turns "
                    "on %d core%s, which makes steps slower; leave the option "
                    "out for one thread on each core\n", threads, cores,
            cores > 1 ? "s" : "");
}

void checks_note_warmup(int64_t warmup, int64_t steps)
{
    if (warmup > steps && steps > 0)
        fprintf(stderr, "notice    optimizer.warmup is %lld steps, but the run "
                        "has %lld: it warms up during all of them\n",
                (long long)warmup, (long long)steps);
}

void checks_note_decay(const struct setup *setup)
{
    const struct options *o = &setup->set->values;
    const struct rate *rate = &setup->rate;

    if (rate->curve != RATE_WSD) {
        if (rate->decay != DECAY_LINEAR)
            fprintf(stderr, "notice    optimizer.decay_type: %s has no effect "
                            "with optimizer.schedule=%s; only wsd decays so\n",
                    o->optimizer.decay_type, o->optimizer.schedule);
        return;
    }
    if (rate->warmup >= rate->steps) return;
    const double after = setup_rate(setup, rate->warmup);

    if (after < rate->peak * (1 - 1e-9))
        fprintf(stderr, "notice    optimizer.warmup is %lld of %lld steps, and "
                        "optimizer.decay_share %g: the decay begins first, so "
                        "the rate falls from %.3g to %.3g where the warm-up "
                        "ends\n", (long long)rate->warmup,
                (long long)rate->steps, rate->decay_share, rate->peak, after);
}

void checks_note_schedule(const struct setup *setup)
{
    const char *name = setup->set->values.schedule.name;

    if (setup->mesh.size[AXIS_PIPE] == 1 && setup_schedule_is_file(name))
        fprintf(stderr, "notice    schedule.name: %s is not read: mesh.pipe is "
                        "1, and one stage needs no pipeline schedule\n", name);
}

void checks_note_missing(const struct options *o)
{
    struct model_place place;

    if (feed_check_named(o) != OK) {
        fprintf(stderr, "note: %s; train stops without\n", status_message());
        status_clear();
    }
    note_files("data.train", &o->data.train);
    note_files("data.valid", &o->data.valid);
    if (o->init.from[0] == '\0' || file_is_directory(o->init.from) ||
        model_place_find(o->init.from, &place) == OK)
        return;
    status_clear();
    fprintf(stderr, "note: init.from: %s is no directory; train stops "
                    "without\n", o->init.from);
}
