/* SPDX-License-Identifier: Apache-2.0 */
/* alibi.c - the slopes of linear biases. */
#include "kernels/alibi.h"

#include "kernels/math.h"

float alibi_slope(const struct attention_alibi *alibi, int head)
{
    const int64_t at = alibi->head + head;
    int64_t whole = 1; /* heads of the first kind */

    while (2 * whole <= alibi->heads) whole *= 2;
    const bool first = at < whole;
    const double base = math_pow(2, -(first ? 8.0 : 4.0) / (double)whole);
    const double power = first ? (double)(at + 1)
                               : (double)(2 * (at - whole) + 1);

    return alibi_round((float)math_pow((float)base, power));
}
