/* SPDX-License-Identifier: Apache-2.0 */
/* call_memory.c - the memory that a call reads and writes, run by run. */
#include "comm/call_memory.h"

static void visit_tensor(const struct tensor *tensor, call_visit_span *visit,
                         void *argument)
{
    visit(argument, tensor->data, tensor_bytes(tensor));
}

static void visit_blocks(const struct comm_block *blocks, int count,
                         call_visit_span *visit, void *argument)
{
    for (int i = 0; i < count; i++) {
        const struct comm_block b = block_simplify(&blocks[i]);

        for (int64_t j = 0; b.data != NULL && j < b.planes * b.rows; j++)
            visit(argument,
                  (char *)b.data + j / b.rows * b.plane_stride +
                      j % b.rows * b.stride,
                  b.bytes);
    }
}

void call_visit(const struct group *group, const struct comm_call *call,
                enum call_side side, call_visit_span *visit, void *argument)
{
    const bool takes = call->kind != COMM_RECV && call->kind != COMM_AGREE &&
                       call->kind != COMM_BROADCAST;
    const bool gives = call->kind != COMM_SEND && call->kind != COMM_AGREE;

    if (call->kind == COMM_EXCHANGE)
        visit_blocks(side == CALL_READS ? call->send : call->receive,
                     group->size, visit, argument);
    else if (side == CALL_READS && takes)
        visit_tensor(&call->in, visit, argument);
    else if (side == CALL_WRITES && gives)
        visit_tensor(&call->out, visit, argument);
}
