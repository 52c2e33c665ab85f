/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - the functions behind the rows of commands.c, by file. */
#ifndef LOCKSTEP_CLI_RUN_H
#define LOCKSTEP_CLI_RUN_H

#include "base/threads.h"
#include "cli/command.h"

enum { RANKS_MOST = 64 };

/* train.c: --ranks, the number of threads that are ranks. beyond: advice for
 * more than RANKS_MOST of them. ERR_USAGE. */
#define RANKS_BEYOND \
    "for more, start one process for each rank: lockstep launch --ranks N -- " \
    "lockstep ..., or mpirun -n N (docs/mesh.md)"
status run_ranks(const struct arguments *arguments, const char *beyond,
                 int64_t *ranks);

/* verify.c */
status command_verify(struct arguments *arguments);
/* train.c */
status command_train(struct arguments *arguments);
status command_resume(struct arguments *arguments);
/* note.c */
status command_note(struct arguments *arguments);
/* fetch.c */
status command_fetch(struct arguments *arguments);
/* gather.c */
status command_gather(struct arguments *arguments);
/* status.c */
status command_status(struct arguments *arguments);
status command_incidents(struct arguments *arguments);
/* run.c: a command line without the program's name, in this process. */
status run_command_line(int argc, char **argv);
/* supervise.c */
status command_supervise(struct arguments *arguments);
status command_agent(struct arguments *arguments);
/* launch.c */
status command_launch(struct arguments *arguments);
/* models.c */
status command_score(struct arguments *arguments);
status command_import(struct arguments *arguments);
status command_export(struct arguments *arguments);
/* compare.c */
status command_compare(struct arguments *arguments);
/* metrics.c */
status command_metrics(struct arguments *arguments);
/* plan.c */
status command_plan(struct arguments *arguments);
/* search.c */
status command_search(struct arguments *arguments);
/* simulate.c */
status command_simulate(struct arguments *arguments);
/* doctor_nodes.c */
status doctor_nodes(const struct arguments *arguments);
/* ettr.c */
status command_ettr(struct arguments *arguments);
/* budget.c */
status command_budget(struct arguments *arguments);
/* calibrate.c */
status command_calibrate(struct arguments *arguments);
/* machines.c */
status command_machines(struct arguments *arguments);
/* mup.c */
status command_mup(struct arguments *arguments);
/* schedule.c */
status command_schedule(struct arguments *arguments);
/* generate.c */
status command_generate(struct arguments *arguments);
/* eval.c */
status command_eval(struct arguments *arguments);
/* tokens.c */
status command_tokenize(struct arguments *arguments);
/* data.c */
status command_data_show(struct arguments *arguments);
/* data_verify.c */
status command_data_audit(struct arguments *arguments);
status command_data_verify(struct arguments *arguments);
/* learn.c */
status command_tokenizer_train(struct arguments *arguments);
/* bench.c */
status command_bench_kernels(struct arguments *arguments);
status command_bench_step(struct arguments *arguments);
status command_bench_recipes(struct arguments *arguments);
status command_bench_comm(struct arguments *arguments);
status command_bench_schedules(struct arguments *arguments);
/* about.c */
status command_version(struct arguments *arguments);
status command_docs(struct arguments *arguments);
/* doctor.c */
status command_doctor(struct arguments *arguments);

#endif
