/* SPDX-License-Identifier: Apache-2.0 */
/* supervise.c - `lockstep supervise` and `lockstep agent`: runs whose ranks are
 * on several machines, or on one with spares. */
#include "cli/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "checkpoint/history.h"
#include "cli/config.h"
#include "cli/run.h"
#include "comm/crew.h"
#include "comm/inheritance.h"
#include "comm/launch.h"
#include "comm/patience.h"
#include "comm/process.h"
#include "control/agent.h"
#include "control/place.h"
#include "control/report.h"
#include "control/supervisor.h"
#include "train/elastic.h"
#include "train/launch_record.h"
#include "train/trainer.h"

/* ---- what a supervisor asks ---- */

struct errand {
    const struct arguments *arguments;
    const char *config, *run;   /* config NULL: the run goes on */
    struct elastic elastic;
    /* The agent on this machine; slots 0: there is none. */
    int slots, token_file;
    pid_t agent;
    int waits;                  /* times in a row that it lived and was asked
                                 * for */
};

enum { REPLICAS = 2, AGENT_WAITS = 4, AGENT_END_MS = 10000 };

static status add_word(struct order *order, size_t *used, const char *word)
{
    const size_t length = strlen(word) + 1;

    if (*used + length > sizeof order->text)
        FAIL(ERR_CONFIG, "the command line of a rank is longer than %zu "
             "bytes; put settings into a file", sizeof order->text);
    memcpy(order->text + *used, word, length);
    *used += length;
    order->words++;
    return OK;
}

static status add_flag(struct order *order, size_t *used, const char *name,
                       const char *value)
{
    char flag[64];

    snprintf(flag, sizeof flag, "--%s", name);
    TRY(add_word(order, used, flag));
    if (value[0] != '\0') TRY(add_word(order, used, value));
    return OK;
}

/* Flags of this command that a rank has, too. A run that has begun knows its
 * settings, but for those of a resume. */
static bool is_passed_on(const struct errand *errand, bool again,
                         const char *name)
{
    static const char *const always[] = {"copies", "threads", "isa"};

    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (strcmp(name, always[i]) == 0) return true;
    if (strcmp(name, "set") == 0) return !again || errand->config == NULL;
    return !again && strcmp(name, "scale") == 0;
}

static status words(void *argument, bool again, const char *layout,
                    struct order *order)
{
    const struct errand *errand = argument;
    const struct arguments *a = errand->arguments;
    size_t used = 0;

    TRY(add_word(order, &used, again ? "resume" : "train"));
    TRY(add_word(order, &used, again ? errand->run : errand->config));
    if (!again) TRY(add_flag(order, &used, "run", errand->run));
    for (int i = 0; i < a->given_count; i++)
        if (is_passed_on(errand, again, a->given[i].flag->name))
            TRY(add_flag(order, &used, a->given[i].flag->name,
                         a->given[i].value));
    for (const char *at = layout; *at != '\0';) {
        const size_t length = strcspn(at, " ");
        char setting[LAYOUT_WORDS_BYTES];

        snprintf(setting, sizeof setting, "%.*s", (int)length, at);
        TRY(add_flag(order, &used, "set", setting));
        at += length + (at[length] == ' ');
    }
    return OK;
}

static status layout(void *argument, int most, char out[LAYOUT_WORDS_BYTES],
                     int *ranks)
{
    const struct errand *errand = argument;

    return elastic_layout(&errand->elastic, most, out, ranks);
}

/* The agent of this machine is a process of its own: it outlives what hurts
 * the supervisor. */
static status start_agent(void *argument, const char *address)
{
    struct errand *errand = argument;
    char token[64], slots[16];
    char *argv[] = {"lockstep", "agent", "--join",
                    (char *)(uintptr_t)address, "--token", token, "--slots",
                    slots, "--name", "here", NULL};

    if (errand->agent > 0 && waitpid(errand->agent, NULL, WNOHANG) == 0) {
        if (++errand->waits < AGENT_WAITS) return OK;
        kill(errand->agent, SIGKILL); /* it hangs */
        waitpid(errand->agent, NULL, 0);
    }
    if (errand->agent > 0)
        fprintf(stderr, "agent     of this machine is gone: it is started "
                        "again\n");
    errand->waits = 0;
    snprintf(slots, sizeof slots, "%d", errand->slots);
    snprintf(token, sizeof token, "/proc/self/fd/%d", errand->token_file);
    fflush(NULL);
    errand->agent = fork();
    if (errand->agent < 0)
        FAIL(ERR_MEMORY, "an agent cannot be started: %s", strerror(errno));
    if (errand->agent > 0) return OK;
    sigset_t set;

    sigfillset(&set);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    setpgid(0, 0);
    fcntl(errand->token_file, F_SETFD, 0); /* stays open over exec */
    execv("/proc/self/exe", argv);
    fprintf(stderr, "an agent cannot be started: %s\n", strerror(errno));
    _exit(127);
}

