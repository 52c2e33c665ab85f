/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - the table of constants, the presets, and corrections. */
#include "planner/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "planner/profile_file.h"

const char *const product_kind_names[PRODUCT_KINDS] = {"nt", "nn", "tn"};
const char *const work_names[WORKS] = {
    "attention", "attention_back", "norm", "norm_back", "gate", "gate_back",
    "rotate", "add", "loss", "update", "squares"};

const struct constant_row constant_rows[M_CONSTANTS] = {
    [M_DEVICES] = {"devices", "", "devices of a node", 1, 1 << 16},
    [M_PEAK_32] = {"peak_32", "FLOP/s", "peak of products of float32",
                   1e6, 1e20},
    [M_PEAK_16] = {"peak_16", "FLOP/s", "peak of products of bfloat16",
                   1e6, 1e20},
    [M_PEAK_8] = {"peak_8", "FLOP/s", "peak of products of 8 bits", 1e6, 1e20},
    [M_PEAK_4] = {"peak_4", "FLOP/s", "peak of products of 4 bits; 0: as of 8",
                  0, 1e20},
    [M_GEMM] = {"gemm", "", "share of the peak that large products reach",
                1e-6, 1},
    [M_GEMM_HALF] = {"gemm_half", "", "dimension of a product that costs half "
                     "of its speed", 0, 1e6},
    [M_ATTENTION] = {"attention", "", "share of the peak that attention "
                     "reaches", 1e-6, 1},
    [M_MEMORY_BYTES] = {"memory_bytes", "bytes", "memory of a device",
                        1, 1e16},
    [M_MEMORY_RATE] = {"memory_rate", "bytes/s", "bandwidth of that memory",
                       1, 1e16},
    [M_MEMORY] = {"memory", "", "share of that bandwidth that is reached",
                  1e-6, 1},
    [M_LINK_RATE] = {"link_rate", "bytes/s", "inside a node, one direction",
                     1, 1e16},
    [M_LINK] = {"link", "", "share of it that collectives reach", 1e-6, 1},
    [M_LINK_LATENCY] = {"link_latency", "s", "of a hop inside a node", 0, 10},
    [M_LINK_AXES] = {"link_axes", "", "axes of the torus of links inside a "
                     "node; 1: a switch", 1, 6},
    [M_NICS] = {"nics", "", "network ports of a node; 0: one for each device",
                0, 1 << 16},
    [M_NIC_RATE] = {"nic_rate", "bytes/s", "of a network port, one direction",
                    1, 1e16},
    [M_NIC] = {"nic", "", "share of it that collectives reach", 1e-6, 1},
    [M_NIC_LATENCY] = {"nic_latency", "s", "of a hop between nodes", 0, 10},
    [M_HOST_RATE] = {"host_rate", "bytes/s", "between device and host memory",
                     1, 1e16},
    [M_HOST_BYTES] = {"host_bytes", "bytes", "host memory, a device's share",
                      0, 1e16},
    [M_DISK_RATE] = {"disk_rate", "bytes/s", "to disk, a device's share",
                     1, 1e16},
    [M_LAUNCH] = {"launch", "s", "the host's time for an instruction", 0, 1},
    [M_GAP] = {"gap", "s", "between two kernels of Lockstep on a device", 0,
               1},
    [M_STEP] = {"step", "s", "time of a step that no instruction explains",
                0, 1e4},
    [M_COMPUTE_BESIDE] = {"compute_beside", "", "times that computation takes "
                          "longer beside communication", 1, 100},
    [M_COMM_BESIDE] = {"comm_beside", "", "times that communication takes "
                       "longer beside computation", 1, 100},
    [M_NOISE] = {"noise", "", "standard deviation of an instruction over its "
                 "time", 0, 1},
    [M_WATTS] = {"watts", "W", "power of a device with its share of the node",
                 0, 1e6},
};

