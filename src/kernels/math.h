/* SPDX-License-Identifier: Apache-2.0 */
/* math.h - our own elementary functions: the same operations in the same order
 * on every machine, so the same bits. Host code that reaches a result (rotary
 * tables, schedules, powers of beta, Box-Muller) uses the float64 ones and
 * rounds once. Accuracy is stated and tested in tests/unit/kernels. */
#ifndef LOCKSTEP_KERNELS_MATH_H
#define LOCKSTEP_KERNELS_MATH_H

#include <stdint.h>

double math_exp(double x);
double math_log(double x);                 /* x > 0 */
double math_pow(double base, double power);/* base > 0; exp(power log base) with
                                            * enough extra bits: 1 ulp or so */
double math_pow_int(double base, int64_t power); /* repeated squaring */
double math_sin(double x);                 /* |x| < 2^30 */
double math_cos(double x);
double math_tanh(double x);
double math_erf(double x);

#endif
