#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes precision/formats.safetensors: what ml_dtypes makes of float32 numbers.

    python3 tests/golden/make_formats.py

inputs [n]             bits of float32 numbers: any two neighbours of every
                       format but E5M6, their middle, one float32 below and
                       above that, denormals, infinities, NaN, random bits
<format>.values [256]  what the codes stand for (bits of float32)
<format>.codes [n]     codes of the inputs, to nearest even, too large ones to
                       infinity or NaN as ml_dtypes has them
<format>.torch [n]     the same of torch.float8_*, which cuts e4m3 off at 448

ml_dtypes has no E5M6, E3M0, int8 and ternary: those are from the list of their
values, by exact distances in float64. Its sign of a NaN in E2M1, which has no
NaN, means nothing, so E2M1 is not asked for NaNs; nor is E8M0 for what is no
positive number, where ml_dtypes and PyTorch differ.
"""
import pathlib

import ml_dtypes
import numpy
import torch
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).parent / "precision" / "formats.safetensors"
CODED = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
         "e4m3b11": ml_dtypes.float8_e4m3b11fnuz,
         "e2m1": ml_dtypes.float4_e2m1fn, "e8m0": ml_dtypes.float8_e8m0fnu}
TORCH = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
         "e8m0": torch.float8_e8m0fnu}


def floats(mantissa, least, count):
    """Magnitudes of codes 0 .. count - 1."""
    out = []
    for code in range(count):
        above, low = code >> mantissa, code % (1 << mantissa)
        if above:
            out.append(2.0 ** (least + above - 1) * (1 + low / 2 ** mantissa))
        else:
            out.append(2.0 ** least * low / 2 ** mantissa)
    return numpy.array(out)


LISTED = {"e5m6": floats(6, -14, 0x7C0), "e3m0": floats(0, -2, 8),
          "int8": numpy.arange(128.0), "ternary": numpy.arange(2.0)}
BITS = {"e5m6": 12, "e3m0": 4, "int8": 8, "ternary": 2}


def listed_codes(name, x):
    values, bits = LISTED[name], BITS[name]
    wide = numpy.abs(x.astype(numpy.float64))
    nan = numpy.isnan(wide)
    wide = numpy.where(nan, 0, wide)
    lower = numpy.searchsorted(values, wide, side="right") - 1
    upper = numpy.minimum(lower + 1, len(values) - 1)
    finite = numpy.where(numpy.isinf(wide), 1e300, wide)
    a, b = finite - values[lower], values[upper] - finite
    tie = (lower % 2 == 1) if name != "e3m0" else (lower > 0)
    code = numpy.where((b < a) | ((a == b) & tie), upper, lower)
    if name == "e5m6":  # IEEE: half a quantum beyond the last is infinite
        code = numpy.where(wide >= 65024 + 256, 0x7C0, code)
        code = numpy.where(nan, 0x7E0, code)
    code = numpy.where(nan & (name != "e5m6"), 0, code).astype(numpy.int64)
    negative = numpy.signbit(x)
    if name in ("int8", "ternary"):
        return numpy.where(negative, -code % (1 << bits), code)
    sign = numpy.where(nan & (name != "e5m6"), 0, negative)
    return code + sign.astype(numpy.int64) * (1 << (bits - 1))


def inputs():
    edges = []
    for kind in CODED.values():
        values = numpy.arange(256, dtype=numpy.uint8).view(kind)
        edges.append(values.astype(numpy.float64))
    edges += [v for k, v in LISTED.items() if k != "e5m6"]
    edges.append(LISTED["e5m6"][::61])
    v = numpy.unique(numpy.abs(numpy.concatenate(edges)))
    v = v[numpy.isfinite(v) & (v > 1e-6) & (v < 1e6)]
    middle = numpy.concatenate([(v[1:] + v[:-1]) / 2, [464, 61440, 31, 65280]])
    v, middle = v.astype(numpy.float32), middle.astype(numpy.float32)
    v = numpy.concatenate([v, middle, numpy.nextafter(middle, numpy.float32(0)),
                           numpy.nextafter(middle, numpy.float32(1e30))])
    random = numpy.random.default_rng(20261123)
    bits = random.integers(0, 1 << 32, 300, dtype=numpy.uint32)
    near = (random.standard_normal(400) * 8).astype(numpy.float32)
    special = numpy.array([0, numpy.inf, numpy.nan, 1e-45, 1e-40, 2.0 ** -127,
                           1.5 * 2.0 ** -127, 3e38, 1e6], numpy.float32)
    v = numpy.concatenate([v, special])
    return numpy.unique(numpy.concatenate(
        [v, -v[::3], near, bits.view(numpy.float32)]).view(numpy.uint32))


def main():
    bits = inputs()
    x = bits.view(numpy.float32)
    out = {"inputs": bits.view(numpy.int32)}
    for name, kind in CODED.items():
        codes = numpy.arange(256 if name != "e2m1" else 16, dtype=numpy.uint8)
        values = codes.view(kind).astype(numpy.float32)
        out[name + ".values"] = values.view(numpy.int32)
        with numpy.errstate(all="ignore"):
            out[name + ".codes"] = x.astype(kind).view(numpy.uint8)
    for name, kind in TORCH.items():
        out[name + ".torch"] = torch.from_numpy(x.copy()).to(kind).view(
            torch.uint8).numpy()
    for name in LISTED:
        out[name + ".codes"] = listed_codes(name, x).astype(
            numpy.int32 if name == "e5m6" else numpy.uint8)
    OUT.parent.mkdir(exist_ok=True)
    save_file(out, OUT)
    print(len(bits), "inputs,", OUT.stat().st_size, "bytes")


main()
