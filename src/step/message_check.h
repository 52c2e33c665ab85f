/* SPDX-License-Identifier: Apache-2.0 */
/* message_check.h - the messages of a step are those that its list states.
 *
 * The plan, the list's verifier and `plan --time` read an instruction's
 * messages; the code that performs it makes calls with its own buffers. The two
 * are compared here and nowhere else: while an instruction is performed, each
 * call of the rank, at once or in the background, is compared with it before
 * the call begins: group, operation, number of calls and bytes, in every
 * build. A
 * difference is a programming mistake and ends the program. Messages inside F,
 * B and W are those that layers state (pass_calls.h). */
#ifndef LOCKSTEP_STEP_MESSAGE_CHECK_H
#define LOCKSTEP_STEP_MESSAGE_CHECK_H

#include "list/list.h"
#include "plan/exchange.h"
#include "step/pass_calls.h"
#include "step/team.h"

/* An all-reduce over two groups, or a send and a receive. */
enum { STATED_ROWS = 2 };

struct message_check {
    const struct pipeline *pipeline;       /* borrowed */
    const struct instruction *instruction; /* borrowed; NULL: none is
                                            * performed */
    struct exchange rows[STATED_ROWS]; /* calls and bytes still to come */
    int count;
    bool called;
    struct pass_calls *passes; /* owned, [chunks]; NULL: of no ranks */
};

status message_check_build(struct message_check *stated,
                           const struct pipeline *pipeline,
                           const struct team *team);
void message_check_free(struct message_check *stated);
/* The calls that follow are the instruction's. alone: it is of F alone. */
status message_check_begin(struct message_check *stated,
                           const struct team *team,
                           const struct instruction *instruction, bool alone);
/* It has made all of them; what follows belongs to no list. Nothing happens if
 * none was begun. */
void message_check_end(struct message_check *stated, const struct team *team);
/* It failed; what follows belongs to no list. */
void message_check_drop(struct message_check *stated, const struct team *team);

#endif
