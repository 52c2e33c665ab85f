/* SPDX-License-Identifier: Apache-2.0 */
/* elementary64.h - the parts of our elementary functions in float64, inlined:
 * math.h makes functions of one number of them, fast code loops that the
 * compiler turns into vectors. Only +, -, *, /, fma and integer operations on
 * the bits: the same result on every machine and in every vector width.
 *
 * Exponentials and sines reduce the argument with a constant split in two or
 * three parts (Cody and Waite) and evaluate a minimax polynomial; logarithms
 * use the odd series of log((1 + s) / (1 - s)). All coefficients are own fits
 * (weighted minimax in 50 digits). Adding ROUND_MAGIC_F64 rounds to an integer
 * that then stands in the low bits of the sum. */
#ifndef LOCKSTEP_KERNELS_ELEMENTARY64_H
#define LOCKSTEP_KERNELS_ELEMENTARY64_H

#include <stdint.h>
#include <string.h>

#define ELEMENTARY64 static inline __attribute__((always_inline))
#define ROUND_MAGIC_F64 0x1.8p52
#define MAGIC_BITS_F64 0x4338000000000000u
#define LN2_HIGH_F64 0x1.62e42fefa39efp-1
#define LN2_LOW_F64 0x1.abc9e3b39803fp-56

ELEMENTARY64 uint64_t bits_of_f64(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

ELEMENTARY64 double f64_of_bits(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^k times e^r - 1 in two parts: returns k, *tail = e^r - 1, with |r| at most
 * log(2) / 2. */
ELEMENTARY64 uint64_t exp_reduce_f64(double x, double *tail)
{
    double t = __builtin_fma(x, 0x1.71547652b82fep+0, ROUND_MAGIC_F64), q;
    double n = t - ROUND_MAGIC_F64, r = __builtin_fma(n, -LN2_HIGH_F64, x);

    r = __builtin_fma(n, -LN2_LOW_F64, r);
    q = 2.50044896471102493380096347180482907468501707626274e-8;
    q = __builtin_fma(q, r,
                      2.7630444481328946380684400373206610237820994775e-7);
    q = __builtin_fma(q, r,
                      2.75575722929165854507230909442583310919872019439936e-6);
    q = __builtin_fma(q, r,
                      2.48014924827854657546659632588401223074470181018114e-5);
    q = __builtin_fma(q, r,
                      1.9841269522464735240371846991536131099554964638481e-4);
    q = __builtin_fma(q, r,
                      1.3888888944313675273545261035224029910750687122345e-3);
    q = __builtin_fma(q, r,
                      8.333333333487052269061834408603317569941282272339e-3);
    q = __builtin_fma(q, r,
                      4.1666666666527046869461514688737224787473678588867e-2);
    q = __builtin_fma(q, r,
                      0.166666666666664242679729568408220075070858001708984);
    q = __builtin_fma(q, r,
                      0.50000000000000111022302462515654042363166809082031);
    *tail = __builtin_fma(r * r, q, r);
    return bits_of_f64(t) - MAGIC_BITS_F64;
}

ELEMENTARY64 double exp_f64(double x)
{
    double c = x < -746 ? -746 : x, tail, p;
    uint64_t k, half; /* the exponent + 4096, so that it stays unsigned */

    c = c > 710 ? 710 : c;
    k = exp_reduce_f64(c, &tail) + 4096u;
    half = k >> 1;
    /* Two scalings: the first is exact, the second rounds once. */
    p = (tail + 1) * f64_of_bits((half - 2048u + 1023u) << 52);
    return p * f64_of_bits((k - half - 2048u + 1023u) << 52);
}

/* x = m 2^e with m in [sqrt(1/2), sqrt(2)); returns m. x is positive. */
ELEMENTARY64 double split_power_f64(double x, double *e)
{
    double shift = x < 0x1p-1022 ? 54 : 0;
    uint64_t bits = bits_of_f64(shift > 0 ? x * 0x1p54 : x);
    uint64_t k = (bits - 0x3fe6a09e667f3bcdu + ((uint64_t)1024 << 52)) >> 52;

    *e = f64_of_bits(MAGIC_BITS_F64 + (k - 1024u)) - ROUND_MAGIC_F64 - shift;
    return f64_of_bits(bits - ((k - 1024u) << 52));
}

/* x is positive and finite. With s = f / (2 + f) and z = s^2, log(1 + f) =
 * f - s (f - z q(z)). */
ELEMENTARY64 double log_f64(double x)
{
    double e, f, s, z, q, low;

    f = split_power_f64(x, &e) - 1;
    s = f / (2 + f);
    z = s * s;
    q = 0.132338089263683844620800300617702305316925048828125;
    q = __builtin_fma(q, z,
                      0.132522606328669551034593609983858186751604080200195);
    q = __builtin_fma(q, z,
                      0.1538698358718107728204671502680866979062557220459);
    q = __builtin_fma(q, z,
                      0.181817784813662064458128497790312394499778747558594);
    q = __builtin_fma(q, z,
                      0.222222226053559429592709761891455855220556259155273);
    q = __builtin_fma(q, z,
                      0.28571428569421458698585070123954210430383682250977);
    q = __builtin_fma(q, z,
                      0.40000000000004898303984646190656349062919616699219);
    q = __builtin_fma(q, z,
                      0.66666666666666662965923251249478198587894439697266);
    low = s * (z * q - f);
    low = __builtin_fma(e, LN2_LOW_F64, low);
    return __builtin_fma(e, LN2_HIGH_F64, f + low);
}

/* Both functions of the remainder of x modulo pi / 2; the low bits of the
 * result count the quarter turns taken off. */
ELEMENTARY64 uint64_t sine_reduce_f64(double x, double *sine, double *cosine)
{
    double t = __builtin_fma(x, 0x1.45f306dc9c883p-1, ROUND_MAGIC_F64);
    double n = t - ROUND_MAGIC_F64, r, z, s, c;

    r = __builtin_fma(n, -0x1.921fb54442d18p+0, x);
    r = __builtin_fma(n, -0x1.1a62633145c07p-54, r);
    r = __builtin_fma(n, 0x1.f1976b7ed8fbcp-110, r);
    z = r * r;
    s = 1.58958055507928065667578745952461908741404172928924e-10;
    s = __builtin_fma(s, z,
                      -2.5050740180725974086373245312384026037225248728646e-8);
    s = __builtin_fma(s, z,
                      2.7557313570498299617377371828474963422195287421346e-6);
    s = __builtin_fma(s, z,
                      -1.98412698294317223343327667780356857917970046401024e-4);
    s = __builtin_fma(s, z,
                      8.3333333333218979205314624891798302996903657913208e-3);
    s = __builtin_fma(s, z,
                      -0.16666666666666629659232512494781985878944396972656);
    *sine = __builtin_fma(z * r, s, r);
    c = -1.13586646149891345179178308947364026311455109663484e-11;
    c = __builtin_fma(c, z,
                      2.087570398209702169498728824195005193686824895849e-9);
    c = __builtin_fma(c, z,
                      -2.755731420852103375492383238037907844386609212961e-7);
    c = __builtin_fma(c, z,
                      2.48015872889803579463232776846365036362840328365564e-5);
    c = __builtin_fma(c, z,
                      -1.3888888888873322444150737453583133174106478691101e-3);
    c = __builtin_fma(c, z,
                      4.1666666666666594964762992958637097640460769134521e-2);
    *cosine = __builtin_fma(z * z, c, __builtin_fma(z, -0.5, 1));
    return bits_of_f64(t);
}

#endif