/* It ends with the run, unless it hangs. */
static void end_agent(struct errand *errand)
{
    const struct timespec pause = {0, 10000000};
    const int64_t end = clock_ns() + (int64_t)AGENT_END_MS * 1000000;

    if (errand->agent <= 0) return;
    while (clock_ns() < end) {
        if (waitpid(errand->agent, NULL, WNOHANG) != 0) return;
        nanosleep(&pause, NULL);
    }
    kill(errand->agent, SIGKILL);
    waitpid(errand->agent, NULL, 0);
}

/* ---- the supervisor ---- */

static struct supervision supervision_of(struct errand *errand,
                                         const struct options *o, int ranks)
{
    return (struct supervision){
        .ranks = ranks, .run = errand->run, .words = words, .layout = layout,
        .saved = supervised_saved,
        .limit_ms = 1000 * (o->comm.limit > 0 ? o->comm.limit : 600),
        .local = o->checkpoint.local, .argument = errand,
        .replicas = REPLICAS};
}

status supervised_check(const struct options *o)
{
    if (launch_rank() >= 0)
        FAIL(ERR_USAGE, "--supervised starts the ranks itself; it cannot be "
             "one of the ranks that %s RANKS started", launch_command());
    if (o->run.dir[0] == '\0')
        FAIL(ERR_CONFIG, "run.dir: say where the run goes, in the file or with "
                         "--run DIR");
    return OK;
}

bool supervised_saved(const char *run)
{
    int64_t *steps;
    int count;

    if (checkpoint_steps(run, &steps, &count) != OK) status_clear();
    memory_free(steps);
    return count > 0;
}

/* ---- a run whose supervisor died ---- */

enum { WORDS_BYTES = 4096 };

static pid_t parent_of(pid_t process)
{
    char text[WORDS_BYTES];
    const char *at;
    long parent = 0;

    if (crew_read(process, "stat", text, sizeof text) == 0) return 0;
    at = strrchr(text, ')'); /* then the state, and the parent */
    if (at == NULL || strlen(at) < 5) return 0;
    parent = strtol(at + 3, NULL, 10);
    return (pid_t)parent;
}

/* The word behind `flag` in a command line; "": there is none. */
static const char *word_behind(const char *words, size_t length,
                               const char *flag)
{
    const char *end = words + length;

    for (const char *at = words; at < end; at += strlen(at) + 1)
        if (strcmp(at, flag) == 0 && at + strlen(at) + 1 < end)
            return at + strlen(at) + 1;
    return "";
}

/* Where an agent of `--spares` knocks, and its token, which has no name but in
 * its process. */
static bool agent_tells(pid_t agent, char address[DOOR_ADDRESS_BYTES],
                        struct token *token)
{
    static const char inherited[] = "/proc/self/";
    char words[WORDS_BYTES], path[96];
    const size_t length = crew_read(agent, "cmdline", words, sizeof words);
    const char *join = word_behind(words, length, "--join");
    const char *file = word_behind(words, length, "--token");

    if (join[0] == '\0' || strlen(join) >= DOOR_ADDRESS_BYTES ||
        strncmp(file, inherited, strlen(inherited)) != 0 ||
        strcmp(word_behind(words, length, "lockstep"), "agent") != 0)
        return false;
    snprintf(path, sizeof path, "/proc/%ld/%.60s", (long)agent,
             file + strlen(inherited));
    if (token_read(token, path) != OK) {
        status_clear();
        return false;
    }
    memcpy(address, join, strlen(join) + 1);
    return true;
}

/* Finds the agent of this run whose ranks go on without a supervisor. A new
 * supervisor must listen at the address to which that agent connects. */
static bool find_agent(const char *run, char address[DOOR_ADDRESS_BYTES],
                       struct token *token)
{
    struct run_report report;
    bool found = false;

    if (run_report_read(&report, run) != OK) {
        status_clear();
        return false;
    }
    for (int i = 0; i < report.ranks && !found; i++)
        found = report.agents && report.state == RUN_ALONE &&
                report.rank[i].lives &&
                agent_tells(parent_of((pid_t)report.rank[i].process), address,
                            token);
    run_report_free(&report);
    return found;
}