static const double usual[M_CONSTANTS] = {
    [M_DEVICES] = 8, [M_GEMM] = 0.75, [M_GEMM_HALF] = 96, [M_ATTENTION] = 0.4,
    [M_MEMORY] = 0.8, [M_LINK] = 0.75, [M_LINK_LATENCY] = 4e-6,
    [M_LINK_AXES] = 1, [M_NIC] = 0.8,
    [M_NIC_LATENCY] = 1.5e-5, [M_HOST_RATE] = 25e9, [M_HOST_BYTES] = 128e9,
    [M_DISK_RATE] = 1e9, [M_LAUNCH] = 6e-6, [M_GAP] = 2e-6,
    [M_STEP] = 2e-3,
    [M_COMPUTE_BESIDE] = 1.05, [M_COMM_BESIDE] = 1.1, [M_NOISE] = 0.005,
};

#define DATASHEET "data sheet of the maker"
#define FROM_H100 "taken from the fit of h100, not measured: "                 \
                  "tests/golden/published_time/fit.py"
#define FIT "fitted, not measured: tests/golden/published_time/fit.py"
/* PyTorch says how much memory a device has when it has too little: A100 39.39
 * and 79.15 GiB, H100 79.11, H200 139.80, B200 178.35, GB200 184.31, MI300X
 * 191.98; 98.9% of what its name says. A process without a tensor has about
 * half a GiB of it. */
#define OFFERED(gib) (((gib) - 0.5) * 0x1p30)
/* The share of h100 was fitted on clusters with EFA and RoCE, too. */
#define NCCL_PORTS "46 to 48 GB/s of 50, which NCCL's maintainers expect of "  \
                   "such ports (NVIDIA/nccl-tests, issue 290)"
#define SHARED_CORES "assumed; two cores of an AMD EPYC had 1.87 and 1.99, "  \
                     "1.74 and 1.88 (lockstep calibrate, 2026-11-30)"
#define REPORTED "what PyTorch reports of such a device, less 0.5 GiB that a " \
                 "process needs for itself"

