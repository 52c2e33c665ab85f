/* SPDX-License-Identifier: Apache-2.0 */
/* gather.c - `lockstep gather`: a run whose machines keep its shards gets a
 * checkpoint in one directory. */
#include <stdio.h>
#include <string.h>
#include "checkpoint/best.h"
#include "checkpoint/history.h"
#include "cli/run.h"
#include "control/muster.h"
#include "control/place.h"
#include "train/local_run.h"
#include "train/trainer.h"

enum { WAIT_S = 60 };

struct gathering {
    const char *run;
    struct local_run local;
    struct far_nodes far;       /* lines "": none */
    char directory[PATH_BYTES]; /* checkpoint.local */
    int64_t step;               /* that was gathered; */
    int64_t best;               /* and that one; 0: none was recorded, or not
                                 * all of its shards are here */
};

/* With checkpoint.keep_best the step that the newest knows as the best. */
static status gather_best(struct gathering *g, struct local_source *source)
{
    struct text notice = {0};
    char newest[PATH_BYTES];
    int64_t step, best, found = -1;
    status result;

    TRY(checkpoint_find_newest(g->run, newest, &step));
    TRY(checkpoint_best_known(newest, &best));
    g->best = best == step ? best : 0;
    if (best <= 0 || best >= step) return OK;
    shards_close(&source->shards);
    result = local_source_newest(source, best + 1, &found, &notice);
    if (result == OK && found == best) {
        g->best = best;
        result = shards_gather(&source->shards, g->run, false);
    } else { /* the newest is here, whatever older ones are */
        const bool unread = result != OK;

        result = unread ? text_printf(&notice, "%s", status_message()) : OK;
        status_clear();
        fprintf(stderr, "notice    the validation loss was lowest at step "
                "%lld, which is not whole here%s%s\n", (long long)best,
                notice.length > 0 ? ": " : "",
                notice.length > 0 ? notice.bytes : "");
    }
    text_free(&notice);
    return result;
}

/* One at a time: another would remove what this one has not renamed yet. */
static status take_lock(struct file_lock *lock, const char *run)
{
    char path[PATH_BYTES];
    status result;

    TRY(path_join(path, sizeof path, run, "gather.lock"));
    result = file_lock_take(lock, path);
    if (result != ERR_CONFIG) return result;
    return status_hint(result, "another lockstep gather is at work in %s; it "
                               "makes the same checkpoint", run);
}

/* From this machine, and those whose agents are here. */
static status gather(struct gathering *g)
{
    struct local_source source;
    struct file_lock lock = {.descriptor = -1};
    struct text notice = {0};
    status result;

    TRY_GOTO(done, result, local_source_list(&source, &g->local, &g->far,
                                             &notice));
    TRY_GOTO(done, result, local_source_newest(&source, INT64_MAX, &g->step,
                                               &notice));
    if (g->step < 0)
        FAIL_GOTO(done, result, ERR_MISSING, "%s: no step is whole: %s",
                  g->directory, notice.length > 0 ? notice.bytes
                                                  : "there is none");
    if (notice.length > 0)
        fprintf(stderr, "notice    %s\n", notice.bytes);
    TRY_GOTO(done, result, directory_make_private(g->run));
    TRY_GOTO(done, result, take_lock(&lock, g->run));
    TRY_GOTO(done, result, shards_gather(&source.shards, g->run, true));
    TRY_GOTO(done, result, local_bring_from_step(&g->local, &source.shards));
    result = gather_best(g, &source);
done:
    file_lock_drop(&lock);
    local_source_close(&source);
    text_free(&notice);
    return result;
}

static status gather_from(void *argument, const char *lines)
{
    struct gathering *g = argument;

    g->far.lines = lines;
    return gather(g);
}

/* ---- the command ---- */

/* checkpoint.local: as said, or as the run says. */
static status find_directory(const struct arguments *arguments,
                             struct gathering *g)
{
    const char *said = arguments_text(arguments, "local", NULL);
    struct options_set set = {0};
    status result = OK;

    if (said == NULL) {
        TRY(options_init(&set));
        result = trainer_options(&set, g->run, NULL, 0);
        said = set.values.checkpoint.local;
    }
    if (result == OK && said[0] == '\0')
        result = status_fail(ERR_CONFIG, __FILE__, __LINE__, "%s: its "
                             "checkpoints are in %s/ckpt: nothing is to be "
                             "gathered (checkpoint.local is empty)", g->run,
                             g->run);
    if (result == OK) result = path_absolute(said, g->directory);
    options_free(&set);
    return result;
}

static status find_local(struct gathering *g)
{
    struct local_run *l = &g->local;

    l->used = true;
    snprintf(l->node, sizeof l->node, ".");
    memcpy(l->stores.directory, g->directory, sizeof g->directory);
    return path_absolute(g->run, l->stores.run);
}

status command_gather(struct arguments *arguments)
{
    static struct gathering g;
    const char *listen = arguments_text(arguments, "listen", NULL);
    const char *token = arguments_text(arguments, "token", NULL);
    int64_t nodes = 1, seconds = WAIT_S;

    g = (struct gathering){.run = arguments->operands[0], .far.lines = ""};
    TRY(arguments_integer(arguments, "nodes", 1, NODES_MOST, &nodes));
    TRY(arguments_integer(arguments, "wait", 0, 1000000, &seconds));
    if ((listen == NULL) != (token == NULL))
        FAIL(ERR_USAGE, "gather: --listen HOST:PORT and --token FILE go "
                        "together: agents join there");
    TRY(find_directory(arguments, &g));
    TRY(find_local(&g));
    if (token != NULL) TRY(token_read(&g.far.token, token));
    TRY(listen == NULL
            ? gather(&g)
            : muster(&(struct muster){
                  .listen = listen, .token = &g.far.token,
                  .stores = &g.local.stores, .nodes = (int)nodes,
                  .seconds = seconds, .work = gather_from, .argument = &g}));
    printf("%s has the checkpoint of step %lld\n", g.run, (long long)g.step);
    if (g.best > 0)
        printf("%s/best is the checkpoint of step %lld\n", g.run,
               (long long)g.best);
    return OK;
}