status supervise_with_spares(const struct spares *spares)
{
    char listen[DOOR_ADDRESS_BYTES] = "127.0.0.1:0";
    struct errand errand = {.arguments = spares->arguments,
                            .config = spares->config, .token_file = -1};
    const struct options *o = &spares->set->values;
    struct supervision how;
    char run[PATH_BYTES];
    struct token token;
    status result;

    crew_hold_signals();
    TRY(supervised_check(o));
    snprintf(run, sizeof run, "%s", o->run.dir);
    errand.run = run;
    errand.slots = spares->ranks + spares->count;
    if (errand.slots > PLACES_MOST)
        FAIL(ERR_USAGE, "%d ranks and %d spares: at most %d processes",
             spares->ranks, spares->count, PLACES_MOST);
    TRY(elastic_open(&errand.elastic, spares->set, spares->ranks));
    if (!find_agent(run, listen, &token)) TRY(token_draw(&token));
    TRY(inherited_token(&token, &errand.token_file));
    patience_set(1000 * o->comm.silence);
    how = supervision_of(&errand, o, spares->ranks);
    how.listen = listen;
    how.token = &token;
    how.listens = start_agent;
    how.again = spares->config == NULL;
    result = supervise_agents(&how);
    end_agent(&errand);
    close(errand.token_file);
    return result;
}

/* The ranks that a layout has: as said, or as its mesh needs. */
static status find_ranks(const struct arguments *arguments,
                         const struct options_set *set, int *ranks)
{
    const struct options *o = &set->values;
    const int64_t sizes[] = {o->mesh.data, o->mesh.shard, o->mesh.context,
                             o->mesh.tensor, o->mesh.expert, o->mesh.pipe};
    int64_t product = 1, said = 0;

    TRY(arguments_integer(arguments, "ranks", 1, PROCESSES_MOST, &said));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        product = product > PROCESSES_MOST || sizes[i] < 1
                      ? 0 : product * sizes[i];
    *ranks = (int)(said > 0 ? said : product);
    if (*ranks > 0) return OK;
    FAIL(ERR_USAGE, "supervise: how many ranks? --ranks N, or a mesh that says "
         "it");
}

static status open_token(struct token *token, const char *path)
{
    if (path == NULL)
        FAIL(ERR_USAGE, "supervise needs --token FILE: agents prove with it "
             "that they belong to the run; a file that is not there is made");
    if (file_exists(path)) return token_read(token, path);
    TRY(token_draw(token));
    TRY(token_write(token, path));
    fprintf(stderr, "token     %s was made; agents need a copy of it, that "
                    "only its owner can read\n", path);
    return OK;
}

static status supervise_run(struct arguments *arguments,
                            struct options_set *set)
{
    struct errand errand = {.arguments = arguments,
                            .config = arguments->operands[0]};
    int64_t replicas = REPLICAS;
    char run[PATH_BYTES];
    struct supervision how;
    struct token token;
    int ranks;

    TRY(config_read(set, errand.config, arguments));
    if (set->values.run.dir[0] == '\0')
        FAIL(ERR_CONFIG, "run.dir: say where the run goes, in the file or with "
                         "--run DIR");
    snprintf(run, sizeof run, "%s", set->values.run.dir);
    errand.run = run;
    TRY(find_ranks(arguments, set, &ranks));
    TRY(arguments_integer(arguments, "replicas", 1, PARTNERS_MOST + 1,
                          &replicas));
    TRY(elastic_open(&errand.elastic, set, ranks));
    TRY(open_token(&token, arguments_text(arguments, "token", NULL)));
    patience_set(1000 * set->values.comm.silence);
    how = supervision_of(&errand, &set->values, ranks);
    how.replicas = (int)replicas;
    how.listen = arguments_text(arguments, "listen", "127.0.0.1:0");
    how.token = &token;
    return supervise_agents(&how);
}

status command_supervise(struct arguments *arguments)
{
    struct options_set set = {0};
    status result;

    if (launch_rank() >= 0)
        FAIL(ERR_USAGE, "supervise: this process is a rank itself; start it "
                        "once, beside %s", launch_command());
    crew_hold_signals(); /* they are for ranks that may be at work already */
    result = supervise_run(arguments, &set);
    options_free(&set);
    return result;
}

/* ---- agents ---- */

status command_agent(struct arguments *arguments)
{
    struct agent_how how = {
        .join = arguments_text(arguments, "join", NULL),
        .token = arguments_text(arguments, "token", NULL),
        .name = arguments_text(arguments, "name", getenv("SLURMD_NODENAME")),
        .work = run_command_line};
    int64_t slots = 1;

    TRY(arguments_integer(arguments, "slots", 1, PLACES_MOST, &slots));
    how.slots = (int)slots;
    if (how.join == NULL || how.token == NULL)
        FAIL(ERR_USAGE, "agent: --join HOST:PORT says where the supervisor is, "
             "and --token FILE proves who asks");
    if (how.name != NULL && (how.name[0] == '\0' ||
                             strlen(how.name) >= NODE_NAME_BYTES))
        FAIL(ERR_USAGE, "--name: a name has 1 to %d bytes",
             NODE_NAME_BYTES - 1);
    /* Tasks of srun may be agents: those of one step are no ranks. */
    if (process_is_rank())
        FAIL(ERR_USAGE, "agent: this process is a rank itself");
    return agent_run(&how);
}
