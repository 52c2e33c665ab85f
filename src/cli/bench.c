/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - the commands `bench ...`: how fast this machine is. */
#include "base/file.h"
#include "bench/comm.h"
#include "bench/kernels.h"
#include "bench/recipes.h"
#include "bench/schedules.h"
#include "bench/step.h"
#include "cli/run.h"
#include "cli/table.h"
#include "comm/launch.h"

/* --isa; every name of kernels.h. */
static status read_isa(const struct arguments *arguments, enum isa *out)
{
    const char *names[ISA_CHOICES];
    int chosen = ISA_AUTO;

    for (int i = 0; i < ISA_CHOICES; i++) names[i] = isa_name((enum isa)i);
    TRY(arguments_choice(arguments, "isa", names, ISA_CHOICES, &chosen));
    *out = (enum isa)chosen;
    return OK;
}

/* --dtype of training. */
static status read_dtype(const struct arguments *arguments, enum dtype *out)
{
    static const char *const names[] = {"float32", "float64", "bfloat16",
                                        "float16"};
    int chosen = 0;

    TRY(arguments_choice(arguments, "dtype", names, 4, &chosen));
    dtype_parse(names[chosen], out);
    return OK;
}

/* --product of bfloat16. */
static status read_product(const struct arguments *arguments,
                           enum dtype dtype, enum product *out)
{
    static const char *const names[] = {"pairs", "tiles"};
    int chosen = PRODUCT_PAIRS;

    TRY(arguments_choice(arguments, "product", names, 2, &chosen));
    *out = (enum product)chosen;
    if (arguments_has(arguments, "product") && dtype != DTYPE_BF16)
        FAIL(ERR_USAGE, "--product: %s applies to bfloat16, but --dtype is %s",
             names[chosen], dtype_name(dtype));
    return OK;
}

/* Options of a GPU. */
static status read_gpu(const struct arguments *arguments,
                       struct bench_step_settings *settings)
{
    static const char *const names[] = {"exact", "fast"};
    static const char *const makers[] = {"auto", "own", "cudnn", "flash"};
    int chosen = 0, maker = 0;

    TRY(device_parse(&settings->device,
                     arguments_text(arguments, "device", "cpu")));
    TRY(arguments_choice(arguments, "gpu", names, 2, &chosen));
    settings->fast = chosen == 1;
    TRY(arguments_choice(arguments, "attention", makers, 4, &maker));
    settings->attention = (enum attention_by)maker;
    settings->graphs = arguments_has(arguments, "graphs");
    if (settings->device == DEVICE_CPU || settings->device == DEVICE_FAR) {
        if (settings->fast || settings->graphs)
            FAIL(ERR_USAGE, "--%s is of a GPU; --device cuda has it",
                 settings->fast ? "gpu fast" : "graphs");
    }
    if (settings->attention >= ATTENTION_BY_CUDNN &&
        (!settings->fast || settings->dtype != DTYPE_BF16))
        FAIL(ERR_USAGE, "--attention %s goes with --gpu fast and --dtype "
                        "bfloat16", makers[maker]);
    if (settings->fast && settings->dtype == DTYPE_F64)
        FAIL(ERR_USAGE, "--gpu fast makes products of float32, bfloat16 and "
                        "float16, but --dtype is float64");
    return OK;
}

status command_bench_step(struct arguments *arguments)
{
    struct bench_step_settings settings = {
        .model = arguments_text(arguments, "model", NULL),
        .csv = arguments_has(arguments, "csv"),
        .draw = arguments_text(arguments, "draw", NULL),
        .trace = arguments_text(arguments, "trace", NULL)};
    struct json_writer writer = {0};
    int64_t steps = 0, threads = 0;
    status result;

    TRY(arguments_not_both(arguments, "csv", "json"));
    TRY(file_may_write(settings.draw));
    TRY(file_may_replace(settings.trace));
    TRY(read_dtype(arguments, &settings.dtype));
    TRY(read_product(arguments, settings.dtype, &settings.product));

    TRY(arguments_integer(arguments, "batch", 1, 1 << 20, &settings.batch));
    TRY(arguments_integer(arguments, "micro-batch", 1, 1 << 20,
                          &settings.micro_batch));
    TRY(arguments_integer(arguments, "length", 2, 1 << 24, &settings.length));
    TRY(arguments_integer(arguments, "steps", 1, BENCH_STEPS_MOST, &steps));
    TRY(arguments_integer(arguments, "threads", 0, THREADS_MOST, &threads));
    TRY(read_isa(arguments, &settings.isa));
    TRY(read_gpu(arguments, &settings));
    settings.steps = (int)steps;
    settings.threads = (int)threads;
    if (!arguments_has(arguments, "json"))
        return bench_step(&settings, stdout, NULL);
    json_write_begin(&writer, 2);
    TRY_GOTO(done, result, bench_step(&settings, stdout, &writer));
    TRY_GOTO(done, result, json_print(&writer, stdout));
done:
    json_writer_free(&writer);
    return result;
}