const struct machine_preset machine_presets[] = {
    {"a100-40", "A100 SXM, 40 GB, HDR InfiniBand", DATASHEET, FIT,
     {[M_NICS] = 8, [M_GEMM] = 0.86, [M_GEMM_HALF] = 4, [M_ATTENTION] = 0.6,
      [M_MEMORY] = 0.799, [M_LINK] = 0.734, [M_NIC] = 0.462, [M_STEP] = 0.001,
      [M_PEAK_32] = 19.5e12, [M_PEAK_16] = 312e12, [M_PEAK_8] = 312e12,
      [M_MEMORY_BYTES] = OFFERED(39.39), [M_MEMORY_RATE] = 1.555e12,
      [M_LINK_RATE] = 300e9, [M_NIC_RATE] = 25e9, [M_WATTS] = 800},
     {[M_MEMORY_BYTES] = REPORTED}},
    {"a100-80", "A100 SXM, 80 GB, HDR InfiniBand", DATASHEET, FIT,
     {[M_NICS] = 8, [M_GEMM] = 0.86, [M_GEMM_HALF] = 4, [M_ATTENTION] = 0.6,
      [M_MEMORY] = 0.799, [M_LINK] = 0.734, [M_NIC] = 0.462, [M_STEP] = 0.001,
      [M_PEAK_32] = 19.5e12, [M_PEAK_16] = 312e12, [M_PEAK_8] = 312e12,
      [M_MEMORY_BYTES] = OFFERED(79.15), [M_MEMORY_RATE] = 2.039e12,
      [M_LINK_RATE] = 300e9, [M_NIC_RATE] = 25e9, [M_WATTS] = 800},
     {[M_MEMORY_BYTES] = REPORTED}},
    {"h100", "H100 SXM, 80 GB, NDR InfiniBand", DATASHEET, FIT,
     {[M_NICS] = 8, [M_GEMM] = 0.6, [M_GEMM_HALF] = 13.5, [M_ATTENTION] = 0.4,
      [M_MEMORY] = 0.663, [M_LINK] = 0.608, [M_NIC] = 0.536, [M_STEP] = 0.0195,
      [M_PEAK_32] = 67e12, [M_PEAK_16] = 989e12, [M_PEAK_8] = 1979e12,
      [M_MEMORY_BYTES] = OFFERED(79.11), [M_MEMORY_RATE] = 3.35e12,
      [M_LINK_RATE] = 450e9, [M_NIC_RATE] = 50e9, [M_HOST_RATE] = 50e9,
      [M_WATTS] = 1300},
     {[M_MEMORY_BYTES] = REPORTED}},
    {"h100-96", "H100, 96 GB HBM2e at 500 W, 400 Gb/s a device", DATASHEET,
     FIT,
     {[M_NICS] = 8, [M_GEMM] = 0.483, [M_GEMM_HALF] = 252,
      [M_ATTENTION] = 0.418,
      [M_MEMORY] = 0.9, [M_LINK] = 0.663, [M_NIC] = 0.704, [M_STEP] = 0.0492,
      [M_PEAK_32] = 67e12, [M_PEAK_16] = 989e12, [M_PEAK_8] = 1979e12,
      [M_MEMORY_BYTES] = OFFERED(0.989 * 96), [M_MEMORY_RATE] = 2.4e12,
      [M_LINK_RATE] = 450e9, [M_NIC_RATE] = 50e9, [M_HOST_RATE] = 50e9,
      [M_WATTS] = 1000},
     {[M_MEMORY_BYTES] = REPORTED,
      [M_MEMORY] = "3 of 3.35 TB/s measured on an H100 (Hugging Face, The Smol "
                   "Training Playbook, 2025-10), assumed for HBM2e"}},
    {"h200", "H200 SXM, 141 GB, NDR InfiniBand", DATASHEET, FROM_H100,
     {[M_NICS] = 8, [M_GEMM] = 0.6, [M_GEMM_HALF] = 13.5, [M_ATTENTION] = 0.4,
      [M_MEMORY] = 0.663, [M_LINK] = 0.608, [M_NIC] = 0.536, [M_STEP] = 0.0195,
      [M_PEAK_32] = 67e12, [M_PEAK_16] = 989e12, [M_PEAK_8] = 1979e12,
      [M_MEMORY_BYTES] = OFFERED(139.8), [M_MEMORY_RATE] = 4.8e12,
      [M_LINK_RATE] = 450e9, [M_NIC_RATE] = 50e9, [M_HOST_RATE] = 50e9,
      [M_WATTS] = 1300},
     {[M_MEMORY_BYTES] = REPORTED}},
    {"b200", "B200 SXM, 180 GB, NDR InfiniBand", DATASHEET, FROM_H100,
     {[M_NICS] = 8, [M_GEMM] = 0.6, [M_GEMM_HALF] = 13.5, [M_ATTENTION] = 0.4,
      [M_MEMORY] = 0.663, [M_LINK] = 0.608, [M_NIC] = 0.92, [M_STEP] = 0.0195,
      [M_PEAK_32] = 80e12, [M_PEAK_16] = 2250e12, [M_PEAK_8] = 4500e12,
      [M_PEAK_4] = 9000e12,
      [M_MEMORY_BYTES] = OFFERED(178.35), [M_MEMORY_RATE] = 8e12,
      [M_LINK_RATE] = 900e9, [M_NIC_RATE] = 50e9, [M_HOST_RATE] = 50e9,
      [M_WATTS] = 1800},
     {[M_MEMORY_BYTES] = REPORTED, [M_NIC] = NCCL_PORTS}},
    {"gb200", "GB200 NVL72, 186 GB", DATASHEET, FROM_H100,
     {[M_DEVICES] = 72, [M_NICS] = 72,
      [M_GEMM] = 0.6, [M_GEMM_HALF] = 13.5, [M_ATTENTION] = 0.4,
      [M_MEMORY] = 0.663, [M_LINK] = 0.608, [M_NIC] = 0.92, [M_STEP] = 0.0195,
      [M_PEAK_32] = 80e12, [M_PEAK_16] = 2500e12,
      [M_PEAK_8] = 5000e12, [M_PEAK_4] = 10000e12,
      [M_MEMORY_BYTES] = OFFERED(184.31),
      [M_MEMORY_RATE] = 8e12, [M_LINK_RATE] = 900e9, [M_NIC_RATE] = 50e9,
      [M_HOST_RATE] = 450e9, [M_HOST_BYTES] = 240e9, [M_WATTS] = 1700},
     {[M_MEMORY_BYTES] = REPORTED, [M_NIC] = NCCL_PORTS}},
    {"mi300x", "MI300X, 192 GB, 400 Gb/s a device", DATASHEET, FROM_H100,
     {[M_NICS] = 8,
      [M_PEAK_32] = 163e12, [M_PEAK_16] = 1307e12, [M_PEAK_8] = 2610e12,
      [M_MEMORY_BYTES] = OFFERED(191.98), [M_MEMORY_RATE] = 5.3e12,
      [M_LINK_RATE] = 448e9, [M_NIC_RATE] = 50e9, [M_HOST_RATE] = 50e9,
      [M_GEMM] = 0.4, [M_GEMM_HALF] = 13.5,
      [M_MEMORY] = 0.663, [M_NIC] = 0.536, [M_STEP] = 0.0195,
      [M_WATTS] = 1300},
     {[M_MEMORY_BYTES] = REPORTED}},
    {"tpu-v4", "TPU v4, 32 GiB, slices of a torus", DATASHEET, FIT,
     {[M_DEVICES] = 4096, [M_LINK_AXES] = 3,
      [M_GEMM] = 0.8, [M_GEMM_HALF] = 4, [M_ATTENTION] = 0.507,
      [M_MEMORY] = 0.806, [M_LINK] = 0.749, [M_NIC] = 0.702, [M_STEP] = 0.001,
      [M_PEAK_32] = 69e12, [M_PEAK_16] = 275e12, [M_PEAK_8] = 275e12,
      [M_MEMORY_BYTES] = 34359738368.0, [M_MEMORY_RATE] = 1.228e12,
      [M_LINK_RATE] = 270e9, [M_NIC_RATE] = 3.125e9, [M_WATTS] = 300},
     {NULL}},
    {"cpu", "one core of an AVX2 server, 4 GiB each, 10 GbE", "assumed; run "
     "`lockstep calibrate` on yours", "assumed; run `lockstep calibrate`",
     {[M_DEVICES] = 2, [M_NICS] = 1, [M_PEAK_32] = 9.6e10, [M_PEAK_16] = 9.6e10,
      [M_PEAK_8] = 9.6e10, [M_MEMORY_BYTES] = 4294967296.0,
      [M_MEMORY_RATE] = 1e10, [M_LINK_RATE] = 5e9, [M_NIC_RATE] = 1.25e9,
      [M_HOST_RATE] = 1e10, [M_HOST_BYTES] = 4294967296.0,
      [M_DISK_RATE] = 4e8, [M_GEMM_HALF] = 8, [M_ATTENTION] = 0.25,
      [M_LAUNCH] = 1e-6, [M_GAP] = 1e-9, [M_STEP] = 1e-4,
      [M_LINK_LATENCY] = 2e-6,
      [M_NIC_LATENCY] = 5e-5, [M_COMPUTE_BESIDE] = 1.9, [M_COMM_BESIDE] = 1.8,
      [M_NOISE] = 0.03, [M_WATTS] = 8},
     {[M_COMPUTE_BESIDE] = SHARED_CORES, [M_COMM_BESIDE] = SHARED_CORES}},
};
const int machine_preset_count =
    (int)(sizeof machine_presets / sizeof *machine_presets);

