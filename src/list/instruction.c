/* SPDX-License-Identifier: Apache-2.0 */
/* instruction.c - one thing that a rank does in a step. */
#include "list/instruction.h"

#include <stdio.h>

#define NO_CALL COMM_KIND_COUNT

const struct instruction_row instruction_rows[DO_COUNT] = {
    [DO_ROUND] = {"round", LANE_HOST, false, NO_CALL, SENT_NOTHING},
    [DO_TARGETS] = {"targets", LANE_WORLD, false, COMM_ALL_REDUCE,
                    SENT_TARGETS},
    [DO_SAMPLE] = {"sample", LANE_HOST, false, NO_CALL, SENT_NOTHING},
    [DO_BATCH] = {"batch", LANE_HOST, true, NO_CALL, SENT_NOTHING},
    [DO_COPY] = {"copy", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_FORWARD] = {"F", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_BACKWARD] = {"B", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_KEEP] = {"keep", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_COPY_BACK] = {"copy back", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_WEIGHT] = {"W", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_SEND] = {"send", LANE_PIPE, true, COMM_SEND, SENT_ACTIVATIONS},
    [DO_RECEIVE] = {"receive", LANE_PIPE, true, COMM_RECV, SENT_ACTIVATIONS},
    [DO_SEND_BACK] = {"send back", LANE_PIPE, true, COMM_SEND,
                      SENT_GRADIENTS_OF_ACTIVATIONS},
    [DO_RECEIVE_BACK] = {"receive back", LANE_PIPE, true, COMM_RECV,
                         SENT_GRADIENTS_OF_ACTIVATIONS},
    [DO_GATHER] = {"gather", LANE_SHARD, true, COMM_ALL_GATHER, SENT_WEIGHTS},
    [DO_PLACE] = {"place", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_RELEASE] = {"release", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_TAKE] = {"take", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_JOIN] = {"join", LANE_TENSOR, false, COMM_ALL_REDUCE,
                 SENT_VECTOR_GRADIENTS},
    [DO_REDUCE] = {"reduce", LANE_SHARD, true, COMM_REDUCE_SCATTER,
                   SENT_GRADIENTS},
    [DO_GIVE] = {"give", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_SUM] = {"sum", LANE_COPIES, true, COMM_ALL_REDUCE, SENT_GRADIENTS},
    [DO_CLOSE] = {"close", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_HALVES] = {"halves", LANE_PEER, false, COMM_ALL_REDUCE,
                   SENT_GRADIENTS_OF_COPIES},
    [DO_MERGE] = {"merge", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_LOSS] = {"loss", LANE_WORLD, false, COMM_ALL_REDUCE, SENT_LOSS},
    [DO_Z_LOSS] = {"z-loss", LANE_WORLD, false, COMM_ALL_REDUCE, SENT_Z_LOSS},
    [DO_LATER_LOSSES] = {"later losses", LANE_WORLD, false, COMM_ALL_REDUCE,
                         SENT_LOSSES_OF_LATER_TOKENS},
    [DO_SECOND] = {"second use", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_TIE] = {"tie", LANE_PIPE, false, COMM_SEND, SENT_SHARED_MATRIX},
    [DO_PEAKS] = {"peaks", LANE_WORLD, false, COMM_ALL_REDUCE,
                  SENT_LARGEST_SCORES},
    [DO_LATE] = {"late", LANE_WORLD, false, COMM_ALL_REDUCE,
                 SENT_LARGEST_OPERANDS},
    [DO_ROUTES] = {"routes", LANE_WORLD, false, COMM_ALL_REDUCE,
                   SENT_TOKENS_OF_EXPERTS},
    [DO_BLOCKS] = {"blocks", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_SHARE] = {"share", LANE_SHARD, false, COMM_ALL_REDUCE, SENT_NORM},
    [DO_NORM] = {"norm", LANE_WORLD, false, COMM_ALL_REDUCE, SENT_NORM},
    [DO_DECIDE] = {"decide", LANE_HOST, false, NO_CALL, SENT_NOTHING},
    [DO_UPDATE] = {"update", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_MATRICES] = {"matrices", LANE_MATRICES, false, COMM_EXCHANGE,
                     SENT_WHOLE_MATRICES},
    [DO_CLIP] = {"clip", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_BALANCE] = {"balance", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_AVERAGE] = {"average", LANE_COMPUTE, false, NO_CALL, SENT_NOTHING},
    [DO_REGATHER] = {"regather", LANE_SHARD, true, COMM_ALL_GATHER,
                     SENT_WEIGHTS},
    [DO_ENCODE] = {"encode", LANE_SHARD, false, COMM_ALL_REDUCE,
                   SENT_LARGEST_OPERANDS},
    [DO_ASK] = {"ask", LANE_WORLD, false, COMM_ALL_REDUCE,
                SENT_WHETHER_TO_STOP},
    [DO_END] = {"end", LANE_HOST, false, NO_CALL, SENT_NOTHING},
};

const char *lane_name(enum lane lane)
{
    switch (lane) {
    case LANE_COMPUTE: return "compute";
    case LANE_HOST: return "host";
    case LANE_PIPE: return axis_name(AXIS_PIPE);
    case LANE_SHARD: return "shard";
    case LANE_COPIES: return "copies";
    case LANE_TENSOR: return axis_name(AXIS_TENSOR);
    case LANE_CONTEXT: return axis_name(AXIS_CONTEXT);
    case LANE_EXPERT: return axis_name(AXIS_EXPERT);
    case LANE_PEER: return "peer";
    case LANE_MATRICES: return "matrices";
    case LANE_WORLD: return "world";
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
