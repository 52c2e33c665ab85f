/* SPDX-License-Identifier: Apache-2.0 */
/* instruction.c - one thing that a rank does in a step. */
#include "list/instruction.h"

#include <stdio.h>

#define NO_CALL COMM_KIND_COUNT

const struct instruction_row instruction_rows[DO_COUNT] = {
    [DO_ROUND] = {"round", LANE_HOST, false, NO_CALL, ""},
    [DO_TARGETS] = {"targets", LANE_WORLD, false, COMM_ALL_REDUCE,
                    "targets"},
    [DO_SAMPLE] = {"sample", LANE_HOST, false, NO_CALL, ""},
    [DO_BATCH] = {"batch", LANE_HOST, true, NO_CALL, ""},
    [DO_COPY] = {"copy", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_FORWARD] = {"F", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_BACKWARD] = {"B", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_KEEP] = {"keep", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_COPY_BACK] = {"copy back", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_WEIGHT] = {"W", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_SEND] = {"send", LANE_PIPE, true, COMM_SEND, "activations"},
    [DO_RECEIVE] = {"receive", LANE_PIPE, true, COMM_RECV, "activations"},
    [DO_SEND_BACK] = {"send back", LANE_PIPE, true, COMM_SEND,
                      "gradients of activations"},
    [DO_RECEIVE_BACK] = {"receive back", LANE_PIPE, true, COMM_RECV,
                         "gradients of activations"},
    [DO_GATHER] = {"gather", LANE_SHARD, true, COMM_ALL_GATHER, "weights"},
    [DO_PLACE] = {"place", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_RELEASE] = {"release", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_TAKE] = {"take", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_JOIN] = {"join", LANE_TENSOR, false, COMM_ALL_REDUCE,
                 "vector gradients"},
    [DO_REDUCE] = {"reduce", LANE_SHARD, true, COMM_REDUCE_SCATTER,
                   "gradients"},
    [DO_GIVE] = {"give", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_SUM] = {"sum", LANE_COPIES, true, COMM_ALL_REDUCE, "gradients"},
    [DO_CLOSE] = {"close", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_HALVES] = {"halves", LANE_PEER, false, COMM_ALL_REDUCE,
                   "gradients of copies"},
    [DO_MERGE] = {"merge", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_LOSS] = {"loss", LANE_WORLD, false, COMM_ALL_REDUCE, "loss"},
    [DO_Z_LOSS] = {"z-loss", LANE_WORLD, false, COMM_ALL_REDUCE, "z-loss"},
    [DO_LATER_LOSSES] = {"later losses", LANE_WORLD, false, COMM_ALL_REDUCE,
                         "losses of later tokens"},
    [DO_SECOND] = {"second use", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_TIE] = {"tie", LANE_PIPE, false, COMM_SEND, "shared matrix"},
    [DO_PEAKS] = {"peaks", LANE_WORLD, false, COMM_ALL_REDUCE,
                  "largest scores"},
    [DO_LATE] = {"late", LANE_WORLD, false, COMM_ALL_REDUCE,
                 "largest operands"},
    [DO_ROUTES] = {"routes", LANE_WORLD, false, COMM_ALL_REDUCE,
                   "tokens of experts"},
    [DO_BLOCKS] = {"blocks", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_SHARE] = {"share", LANE_SHARD, false, COMM_ALL_REDUCE, "norm"},
    [DO_NORM] = {"norm", LANE_WORLD, false, COMM_ALL_REDUCE, "norm"},
    [DO_DECIDE] = {"decide", LANE_HOST, false, NO_CALL, ""},
    [DO_UPDATE] = {"update", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_MATRICES] = {"matrices", LANE_MATRICES, false, COMM_EXCHANGE,
                     "whole matrices"},
    [DO_CLIP] = {"clip", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_BALANCE] = {"balance", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_AVERAGE] = {"average", LANE_COMPUTE, false, NO_CALL, ""},
    [DO_REGATHER] = {"regather", LANE_SHARD, true, COMM_ALL_GATHER,
                     "weights"},
    [DO_ASK] = {"ask", LANE_WORLD, false, COMM_ALL_REDUCE,
                "whether to stop"},
    [DO_END] = {"end", LANE_HOST, false, NO_CALL, ""},
};

const char *lane_name(enum lane lane)
{
    static const char *const names[LANE_COUNT] = {
        "compute", "host", "pipe", "shard", "copies", "tensor", "context",
        "expert", "peer", "matrices", "world"};

    return names[lane];
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
