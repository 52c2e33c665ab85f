/* SPDX-License-Identifier: Apache-2.0 */
/* sending_rows.c - the messages of rows to the ranks of their experts, and
 * back. */
#include "nn/sending.h"

#include "mesh/group.h"

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

void sending_count(struct run *run, const struct comm_call *call)
{
    const struct mesh *mesh = &run->program->layout.mesh;
    const int rank = mesh_expert_rank(mesh, &run->program->layout.place);

    run->counted.routed.calls++;
    for (int i = 0; i < mesh_expert_ranks(mesh); i++) {
        const int64_t bytes = call->in_counts[i] *
                              dtype_bytes(call->in.dtype);

        if (i == rank) continue;
        run->counted.routed.bytes += bytes;
        if (mesh_expert_seat(mesh, i).node !=
            mesh_expert_seat(mesh, rank).node)
            run->counted.routed.between += bytes;
    }
}

static void scale_counts(struct sending *s, int64_t width, bool up)
{
    for (int i = 0; i < mesh_expert_ranks(&s->run->program->layout.mesh); i++) {
        s->to[i] = up ? s->to[i] * width : s->to[i] / width;
        s->from[i] = up ? s->from[i] * width : s->from[i] / width;
    }
}

status sending_swap(struct sending *s, struct tensor mine,
                    struct tensor theirs, bool goes)
{
    struct run *run = s->run;
    const struct comm_call call = {
        .kind = COMM_ALL_TO_ALL, .algorithm = ALGORITHM_ORDERED,
        .in = flat(goes ? mine : theirs), .out = flat(goes ? theirs : mine),
        .in_counts = goes ? s->to : s->from,
        .out_counts = goes ? s->from : s->to};
    status result;

    CHECK(run->groups[AXIS_EXPERT] != NULL);
    scale_counts(s, mine.shape[1], true);
    sending_count(run, &call);
    result = comm_run(run->groups[AXIS_EXPERT], &call);
    scale_counts(s, mine.shape[1], false);
    return result;
}

status sending_start(struct sending *s, struct sent_half *half,
                     struct tensor mine, struct tensor theirs, bool goes)
{
    struct run *run = s->run;
    struct group *group = run->groups[AXIS_EXPERT];
    const struct comm_call call = {
        .kind = COMM_ALL_TO_ALL, .algorithm = ALGORITHM_ORDERED,
        .in = flat(goes ? mine : theirs), .out = flat(goes ? theirs : mine),
        .in_counts = half->in, .out_counts = half->out};

    CHECK(group != NULL);
    for (int i = 0; i < mesh_expert_ranks(&run->program->layout.mesh); i++) {
        half->in[i] = (goes ? half->to : half->from)[i] * mine.shape[1];
        half->out[i] = (goes ? half->from : half->to)[i] * mine.shape[1];
    }
    sending_count(run, &call);
    return comm_start(group, &call, half->handle);
}

status sending_wait(struct sent_half *half)
{
    return comm_wait(half->handle);
}

/* Rows for holder after holder: where they belong in `own`. */
static status place_rows(const struct sending *s, const int64_t *to,
                         const int64_t *at, struct tensor all,
                         struct tensor mine)
{
    const size_t row =
        (size_t)mine.shape[1] * (size_t)dtype_bytes(mine.dtype);
    const int cut = experts_cut(s->run->program);
    const int64_t each = all.shape[0] / cut;
    const char *from = mine.data;

    for (int i = 0; i < mesh_expert_ranks(&s->run->program->layout.mesh); i++) {
        const size_t bytes = (size_t)to[i] * row;
        const int64_t first = i % cut * each + at[i];

        TRY(device_copy(s->run->stream,
                        (char *)all.data + (size_t)first * row, from, bytes));
        from += bytes;
    }
    return OK;
}

status sending_place(const struct sending *s, struct tensor all,
                     struct tensor mine)
{
    return place_rows(s, s->to, s->at, all, mine);
}

status sending_place_half(const struct sending *s, const struct sent_half *half,
                          struct tensor all, struct tensor mine)
{
    return place_rows(s, half->to, half->at, all, mine);
}

status sending_pick(struct run *run, struct tensor out, struct tensor rows,
                    const int32_t *index)
{
    const struct kernels *kernels =
        out.dtype == program_real(run->program) ? run->real : run->kernels;

    if (out.shape[0] == 0) return OK;
    if (rows.shape[0] > 0)
        return kernels->gather_rows(run->stream, out, false, rows, index);
    return device_fill(run->stream, out.data, 0, /* no token has an expert */
                       (size_t)tensor_bytes(&out));
}
