/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - the functions behind the rows of commands.c, by file. */
#ifndef LOCKSTEP_CLI_RUN_H
#define LOCKSTEP_CLI_RUN_H

#include "cli/command.h"

enum { THREADS_MOST = 4096 }; /* as train.threads */

/* models.c */
status command_score(const struct arguments *arguments);
status command_compare(const struct arguments *arguments);
/* generate.c */
status command_generate(const struct arguments *arguments);
/* tokens.c */
status command_tokenize(const struct arguments *arguments);
/* about.c */
status command_version(const struct arguments *arguments);
status command_docs(const struct arguments *arguments);
/* doctor.c */
status command_doctor(const struct arguments *arguments);

#endif
