/* SPDX-License-Identifier: Apache-2.0 */
/* partners.h - which send and which receive of the ranks of a pipe belong
 * together. */
#ifndef LOCKSTEP_LIST_PARTNERS_H
#define LOCKSTEP_LIST_PARTNERS_H

#include "list/list.h"

struct partners {
    int **of;  /* owned, [ranks][instructions]: number of the other side in the
                * list of items[number].peer; -1: it is no message of a stage */
    int ranks;
};

/* lists: of all ranks of one pipe, in their order. ERR_VERIFY names a message
 * without another side. */
status partners_build(struct partners *out, const struct step_list *lists,
                      int ranks);
void partners_free(struct partners *partners);

#endif
