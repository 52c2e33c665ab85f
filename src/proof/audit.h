/* SPDX-License-Identifier: Apache-2.0 */
/* audit.h - a comparison of the messages that a rank sent with the plan. */
#ifndef LOCKSTEP_PROOF_AUDIT_H
#define LOCKSTEP_PROOF_AUDIT_H

#include "plan/exchange.h"
#include "step/team.h"

/* Counts from here on. */
void audit_begin(struct team *team);
/* ERR_VERIFY: the rank's counters since then are not those of these steps of
 * the plan; names the group, the kind and both numbers. Agreements, by which
 * ranks end a phase, are not part of a step and are left out. */
status audit_traffic(const struct team *team, const struct exchanges *plan,
                     const struct exchange_steps *steps);

#endif
