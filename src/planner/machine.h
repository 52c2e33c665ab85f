/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - a machine as the planner sees it: constants with their sources,
 * and tables of what was measured on it.
 *
 * A machine is a preset (machine_presets), a file that `calibrate` wrote, or a
 * file of a person: `from: h100` and the constants that differ, one on a line
 * (docs/planner.md has the schema). The name may be followed by corrections:
 * "h100,gemm=0.72". */
#ifndef LOCKSTEP_PLANNER_MACHINE_H
#define LOCKSTEP_PLANNER_MACHINE_H

#include <stdbool.h>
#include "base/arena.h"
#include "base/json.h"
#include "kernels/accumulator.h"
#include "planner/sentinel.h"

/* Constants, in the order of the table in machine.c. Rates are per second, of
 * one device (M_NIC_RATE: of one port) and one direction. */
enum constant {
    M_DEVICES,       /* of a node */
    M_PEAK_32, M_PEAK_16, M_PEAK_8, /* FLOP/s of dense products */
    M_PEAK_4,        /* 0: as M_PEAK_8 */
    M_GEMM,          /* reached share of the peak by large products */
    M_GEMM_HALF,     /* smallest dimension with half of that */
    M_ATTENTION,     /* reached share of the peak by attention */
    M_MEMORY_BYTES, M_MEMORY_RATE,
    M_MEMORY,        /* reached share of the rate */
    M_LINK_RATE, M_LINK, M_LINK_LATENCY,    /* inside a node */
    M_LINK_AXES,     /* of the torus that these links make; 1: a switch */
    M_NICS,          /* network ports of a node; 0: one for each device */
    M_NIC_RATE, M_NIC, M_NIC_LATENCY,       /* of a port */
    M_HOST_RATE, M_HOST_BYTES, M_DISK_RATE, /* of a device's share */
    M_LAUNCH,        /* seconds of the host for an instruction */
    M_GAP,           /* seconds between two kernels of Lockstep; not where
                      * products were measured: those contain it */
    M_STEP,          /* seconds of a step that no instruction explains */
    M_COMPUTE_BESIDE, M_COMM_BESIDE, /* times longer while the other runs */
    M_NOISE,         /* standard deviation of an instruction over its time */
    M_WATTS,         /* of a device with its share of the node */
    M_CONSTANTS
};

enum mark { MARK_DATASHEET, MARK_FITTED, MARK_MEASURED, MARK_ASSUMED,
            MARK_BY_HAND, MARKS };

struct constant_row {
    const char *key, *unit, *meaning;
    double least, most;
};
extern const struct constant_row constant_rows[M_CONSTANTS];
const char *mark_name(enum mark mark);

/* How a product takes its operands: F (weights transposed), B, W. */
enum product_kind { PRODUCT_NT, PRODUCT_NN, PRODUCT_TN, PRODUCT_KINDS };
extern const char *const product_kind_names[PRODUCT_KINDS];
#define ACCUMULATOR_NONE {0, 0, 0} /* sums are float32 */
static inline bool accumulator_same(const struct accumulator *a,
                                    const struct accumulator *b)
{
    return a->bits == b->bits && a->granule == b->granule &&
           a->promote == b->promote;
}
/* A product that was timed with all ranks active. */
struct measured_product {
    int64_t m, n, k;
    enum product_kind kind; /* PRODUCT_KINDS: stands for all */
    int bits;            /* of an element: 8, 16 or 32 */
    int threads;         /* of the rank */
    double seconds, sigma;
    struct accumulator accumulator; /* its sums; zeroed: of float32 */
};
/* Work that is no product. */
enum work {
    WORK_ATTENTION, WORK_ATTENTION_BACK, /* width: of a head; rows: keys */
    WORK_NORM, WORK_NORM_BACK, WORK_GATE, WORK_GATE_BACK, WORK_ROTATE,
    WORK_ADD, WORK_LOSS, WORK_UPDATE, WORK_SQUARES, WORKS
};
extern const char *const work_names[WORKS];
/* One call of it, of rows of `width` elements, timed with all ranks active. */
struct measured_work {
    enum work work;
    int64_t rows, width;
    int bits;            /* of an element of activations: 16 or 32 */
    int threads;         /* of the rank */
    double amount;       /* FLOPs of attention's products, else bytes */
    double seconds;
};
/* One call that rounds a matrix for a product of a recipe, or rotates it, timed
 * with all ranks active. */