/* Rows that differ from the reference are printed before the error. */
status command_bench_kernels(struct arguments *arguments)
{
    struct bench_kernels_settings settings = {
        .only = arguments_text(arguments, "only", NULL)};
    static const char *const checks[] = {"some", "all", "nothing"};
    struct json_writer writer = {0};
    int64_t milliseconds = 0, threads = 0;
    int check = CHECK_SOME;
    status result;

    TRY(arguments_integer(arguments, "ms", 1, 1000000, &milliseconds));
    TRY(arguments_integer(arguments, "threads", 0, THREADS_MOST, &threads));
    TRY(arguments_choice(arguments, "check", checks, 3, &check));
    TRY(read_isa(arguments, &settings.isa));
    TRY(read_dtype(arguments, &settings.dtype));
    settings.check = (enum bench_check)check;
    settings.every = !arguments_has(arguments, "dtype");
    TRY(read_product(arguments, settings.every ? DTYPE_BF16 : settings.dtype,
                     &settings.product));
    if (settings.dtype == DTYPE_F64)
        FAIL(ERR_CONFIG, "bench kernels: float64 is the reference; --dtype "
                         "takes float32, bfloat16 or float16");
    settings.seconds = 1e-3 * (double)milliseconds;
    settings.threads = (int)threads;
    if (!arguments_has(arguments, "json"))
        return bench_kernels(&settings, stdout, NULL);
    json_write_begin(&writer, 2);
    result = bench_kernels(&settings, stdout, &writer);
    if (result == OK || result == ERR_VERIFY) {
        const status printed = json_print(&writer, stdout);

        if (result == OK) result = printed;
    }
    json_writer_free(&writer);
    return result;
}

status command_bench_recipes(struct arguments *arguments)
{
    struct bench_recipes_settings settings = {
        .only = arguments_text(arguments, "only", NULL)};
    struct json_writer writer = {0};
    int64_t rounds = 0, threads = 0;
    status result;

    TRY(arguments_integer(arguments, "tokens", 1, 1 << 20, &settings.tokens));
    TRY(arguments_integer(arguments, "in", 1, 1 << 16, &settings.in));
    TRY(arguments_integer(arguments, "out", 1, 1 << 16, &settings.out));
    TRY(arguments_integer(arguments, "rounds", 1, 1000, &rounds));
    TRY(arguments_integer(arguments, "threads", 0, THREADS_MOST, &threads));
    TRY(read_isa(arguments, &settings.isa));
    settings.rounds = (int)rounds;
    settings.threads = (int)threads;
    if (!arguments_has(arguments, "json"))
        return bench_recipes(&settings, stdout, NULL);
    json_write_begin(&writer, 2);
    TRY_GOTO(done, result, bench_recipes(&settings, stdout, &writer));
    TRY_GOTO(done, result, json_print(&writer, stdout));
done:
    json_writer_free(&writer);
    return result;
}

status command_bench_comm(struct arguments *arguments)
{
    struct bench_comm_settings settings = {0};
    struct json_writer writer = {0};
    int64_t milliseconds = 0, ranks = 0;
    status result;

    TRY(arguments_integer(arguments, "ranks", 1, 1024, &ranks));
    TRY(arguments_integer(arguments, "bytes", 4, (int64_t)1 << 34,
                          &settings.bytes));
    TRY(arguments_integer(arguments, "ms", 1, 1000000, &milliseconds));
    settings.seconds = 1e-3 * (double)milliseconds;
    settings.ranks = (int)ranks;
    if (!arguments_has(arguments, "json"))
        return bench_comm(&settings, stdout, NULL);
    json_write_begin(&writer, 2);
    TRY_GOTO(done, result, bench_comm(&settings, stdout, &writer));
    if (launch_rank() > 0) goto done; /* rank 0 has all rows */
    TRY_GOTO(done, result, json_print(&writer, stdout));
done:
    json_writer_free(&writer);
    return result;
}

status command_bench_schedules(struct arguments *arguments)
{
    struct bench_schedules_settings settings = {0};
    struct json_writer writer = {0};
    int64_t ranks = 0, microbatches = 0, repeats = 0;
    status result;

    TRY(arguments_integer(arguments, "ranks", 1, 32767, &ranks));
    TRY(arguments_integer(arguments, "microbatches", 1, 1 << 24,
                          &microbatches));
    TRY(arguments_integer(arguments, "repeats", 1, 1000, &repeats));
    settings.ranks = (int)ranks;
    settings.microbatches = (int)microbatches;
    settings.repeats = (int)repeats;
    if (!arguments_has(arguments, "json"))
        return bench_schedules(&settings, stdout, NULL);
    json_write_begin(&writer, 2);
    TRY_GOTO(done, result, bench_schedules(&settings, stdout, &writer));
    TRY_GOTO(done, result, json_print(&writer, stdout));
done:
    json_writer_free(&writer);
    return result;
}
