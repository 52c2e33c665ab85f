/* SPDX-License-Identifier: Apache-2.0 */
/* test_report.c - mirrors src/control/report.c: what anybody reads of a
 * supervised run whose supervisor is gone. */
#include "control/report.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/crew.h"
#include "control/host.h"
#include "control/place.h"
#include "tests/test.h"

static char run[] = "/tmp/lockstep-report-XXXXXX";

/* A process with that name, as the system has it. */
static pid_t start(const char *name)
{
    int ends[2];
    char byte;

    CHECK(pipe(ends) == 0);
    const pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, name);
        (void)!write(ends[1], "", 1);
        for (;;) pause();
    }
    CHECK(read(ends[0], &byte, 1) == 1);
    close(ends[0]);
    close(ends[1]);
    return child;
}

static void make_control(void)
{
    char path[128];

    IS_OK(directory_make_private(run));
    snprintf(path, sizeof path, "%s/control", run);
    IS_OK(directory_make_private(path));
}

/* As a supervisor, which is this process. */
static void hold_lock(struct file_lock *lock)
{
    char path[128];

    snprintf(path, sizeof path, "%s/control/lock", run);
    IS_OK(file_lock_take(lock, path));
}

static bool has_agents = true; /* the run of the journal */

/* The journal of a run with a rank that was that process, and a supervisor on
 * that machine; "": an old journal, which does not say. */
static void write_journal_of(const char *host, pid_t process, bool ended)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/control/journal.jsonl", run);
    file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file, "{\"time\": 1.0, \"event\": \"start\", ");
    if (host[0] != '\0') fprintf(file, "\"host\": \"%s\", ", host);
    fprintf(file, "\"generation\": 2, \"supervisor\": 0, \"began\": 0, "
            "\"board\": 9, \"state\": 10, \"board_in_ranks\": 9, %s"
            "\"process\": %ld, \"began\": %llu}]}\n",
            has_agents ? "\"layout\": \"mesh.data=1\", \"converts\": 0, "
                         "\"last_order\": 1, \"ranks\": [{\"node\": "
                         "\"here\", \"place\": 0, \"order\": 1, "
                       : "\"ranks\": [{",
            (long)process, (unsigned long long)crew_began(process));
    if (ended)
        fprintf(file, "{\"time\": 2.0, \"event\": \"end\", \"result\": "
                "\"ok\", \"step\": 30, \"incidents\": 1}\n");
    CHECK(fclose(file) == 0);
}

/* The run has ended. */
static void write_journal(pid_t process)
{
    write_journal_of("", process, true);
}

/* ended: the process has, and nobody has waited for it yet. */
static enum run_state state_with(const char *name, bool ended)
{
    const pid_t process = start(name);
    struct run_report report;
    enum run_state state;

    write_journal(process);
    if (ended) {
        kill(process, SIGKILL);
        while (crew_state(process) != 'Z') usleep(1000);
    }
    IS_OK(run_report_read(&report, run));
    state = report.state;
    run_report_free(&report);
    kill(process, SIGKILL);
    CHECK(waitpid(process, NULL, 0) == process);
    return state;
}

/* Agents keep the processes of their ranks for a while: a run was said to be
 * alone, and could not be resumed, though it had ended. */
TEST(a_spare_is_no_rank)
{
    CHECK(mkdtemp(run) != NULL);
    make_control();
    EQUAL_INT(state_with(PLACE_SPARE, false), RUN_ENDED);
    EQUAL_INT(state_with("lockstep:0", false), RUN_ALONE);
    EQUAL_INT(state_with("lockstep:0", true), RUN_ENDED);
    IS_OK(directory_remove(run));
}

static enum run_state state_of(const char *host, pid_t process, bool ended)
{
    struct run_report report;
    enum run_state state;

    write_journal_of(host, process, ended);
    IS_OK(run_report_read(&report, run));
    state = report.state;
    CHECK(state != RUN_ELSEWHERE || !report.rank[0].lives);
    run_report_free(&report);
    return state;
}

/* Where machines share a file system, a run was said to be dead, or to have
 * lost its supervisor, on every machine but that of the supervisor. */
TEST(another_machine_cannot_say_who_lives)
{
    const pid_t process = start("lockstep:0");
    char here[HOST_NAME_BYTES];

    host_name(here);
    make_control();
    EQUAL_INT(state_of("elsewhere", 0, false), RUN_ELSEWHERE);
    EQUAL_INT(state_of("elsewhere", process, false), RUN_ELSEWHERE);
    EQUAL_INT(state_of("elsewhere", process, true), RUN_ENDED);
    EQUAL_INT(state_of(here, 0, false), RUN_DEAD);
    EQUAL_INT(state_of("", 0, false), RUN_DEAD);
    EQUAL_INT(state_of(here, process, false), RUN_ALONE);
    has_agents = false; /* its ranks are where it was, under another name */
    EQUAL_INT(state_of("elsewhere", process, false), RUN_ALONE);
    EQUAL_INT(state_of("elsewhere", 0, false), RUN_ELSEWHERE);
    has_agents = true;
    kill(process, SIGKILL);
    CHECK(waitpid(process, NULL, 0) == process);
    IS_OK(directory_remove(run));
}

/* One that waits for agents has not written a line: its run was said to have
 * ended, or to be dead. */
TEST(a_supervisor_that_waits_is_there)
{
    struct run_report report;
    struct file_lock lock;

    make_control();
    write_journal(0);
    hold_lock(&lock);
    IS_OK(run_report_read(&report, run));
    EQUAL_INT(report.state, RUN_RESTARTS);
    EQUAL_INT(report.supervisor, getpid());
    run_report_free(&report);
    file_lock_drop(&lock); /* its number stays in the file */
    IS_OK(run_report_read(&report, run));
    EQUAL_INT(report.state, RUN_ENDED);
    run_report_free(&report);
    IS_OK(directory_remove(run));
}

/* There is no journal yet, nor a configuration: such a run was missing. */
TEST(a_new_run_that_waits_for_agents_is_there)
{
    struct run_report report;
    struct file_lock lock;

    make_control();
    CHECK(!run_waits(run));
    hold_lock(&lock);
    CHECK(run_waits(run));
    IS_OK(run_report_read(&report, run));
    EQUAL_INT(report.state, RUN_WAITS);
    EQUAL_TEXT(run_state_name(report.state), "waits");
    EQUAL_INT(report.supervisor, getpid());
    EQUAL_INT(report.incidents, 0);
    run_report_free(&report);
    file_lock_drop(&lock); /* its number stays in the file */
    CHECK(!run_waits(run));
    EQUAL_INT(run_report_read(&report, run), ERR_MISSING);
    status_clear();
    IS_OK(directory_remove(run));
}

TEST_MAIN(a_spare_is_no_rank, another_machine_cannot_say_who_lives,
          a_supervisor_that_waits_is_there,
          a_new_run_that_waits_for_agents_is_there)
