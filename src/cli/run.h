/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - the functions behind the rows of commands.c, by file. */
#ifndef LOCKSTEP_CLI_RUN_H
#define LOCKSTEP_CLI_RUN_H

#include "cli/command.h"

/* about.c */
status command_version(const struct arguments *arguments);
status command_docs(const struct arguments *arguments);
/* doctor.c */
status command_doctor(const struct arguments *arguments);

#endif