const char *mark_name(enum mark mark)
{
    static const char *const names[MARKS] = {
        "datasheet", "fitted", "measured", "assumed", "by hand"};

    return names[mark];
}

/* Whether fit.py fits it. */
static bool is_fitted(int constant)
{
    return constant == M_GEMM || constant == M_GEMM_HALF ||
           constant == M_ATTENTION || constant == M_MEMORY ||
           constant == M_LINK || constant == M_NIC || constant == M_STEP;
}

void machine_from_preset(struct machine *machine,
                         const struct machine_preset *preset)
{
    const bool assumed = strncmp(preset->source, "assumed", 7) == 0;

    *machine = (struct machine){0};
    arena_init(&machine->arena, "machine", 0);
    snprintf(machine->name, sizeof machine->name, "%s", preset->name);
    machine->cores = strcmp(preset->name, "cpu") == 0;
    for (int i = 0; i < M_CONSTANTS; i++) {
        const bool own = preset->value[i] != 0;
        const char *apart = preset->apart[i];

        machine->value[i] = own ? preset->value[i] : usual[i];
        machine->mark[i] = assumed || !own             ? MARK_ASSUMED
                           : is_fitted(i) && apart == NULL ? MARK_FITTED
                                                       : MARK_DATASHEET;
        machine->source[i] =
            apart != NULL ? apart
            : machine->mark[i] == MARK_DATASHEET ? preset->source
            : machine->mark[i] == MARK_FITTED  ? preset->fit
            : assumed                          ? preset->source
                                               : "the usual value";
    }
}