enum { ROUNDING_BYTES = 80 };
struct measured_rounding {
    char how[ROUNDING_BYTES]; /* nn/rounding_kernels.h */
    uint64_t code;       /* of `how` */
    int64_t rows, width; /* of the matrix */
    int threads;         /* of the rank */
    double seconds;
};
/* A collective that was timed; sizes ascend. */
enum { SIZES_MOST = 16, COLLECTIVE_OPS = 5, COLLECTIVE_PATHS = 3 };
extern const char *const collective_names[COLLECTIVE_OPS]; /* enum collective */
extern const char *const collective_paths[COLLECTIVE_PATHS];
struct measured_collective {
    char op[24], path[16];  /* "all-reduce"; "threads", "node", "network" */
    int ranks, count;
    double bytes[SIZES_MOST], seconds[SIZES_MOST];
};

/* Rows that a profile lacks: no time was left to measure them, or (large) they
 * do not fit the room of the operands. */
struct left_out { int products, works, roundings, large; };

enum { MACHINE_NAME_BYTES = 64, MACHINE_KEY_BYTES = 160 };

struct machine {
    char name[MACHINE_NAME_BYTES];
    char key[MACHINE_KEY_BYTES]; /* of the machine it was measured on; "" */
    bool cores;          /* devices are cores: a rank's messages need its own */
    double value[M_CONSTANTS];
    enum mark mark[M_CONSTANTS];
    const char *source[M_CONSTANTS]; /* borrowed or the arena's */
    struct measured_product *products;       /* the arena's */
    int product_count;
    struct measured_work *works;             /* the arena's */
    int work_count;
    struct measured_rounding *roundings;     /* the arena's */
    int rounding_count;
    struct measured_collective *collectives; /* the arena's */
    int collective_count;
    struct moments moments; /* in which it was measured */
    struct left_out left_out;
    struct arena arena;
};

struct machine_preset {
    const char *name, *title, *source, *fit;
    double value[M_CONSTANTS]; /* 0: the usual value (machine.c) */
    const char *apart[M_CONSTANTS]; /* sources of their own; NULL: `source`, or
                                     * `fit` of what is fitted */
};
extern const struct machine_preset machine_presets[];
extern const int machine_preset_count;

/* `what` is a preset or a file, with corrections behind commas. ERR_CONFIG: no
 * such machine (names the nearest), a constant out of range. ERR_FORMAT: what
 * the file lacks. ERR_CONFIG: it was measured on another machine than `key`,
 * and `foreign` is false; "" as key: any. */
struct machine_choice {
    const char *what, *key;
    bool foreign;
    const char *where;     /* begins sentences; NULL: "--machine" */
};
bool machine_is_preset(const char *name);
status machine_open(struct machine *machine,
                    const struct machine_choice *choice);
void machine_free(struct machine *machine);
/* A preset as it stands. */
void machine_from_preset(struct machine *machine,
                         const struct machine_preset *preset);
/* Sets one constant; ERR_CONFIG: no such constant (names the nearest), or out
 * of its range. `where` begins the sentence. */
status machine_set(struct machine *machine, const char *where,
                   const char *key, double value, enum mark mark);
/* The machine as a profile file. */
status machine_write(const struct machine *machine, struct text *out);
/* Rows that the profile lacks, as an object. */
void machine_left_out_write(const struct machine *machine,
                            struct json_writer *writer);
/* The constants as an object, each with value, unit, mark and source. */
void machine_constants_write(const struct machine *machine,
                             struct json_writer *writer);

#endif
