/* SPDX-License-Identifier: Apache-2.0 */
/* format.h - number formats of 16 bits and fewer: what a code stands for, and
 * how numbers are rounded. Kernels write codes (kernels/quantize.h).
 *
 *   sign | exponent | mantissa       1.mantissa 2^(exponent - bias)
 *                                    0.mantissa 2^(1 - bias) for exponent 0
 *
 * A magnitude code counts the values of a format from zero upwards, so codes of
 * neighbours differ by one. int8 and ternary are the same with quanta of one
 * size and negative numbers in two's complement; E8M0 has no sign, no mantissa
 * and no zero.
 * Sources: E4M3 and E5M2: Micikevicius et al. 2022, arXiv:2209.05433; E2M1 and
 * E8M0: OCP Microscaling Formats 1.0; E4M3B11: Sun et al. 2019 (HFP8), NeurIPS,
 * in the coding of ml_dtypes; E5M6: DeepSeek-AI 2024, arXiv:2412.19437, section
 * 3.3.3; E3M0: Douillard et al. 2025, arXiv:2501.18512, section 3.3. */
#ifndef LOCKSTEP_TENSOR_FORMAT_H
#define LOCKSTEP_TENSOR_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

enum number_format {
    FORMAT_BF16,     /* not coded here: operands that stay as they are */
    FORMAT_E4M3, FORMAT_E5M2, FORMAT_E4M3B11, FORMAT_E5M6, FORMAT_E2M1,
    FORMAT_E3M0, FORMAT_INT8, FORMAT_TERNARY, FORMAT_E8M0, FORMAT_COUNT
};

/* Codes that stand for no finite number. */
enum format_special {
    SPECIAL_NONE,    /* a NaN becomes zero, an infinity the largest number */
    SPECIAL_IEEE,    /* the largest exponent: infinity and NaN */
    SPECIAL_NAN,     /* one NaN: all ones, with either sign */
    SPECIAL_MINUS    /* one NaN: the code that -0 would have; no -0 */
};

struct format {
    const char *name; /* "e4m3" */
    int bits;         /* of a code */
    int mantissa;     /* bits */
    int least;        /* exponent of the smallest normal number: below it all
                       * numbers are multiples of 2^(least - mantissa) */
    uint32_t most;    /* magnitude code of the largest number */
    float largest;    /* that number */
    enum format_special special;
    bool complement;  /* negative codes are two's complement */
};
extern const struct format number_formats[FORMAT_COUNT];

enum rounding {
    ROUND_NEAREST,    /* ties to the even multiple of the quantum, so up where
                       * there is no mantissa */
    ROUND_AWAY,       /* from zero: scales, so that nothing is cut off */
    ROUND_STOCHASTIC  /* up with the probability of the distance */
};

#endif