static status unknown_constant(const char *where, const char *key)
{
    const char *names[M_CONSTANTS];
    const char *nearest;
    status code;

    for (int i = 0; i < M_CONSTANTS; i++) names[i] = constant_rows[i].key;
    nearest = text_nearest(key, names, M_CONSTANTS);
    if (nearest != NULL)
        FAIL(ERR_CONFIG, "%s: a machine has no constant %s; the nearest is %s",
             where, key, nearest);
    code = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                       "%s: a machine has no constant %s", where, key);
    return status_hint(code, "lockstep machines --explain h100 lists them");
}

const char *const collective_names[COLLECTIVE_OPS] = {
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send"};
const char *const collective_paths[COLLECTIVE_PATHS] = {"threads", "node",
                                                        "network"};

status machine_set(struct machine *machine, const char *where,
                   const char *key, double value, enum mark mark)
{
    for (int i = 0; i < M_CONSTANTS; i++) {
        const struct constant_row *row = &constant_rows[i];

        if (strcmp(row->key, key) != 0) continue;
        if (!(value >= row->least && value <= row->most))
            FAIL(ERR_CONFIG, "%s: %s is %g; expected %g to %g%s%s", where, key,
                 value, row->least, row->most, row->unit[0] != 0 ? " " : "",
                 row->unit);
        if ((i == M_DEVICES || i == M_NICS) &&
            value != (double)(int64_t)value)
            FAIL(ERR_CONFIG, "%s: %s is %g; expected a whole number", where,
                 key, value);
        machine->value[i] = value;
        machine->mark[i] = mark;
        machine->source[i] = mark_name(mark);
        return OK;
    }
    return unknown_constant(where, key);
}

void machine_constants_write(const struct machine *machine,
                             struct json_writer *writer)
{
    json_write_object(writer);
    for (int i = 0; i < M_CONSTANTS; i++) {
        json_write_key(writer, constant_rows[i].key);
        json_write_object(writer);
        json_write_key_real(writer, "value", machine->value[i]);
        json_write_key_text(writer, "unit", constant_rows[i].unit);
        json_write_key_text(writer, "mark", mark_name(machine->mark[i]));
        json_write_key_text(writer, "source", machine->source[i]);
        json_write_object_end(writer);
    }
    json_write_object_end(writer);
}

void machine_free(struct machine *machine)
{
    if (machine->arena.name != NULL) arena_free(&machine->arena);
    *machine = (struct machine){0};
}

/* ---- opening ---- */

static const struct machine_preset *find_preset(const char *name)
{
    for (int i = 0; i < machine_preset_count; i++)
        if (strcmp(machine_presets[i].name, name) == 0)
            return &machine_presets[i];
    return NULL;
}

static const char *where_of(const struct machine_choice *choice)
{
    return choice->where != NULL ? choice->where : "--machine";
}

static status unknown_machine(const char *where, const char *name)
{
    const char *names[32], *nearest;
    status code;

    for (int i = 0; i < machine_preset_count; i++)
        names[i] = machine_presets[i].name;
    nearest = text_nearest(name, names, machine_preset_count);
    code = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                       "%s: %s is neither a preset nor a file%s%s",
                       where, name,
                       nearest != NULL ? "; the nearest preset is " : "",
                       nearest != NULL ? nearest : "");
    return status_hint(code, "lockstep machines lists the presets; lockstep "
                             "calibrate --out FILE measures this machine");
}

