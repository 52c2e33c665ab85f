/* SPDX-License-Identifier: Apache-2.0 */
/* instruction.c - one thing that a rank does in a step. */
#include "list/instruction.h"

#include <stdio.h>

#define NO_CALL COMM_KIND_COUNT

const struct instruction_row instruction_rows[DO_COUNT] = {
    [DO_ROUND] = {"round", RESOURCE_HOST, false, NO_CALL, SENT_NOTHING},
    [DO_TARGETS] = {"targets", RESOURCE_WORLD, false, COMM_ALL_REDUCE,
                    SENT_TARGETS},
    [DO_SAMPLE] = {"sample", RESOURCE_HOST, false, NO_CALL, SENT_NOTHING},
    [DO_BATCH] = {"batch", RESOURCE_HOST, true, NO_CALL, SENT_NOTHING},
    [DO_COPY] = {"copy", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_FORWARD] = {"F", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_BACKWARD] = {"B", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_KEEP] = {"keep", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_COPY_BACK] = {"copy back", RESOURCE_COMPUTE, false, NO_CALL,
                      SENT_NOTHING},
    [DO_WEIGHT] = {"W", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_SEND] = {"send", RESOURCE_PIPE, true, COMM_SEND, SENT_ACTIVATIONS},
    [DO_RECEIVE] = {"receive", RESOURCE_PIPE, true, COMM_RECV,
                    SENT_ACTIVATIONS},
    [DO_SEND_BACK] = {"send back", RESOURCE_PIPE, true, COMM_SEND,
                      SENT_GRADIENTS_OF_ACTIVATIONS},
    [DO_RECEIVE_BACK] = {"receive back", RESOURCE_PIPE, true, COMM_RECV,
                         SENT_GRADIENTS_OF_ACTIVATIONS},
    [DO_GATHER] = {"gather", RESOURCE_SHARD, true, COMM_ALL_GATHER,
                   SENT_WEIGHTS},
    [DO_PLACE] = {"place", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_RELEASE] = {"release", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_TAKE] = {"take", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_JOIN] = {"join", RESOURCE_TENSOR, false, COMM_ALL_REDUCE,
                 SENT_VECTOR_GRADIENTS},
    [DO_REDUCE] = {"reduce", RESOURCE_SHARD, true, COMM_REDUCE_SCATTER,
                   SENT_GRADIENTS},
    [DO_GIVE] = {"give", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_SUM] = {"sum", RESOURCE_COPIES, true, COMM_ALL_REDUCE, SENT_GRADIENTS},
    [DO_CLOSE] = {"close", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_HALVES] = {"halves", RESOURCE_PEER, false, COMM_ALL_REDUCE,
                   SENT_GRADIENTS_OF_COPIES},
    [DO_MERGE] = {"merge", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_LOSS] = {"loss", RESOURCE_WORLD, false, COMM_ALL_REDUCE, SENT_LOSS},
    [DO_Z_LOSS] = {"z-loss", RESOURCE_WORLD, false, COMM_ALL_REDUCE,
                   SENT_Z_LOSS},
    [DO_LATER_LOSSES] = {"later losses", RESOURCE_WORLD, false, COMM_ALL_REDUCE,
                         SENT_LOSSES_OF_LATER_TOKENS},
    [DO_SECOND] = {"second use", RESOURCE_COMPUTE, false, NO_CALL,
                   SENT_NOTHING},
    [DO_TIE] = {"tie", RESOURCE_PIPE, false, COMM_SEND, SENT_SHARED_MATRIX},
    [DO_PEAKS] = {"peaks", RESOURCE_WORLD, false, COMM_ALL_REDUCE,
                  SENT_LARGEST_SCORES},
    [DO_LATE] = {"late", RESOURCE_WORLD, false, COMM_ALL_REDUCE,
                 SENT_LARGEST_OPERANDS},
    [DO_ROUTES] = {"routes", RESOURCE_WORLD, false, COMM_ALL_REDUCE,
                   SENT_TOKENS_OF_EXPERTS},
    [DO_BLOCKS] = {"blocks", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_SHARE] = {"share", RESOURCE_SHARD, false, COMM_ALL_REDUCE, SENT_NORM},
    [DO_NORM] = {"norm", RESOURCE_WORLD, false, COMM_ALL_REDUCE, SENT_NORM},
    [DO_DECIDE] = {"decide", RESOURCE_HOST, false, NO_CALL, SENT_NOTHING},
    [DO_UPDATE] = {"update", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_MATRICES] = {"matrices", RESOURCE_MATRICES, false, COMM_EXCHANGE,
                     SENT_WHOLE_MATRICES},
    [DO_CLIP] = {"clip", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_BALANCE] = {"balance", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_AVERAGE] = {"average", RESOURCE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_REGATHER] = {"regather", RESOURCE_SHARD, true, COMM_ALL_GATHER,
                     SENT_WEIGHTS},
    [DO_ENCODE] = {"encode", RESOURCE_SHARD, false, COMM_ALL_REDUCE,
                   SENT_LARGEST_OPERANDS},
    [DO_ASK] = {"ask", RESOURCE_WORLD, false, COMM_ALL_REDUCE,
                SENT_WHETHER_TO_STOP},
    [DO_END] = {"end", RESOURCE_HOST, false, NO_CALL, SENT_NOTHING},
};

const char *resource_name(enum resource resource)
{
    switch (resource) {
    case RESOURCE_COMPUTE: return "compute";
    case RESOURCE_HOST: return "host";
    case RESOURCE_PIPE: return axis_name(AXIS_PIPE);
    case RESOURCE_SHARD: return "shard";
    case RESOURCE_COPIES: return "copies";
    case RESOURCE_TENSOR: return axis_name(AXIS_TENSOR);
    case RESOURCE_CONTEXT: return axis_name(AXIS_CONTEXT);
    case RESOURCE_EXPERT: return axis_name(AXIS_EXPERT);
    case RESOURCE_PEER: return "peer";
    case RESOURCE_MATRICES: return "matrices";
    case RESOURCE_WORLD: return "world";
    default: return "";
    }
}

const char *instruction_text(char out[INSTRUCTION_BYTES],
                             const struct instruction *i)
{
    size_t used = (size_t)snprintf(out, INSTRUCTION_BYTES, "%s",
                                   instruction_rows[i->kind].name);

    if (i->stage >= 0)
        used += (size_t)snprintf(out + used, INSTRUCTION_BYTES - used,
                                 instruction_computes(i) ? "%d" : " %d",
                                 i->stage);
    if (i->microbatch >= 0)
        used += (size_t)snprintf(out + used, INSTRUCTION_BYTES - used, ".%d",
                                 i->microbatch);
    if (i->unit >= 0)
        used += (size_t)snprintf(out + used, INSTRUCTION_BYTES - used,
                                 " unit %d", i->unit);
    if (instruction_computes(i))
        snprintf(out + used, INSTRUCTION_BYTES - used, " [%d, %d)",
                 i->first_event, i->last_event);
    return out;
}
