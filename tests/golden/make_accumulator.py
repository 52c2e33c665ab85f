#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes precision/accumulator.safetensors: the layer and the experts of
precision/layers.safetensors, with products summed as by a matrix unit that keeps
few bits (docs/numerics.md, "Accumulators of hardware").

    python3 tests/golden/make_accumulator.py
    python3 tests/golden/make_accumulator.py --errors

Names are RECIPE@PRECISION:GRANULE:PROMOTE.y and so on. Operands are rounded as
make_precision.py does; sums are made here in Python's integers and fractions,
with the addition to the accumulator in float64.

--errors: the relative Frobenius errors of a product of normal E4M3 numbers with
K = 4096, with and without promotion (arXiv:2412.19437, section 3.3.2).
"""
import sys
from fractions import Fraction

import numpy
from safetensors.numpy import load_file, save_file

import make_precision as base

PAIRS = [("fp8-tiles", "14:32:0"), ("fp8-tiles", "6:8:16"),
         ("mxfp4-quartet", "9:16:16"), ("nvfp4", "4:5:10")]


def exponent(x):
    return numpy.frexp(numpy.where(x == 0, 1.0, x))[1] - 1


def cut(x, bits):
    """Towards zero, to so many significant bits."""
    unit = numpy.ldexp(1.0, exponent(x) - bits + 1)
    return numpy.trunc(x / unit) * unit


def granule(products, bits):
    """The cut sum of products [count, ...]."""
    largest = numpy.abs(products).max(axis=0)
    unit = numpy.ldexp(1.0, exponent(largest) - bits + 1)
    whole = numpy.trunc(products / unit).astype(numpy.int64).sum(axis=0)
    return cut(whole.astype(numpy.float64) * unit, bits)


def chain(a, b, order, spec):
    """a [m, k] b [k, n], float64 that holds bfloat16, over the segments."""
    bits, size, promote = spec
    total = None
    for first, last in order:
        for begin in range(first, last, promote or last - first):
            end = min(last, begin + (promote or last - first))
            c = numpy.zeros((a.shape[0], b.shape[1]))
            for k in range(begin, end, size):
                some = slice(k, min(end, k + size))
                products = a.T[some, :, None] * b[some, None, :]
                c = cut(c + granule(products, bits), bits)
            c = c.astype(numpy.float32)
            total = c if total is None else total + c
    return total.astype(numpy.float64)


def check(random):
    """chain in float64 is chain in fractions."""
    a = random.standard_normal((3, 20)).astype(base.BF16).astype(float)
    b = random.standard_normal((20, 4)).astype(base.BF16).astype(float)
    have = chain(a, b, [(0, 20)], (7, 6, 12))

    def floor_cut(x, e):
        return int(x / Fraction(2) ** e) * Fraction(2) ** e

    def short(x, bits):
        if x == 0:
            return Fraction(0)
        e = base.floor_log2(float(abs(x)))
        return floor_cut(x, e - bits + 1)
    for i in range(3):
        for j in range(4):
            total = None
            for begin in (0, 12):
                c = Fraction(0)
                for k in range(begin, min(20, begin + 12), 6):
                    end = min(20, begin + 12, k + 6)
                    p = [Fraction(a[i, n]) * Fraction(b[n, j])
                         for n in range(k, end)]
                    e = max(base.floor_log2(float(abs(v))) for v in p)
                    t = short(sum(floor_cut(v, e - 6) for v in p), 7)
                    c = short(Fraction(float(c) + float(t)), 7)
                c = numpy.float32(float(c))
                total = c if total is None else total + c
            assert float(total) == have[i, j]


def errors():
    random = numpy.random.default_rng(0)
    a, b = (base.nearest("e4m3", numpy.abs(v)) * numpy.sign(v)
            for v in (random.standard_normal((32, 4096)),
                      random.standard_normal((4096, 32))))
    exact = a @ b
    for promote in (0, 128, 512):
        have = chain(a, b, [(0, 4096)], (14, 32, promote))
        print("14:32:%d %.2e" % (promote, numpy.linalg.norm(have - exact) /
                                 numpy.linalg.norm(exact)))


def main():
    check(numpy.random.default_rng(3))
    given = load_file(base.OUT / "layers.safetensors")
    x, w, dy = given["x"], given["w"], given["dy"]
    up = given["up"].reshape(3, base.ROWS, base.IN)
    chosen = base.choose(x, given["router"])
    out = {}
    for recipe, text in PAIRS:
        spec = [int(part) for part in text.split(":")]
        base.chain = lambda a, b, order: chain(a, b, order, spec)
        made = base.layer(recipe, x, w, dy, base.KEY, base.ORDER)
        made.update(base.experts(recipe, x, up, given["dh"], chosen))
        out.update({"%s@%s.%s" % (recipe, text, name): value
                    for name, value in made.items()})
    save_file({k: numpy.ascontiguousarray(v) for k, v in out.items()},
              base.OUT / "accumulator.safetensors")


if __name__ == "__main__":
    errors() if "--errors" in sys.argv else main()