/* Is the constant among the corrections before `end` of MACHINE,NAME=VALUE,...?
 */
static bool is_corrected(const char *all, const char *end, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = strchr(all, ','); at != NULL && at < end;
         at = strchr(at + 1, ','))
        if (strncmp(at + 1, name, length) == 0 && at[1 + length] == '=')
            return true;
    return false;
}

/* "gemm=0.72": one correction. */
static status correct(struct machine *machine, char *word)
{
    char *equals = strchr(word, '='), *end = NULL;
    double value;

    if (equals == NULL || equals == word)
        FAIL(ERR_CONFIG, "--machine: a correction is written NAME=VALUE, "
                         "found \"%s\"", word);
    *equals = 0;
    value = strtod(equals + 1, &end);
    if (end == equals + 1 || *end != 0)
        FAIL(ERR_CONFIG, "--machine: %s: \"%s\" is not a number", word,
             equals + 1);
    return machine_set(machine, "--machine", word, value, MARK_BY_HAND);
}

bool machine_is_preset(const char *name)
{
    char word[MACHINE_NAME_BYTES];

    snprintf(word, sizeof word, "%.*s", (int)strcspn(name, ","), name);
    return find_preset(word) != NULL;
}

static status open_named(struct machine *machine, const char *name)
{
    const struct machine_preset *preset = find_preset(name);

    if (preset == NULL) return profile_read(machine, name);
    machine_from_preset(machine, preset);
    return OK;
}

static status check_key(const struct machine *machine,
                        const struct machine_choice *choice)
{
    status code;

    if (machine->key[0] == 0 || choice->key == NULL || choice->key[0] == 0 ||
        choice->foreign || strcmp(machine->key, choice->key) == 0)
        return OK;
    code = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                       "--machine: this profile was measured on \"%s\"; this "
                       "machine is \"%s\"", machine->key, choice->key);
    return status_hint(code, "--foreign plans for that other machine; lockstep "
                             "calibrate measures this one");
}

status machine_open(struct machine *machine,
                    const struct machine_choice *choice)
{
    char words[1024], *rest = words, *word;
    const char *before;
    status result;

    *machine = (struct machine){0};
    if (strlen(choice->what) >= sizeof words)
        FAIL(ERR_CONFIG, "--machine: the name is longer than %d bytes",
             (int)sizeof words - 1);
    snprintf(words, sizeof words, "%s", choice->what);
    word = strsep(&rest, ",");
    if (find_preset(word) == NULL && !file_exists(word))
        return unknown_machine(where_of(choice), word);
    TRY_GOTO(failed, result, open_named(machine, word));
    TRY_GOTO(failed, result, check_key(machine, choice));
    while ((word = strsep(&rest, ",")) != NULL) {
        TRY_GOTO(failed, result, correct(machine, word));
        before = choice->what + (word - words) - 1; /* its comma */
        if (is_corrected(choice->what, before, word))
            FAIL_GOTO(failed, result, ERR_CONFIG,
                      "--machine: %s is corrected twice", word);
    }
    return OK;
failed:
    machine_free(machine);
    return result;
}
