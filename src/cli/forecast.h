/* SPDX-License-Identifier: Apache-2.0 */
/* forecast.h - the inputs of a prediction, from a command line. */
#ifndef LOCKSTEP_CLI_FORECAST_H
#define LOCKSTEP_CLI_FORECAST_H

#include "cli/command.h"
#include "train/forecast.h"

enum { FORECAST_RANKS = 1 << 20 };

/* Configuration, model and machine; ranks and nodes as the flags say. */
status forecast_open(struct forecast *forecast, struct arguments *arguments);

/* A positive number of a flag, or 0 when it was not given. */
status forecast_amount(const struct arguments *arguments, const char *flag,
                       double *out);

#endif
