/* SPDX-License-Identifier: Apache-2.0 */
/* libraries.c - reads which libraries compute on a GPU. */
#include "setup/libraries.h"

#include <string.h>
#include "base/text.h"

static status choose_gpu(const char *name, enum dtype dtype, bool *fast)
{
    *fast = strcmp(name, "fast") == 0;
    if (!*fast && strcmp(name, "exact") != 0)
        FAIL(ERR_CONFIG, "numerics.gpu: %s is not exact or fast", name);
    if (*fast && dtype == DTYPE_F64)
        FAIL(ERR_CONFIG, "numerics.gpu: fast makes products of float32, "
                         "bfloat16 and float16, and train.dtype is float64; "
                         "set numerics.gpu=exact");
    return OK;
}

static status choose_attention(const char *name, enum dtype dtype, bool fast,
                               enum attention_by *out)
{
    static const char *const names[] = {"auto", "own", "cudnn", "flash"};
    enum { NAMES = sizeof names / sizeof *names };
    int by = 0;

    while (by < NAMES && strcmp(name, names[by]) != 0) by++;
    if (by == NAMES)
        FAIL(ERR_CONFIG, "numerics.attention: %s is not auto, own, cudnn or "
                         "flash", name);
    *out = (enum attention_by)by;
    if (*out != ATTENTION_BY_CUDNN && *out != ATTENTION_BY_FLASH) return OK;
    if (!fast)
        FAIL(ERR_CONFIG, "numerics.attention: %s has bits of its own, and "
                         "numerics.gpu is exact; set numerics.gpu=fast, or "
                         "numerics.attention=auto", name);
    if (dtype != DTYPE_BF16)
        FAIL(ERR_CONFIG, "numerics.attention: %s has attention of bfloat16, "
                         "and train.dtype is %s; set train.dtype=bfloat16, or "
                         "numerics.attention=auto", name, dtype_name(dtype));
    return OK;
}

status libraries_choose(struct stage_request *request,
                        const struct options *options)
{
    TRY(choose_gpu(options->numerics.gpu, request->dtype,
                   &request->machine.fast));
    return choose_attention(options->numerics.attention, request->dtype,
                            request->machine.fast,
                            &request->machine.attention);
}
