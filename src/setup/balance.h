/* SPDX-License-Identifier: Apache-2.0 */
/* balance.h - the tokens whose choices weigh the experts in balance losses, as
 * the options name them. */
#ifndef LOCKSTEP_SETUP_BALANCE_H
#define LOCKSTEP_SETUP_BALANCE_H

#include "setup/setup.h"

/* moe.balance_scope; BALANCE_SEQUENCE where there is no such loss. ERR_CONFIG:
 * no such scope. */
status balance_choose(struct regularization *out, const struct options *o);
/* ERR_CONFIG: the micro-batch is a part of the result, and is not the one that
 * was asked for. After the batch was cut. */
status balance_check(const struct setup *setup);
/* Whether train.micro_batch is a part of the result. */
bool balance_needs_micro_batch(const struct options *o);

#endif
