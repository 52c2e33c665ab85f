/* SPDX-License-Identifier: Apache-2.0 */
/* apart.c - limits of a device that is apart from the host. */
#include "base/check.h"
#include "plan/stage.h"

static status refuse(const struct stage_request *r, const char *what)
{
    FAIL(ERR_CONFIG, "device: %s does not have %s yet (docs/devices.md); "
                     "device=cpu does",
         device_about(r->machine.device)->name, what);
}

static status check_layers(const struct stage *stage)
{
    const struct program *p = &stage->program;

    for (int i = 0; i < p->step_count; i++)
        if (!p->steps[i].layer->by_kernels)
            FAIL(ERR_CONFIG, "device: %s does not have the layer %s of %s yet "
                             "(docs/devices.md); device=cpu does",
                 device_about(stage->request.machine.device)->name,
                 p->steps[i].layer->name, stage->request.model->kind->name);
    return OK;
}

static status check_optimizer(const struct stage *stage)
{
    const struct states *states = &stage->states;

    for (int i = 0; i < stage->program.params.count; i++) {
        const struct optimizer_kind *kind = states->rules[i].kind;

        if (!states->rules[i].frozen && kind != NULL && !kind->by_kernels)
            FAIL(ERR_CONFIG, "device: %s does not have the optimizer %s yet "
                             "(docs/devices.md); adamw, lion, sgd, muon "
                             "and schedule_free run there",
                 device_about(stage->request.machine.device)->name, kind->name);
    }
    return OK;
}

status stage_check_apart(const struct stage *stage)
{
    const struct stage_request *r = &stage->request;

    if (!device_about(r->machine.device)->apart) return OK;
    if (check_lives() != CHECK_OFF) return refuse(r, "LOCKSTEP_CHECK");
    if (r->mesh.size[AXIS_EXPERT] > 1) return refuse(r, "expert ranks");
    if (r->precision.on) return refuse(r, "products in few bits");
    if (r->training.observe) return refuse(r, "observe.layers");
    if (r->qk_clip > 0) return refuse(r, "optimizer.qk_clip");
    TRY(check_layers(stage));
    return r->training.optimizer ? check_optimizer(stage) : OK;
}
