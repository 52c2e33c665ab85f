#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes precision/layers.safetensors: one linear layer under each recipe.

    python3 tests/golden/make_precision.py
    python3 tests/golden/make_precision.py --errors

x [tokens, in], w [out, in], dy [tokens, out]: bfloat16 numbers of two sequences
of 36 tokens, over many powers of two. y, dx, dw: the three products, whose
operands are rounded here in float64 by ml_dtypes, or by exact multiples where it
lacks the format, in the blocks of docs/precision.md, written anew from the
papers' rules and not from the C source. y and dx are bfloat16, dw is float32.

The products are docs/numerics.md's, in pairs: chains of fused multiply-adds in
exact fractions, each rounded to float32 once; y of bitnet is a sum of integers
times its scales. Stochastic rounding draws from
Philox4x32-10 of the counters that docs/numerics.md names, seed 7.

mxfp4-quartet: algorithm 1 of arXiv:2505.14669 with the scale and the mask of
QuEST: a dx or dW is that of the rotated and rounded numbers, masked and rotated
back.

experts.h, .dx, .dw: the first product of three experts, two for each token, the
largest logits of x and a router. An expert's tokens of a sequence are a matrix
of their own, with its own blocks, granules and scales; the dx of a token are
sums of its rows, rounded, by expert number in float32, and rounded again.
"""
import math
import pathlib
import sys
from fractions import Fraction

import ml_dtypes
import numpy
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).parent / "precision"
SEQUENCES, LENGTH, IN, ROWS = 2, 36, 40, 36
TOKENS = SEQUENCES * LENGTH
BF16 = ml_dtypes.bfloat16
F32 = numpy.float32
LARGEST = {"e5m6": 65024.0, "e4m3": 448.0, "e5m2": 57344.0, "e4m3b11": 30.0,
           "e2m1": 6.0, "int8": 127.0, "ternary": 1.0}
KIND = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
        "e4m3b11": ml_dtypes.float8_e4m3b11fnuz,
        "e2m1": ml_dtypes.float4_e2m1fn}
# weights, activations, gradients: format, along, across, scale, stochastic
RECIPES = {
    "hfp8": [("e4m3b11", 0, 0, "none")] * 2 + [("e5m2", 0, 0, "none")],
    "fp8-tensor": [("e4m3", 0, 0, "up")] * 2 + [("e5m2", 0, 0, "up")],
    "fp8-tiles": [("e4m3", 128, 128, "up")] + [("e4m3", 128, 1, "up")] * 2,
    "mxfp8": [("e4m3", 32, 1, "up")] * 3,
    "mxfp8-floor": [("e4m3", 32, 1, "down")] * 3,
    "mxfp4": [("e2m1", 32, 1, "down")] * 2 + [("e2m1", 32, 1, "up", 1)],
    "nvfp4": [("e2m1", 16, 16, "two"), ("e2m1", 16, 1, "two"),
              ("e2m1", 16, 1, "two", 1)],
    "fp8-delayed": [("e4m3", 0, 0, "late")] * 2 + [("e5m2", 0, 0, "late")],
    "nvfp4-delayed": [("e2m1", 16, 16, "two-late"),
                      ("e2m1", 16, 1, "two-late"),
                      ("e2m1", 16, 1, "two-late", 1)],
    "mxfp4-quartet": [("e2m1", 32, 1, "gauss")] * 2 + [
        ("e2m1", 32, 1, "fit", 1)],
    "bitnet": [("ternary", 0, 0, "mean"), ("int8", 0, 1, "exact"), None],
}
KEPT = ("e5m6", 128, 1, "up")
SIGNS = 0x5A9C
# The largest magnitudes of the steps before, for late scales: left and right
# operand of y, dx and dW. Some are smaller than those of the step itself.
KNOWN = [4.5, 0.11, 0.05, 0.4, 0.013, 30.0]


def key_of(seed, name):
    """FNV-1a of the seed's bytes and the name, then the finaliser of SplitMix64
    (base/random.h)."""
    h = 0xCBF29CE484222325
    for byte in seed.to_bytes(8, "little") + name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2 ** 64
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 % 2 ** 64
    h = (h ^ h >> 27) * 0x94D049BB133111EB % 2 ** 64
    h ^= h >> 31
    return h & 0xFFFFFFFF, h >> 32


def philox(key, low, high):
    x = [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32]
    k = list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b & 0xFFFFFFFF,
             (a >> 32) ^ x[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) % 2 ** 32, (k[1] + 0xBB67AE85) % 2 ** 32]
    return x


def word(key, site, token, column):
    high = ((token % LENGTH) << 40 | site << 20) + column // 64 * 16 + \
        column % 16
    return philox(key, token // LENGTH, high)[column // 16 % 4]


def floor_log2(a):
    return int(numpy.frexp(a)[1]) - 1


def power_up(a, largest):
    """2^ceil(log2(a / largest)), exactly."""
    if a == 0:
        return 2.0 ** -100
    k = floor_log2(a) - floor_log2(largest) - 1
    while Fraction(a) > Fraction(largest) * Fraction(2) ** k:
        k += 1
    return 2.0 ** max(k, -100)


def nearest(name, y):
    """y >= 0 to the format, in float64."""
    y = numpy.minimum(y, LARGEST[name])
    if name in KIND:
        return y.astype(F32).astype(KIND[name]).astype(numpy.float64)
    if name == "e5m6":
        quantum = 2.0 ** (numpy.maximum(numpy.frexp(y)[1] - 1, -14) - 6)
        return numpy.rint(y / quantum) * quantum
    return numpy.rint(y)


def neighbours(name):
    if name == "e2m1":
        return numpy.array([0, .5, 1, 1.5, 2, 3, 4, 6])
    raise ValueError(name)


def stochastic(name, y, words):
    grid = neighbours(name)
    y = numpy.minimum(y, LARGEST[name])
    low = numpy.minimum(numpy.searchsorted(grid, y, side="right") - 1,
                        len(grid) - 2)
    part = (y - grid[low]) / (grid[low + 1] - grid[low])
    drawn = (words >> 8) * 2.0 ** -24
    return numpy.where(drawn < part, grid[low + 1], grid[low])


def sequences():
    return [(s * LENGTH, (s + 1) * LENGTH) for s in range(SEQUENCES)]


def turn(x, spans=None):
    """Hadamard with signs over each 16 rows of each sequence, in float32."""
    out = x.astype(F32).copy()
    for first, last in spans or sequences():
        for r in range(first, last - 15, 16):
            part = out[r:r + 16].copy()
            for i in range(16):
                if SIGNS >> i & 1:
                    part[i] = -part[i]
            apart = 1
            while apart < 16:
                for i in range(16):
                    if not i & apart:
                        a, b = part[i].copy(), part[i + apart].copy()
                        part[i], part[i + apart] = a + b, a - b
                apart *= 2
            out[r:r + 16] = part * F32(0.25)
    return out


STEP = 5  # of the run, which draws for weights count by
HADAMARD = numpy.array([[1.0]])
while len(HADAMARD) < 32:
    HADAMARD = numpy.block([[HADAMARD, HADAMARD], [HADAMARD, -HADAMARD]])


def rotated(x, rows, cols, signs=0, down=False):
    """Runs of 32 of each row (down: column) in these spans, in float32: sums
    and differences of neighbours first, then of pairs of them, and so on."""
    if down:
        return rotated(x.T, cols, rows, signs).T
    out = x.astype(F32).copy()
    flips = numpy.array([-1 if signs >> i & 1 else 1 for i in range(32)], F32)
    for first, last in cols:
        for c in range(first, last - 31, 32):
            part = out[:, c:c + 32] * flips
            for bit in range(5):
                pairs = part.reshape(len(x), -1, 2, 2 ** bit)
                part = numpy.stack([pairs[:, :, 0] + pairs[:, :, 1],
                                    pairs[:, :, 0] - pairs[:, :, 1]],
                                   axis=2).reshape(len(x), 32)
            out[:, c:c + 32] = part * F32(0.17677669529663687)
    return out


def gauss_scale(block, largest):
    """2^floor(log2(c d)) of the deviation d, from the exponent of its
    square."""
    lanes = [[0.0] * 16, [0.0] * 16]
    for j, v in enumerate(block.astype(numpy.float64)):
        lanes[0][j % 16] += v
        lanes[1][j % 16] += v * v
    for half in (8, 4, 2, 1):
        for sums in lanes:
            for j in range(half):
                sums[j] += sums[j + half]
    mean = lanes[0][0] / len(block)
    best = 2.92247856 / largest
    square = (lanes[1][0] / len(block) - mean * mean) * (best * best)
    if not square > 0:
        return 2.0 ** -100
    return 2.0 ** max(-100, floor_log2(square) // 2)


def blocks(count, size):
    return [(i, min(i + size, count)) for i in range(0, count, size)]


def rounded(x, role, weight, turned, draw=None, known=1.0, spans=None):
    """x [rows, cols] as bfloat16 numbers in float64. draw(row, col): a word."""
    if role is None:
        return x.astype(numpy.float64)
    name, along, across, rule = role[:4]
    fixed = rule in ("mean", "exact")
    if turned and not fixed:
        sides = along, across
    else:
        sides = across, along
    if spans is None:
        spans = [(0, x.shape[0])] if weight else sequences()
    out = numpy.zeros(x.shape)
    for first, last in spans:
        region = x[first:last].astype(numpy.float64)
        a = numpy.abs(region)
        outer = power_up(known if rule == "two-late" else a.max(),
                         448 * LARGEST[name])
        for r0, r1 in blocks(last - first, sides[0] or last - first):
            for c0, c1 in blocks(x.shape[1], sides[1] or x.shape[1]):
                part = a[r0:r1, c0:c1]
                most = part.max()
                if rule == "none":
                    s = 1.0
                elif rule == "up":
                    s = power_up(most, LARGEST[name])
                elif rule == "gauss":
                    assert part.shape[0] == 1
                    s = gauss_scale(region[r0, c0:c1], LARGEST[name])
                elif rule in ("down", "fit"):
                    s = 2.0 ** max(-100, floor_log2(most) -
                                   floor_log2(LARGEST[name])) if most else 2.0 ** -100
                elif rule == "late":
                    s = power_up(known, LARGEST[name])
                elif rule.startswith("two"):
                    inner = F32(most) / F32(LARGEST[name])
                    s = float(nearest("e4m3", numpy.float64(inner) / outer)) \
                        * outer
                elif rule == "exact":
                    s = float(F32(most) / F32(LARGEST[name]))
                else:
                    s = float(F32(math.fsum(a.flat) / a.size))
                fit = F32(0.75 if rule == "fit" else 1)
                y = (part.astype(F32) * fit / F32(s if s > 0 else 1)).astype(
                    numpy.float64)
                if len(role) > 4:
                    words = numpy.array(
                        [[draw(first + i, j) for j in range(c0, c1)]
                         for i in range(r0, r1)], dtype=numpy.uint64)
                    q = stochastic(name, y, words)
                else:
                    q = nearest(name, y)
                value = (q.astype(F32) * F32(s)).astype(BF16)
                sign = numpy.where(region[r0:r1, c0:c1] < 0, -1.0, 1.0)
                out[first + r0:first + r1, c0:c1] = \
                    value.astype(numpy.float64) * sign
    return out


def to_f32(exact):
    """A Fraction rounded to float32 once, ties to even."""
    if exact == 0:
        return 0.0
    n, d = abs(exact).numerator, abs(exact).denominator
    e = n.bit_length() - d.bit_length()
    if Fraction(n, d) < Fraction(2) ** e:
        e -= 1
    if e < -126:
        return 0.0  # flushed, as the product does
    scaled = Fraction(n, d) / Fraction(2) ** (e - 23)
    q = scaled.numerator // scaled.denominator
    rest = scaled - q
    q += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and q & 1)
    return float(q) * 2.0 ** (e - 23) * (1 if exact > 0 else -1)


def fma(a, b, c):
    """float32 FMAs of arrays: float64 is exact but where its own rounding could
    have moved a tie; those go through fractions."""
    product = a * b
    total = product + c
    back = total - product
    lost = (product - (total - back)) + (c - back)
    out = total.astype(F32).astype(numpy.float64)
    for i in numpy.argwhere(lost != 0):
        i = tuple(i)
        out[i] = to_f32(Fraction(float(product[i])) + Fraction(float(c[i])))
    return numpy.where(numpy.abs(total) < float.fromhex("0x1.ffffffp-127"),
                       0.0, out)


def chain(a, b, order):
    """a [m, k] b [k, n] in granules: odd element of a pair first."""
    total = None
    for first, last in order:
        c = numpy.zeros((a.shape[0], b.shape[1]))
        for k in range(first, last, 2):
            if k + 1 < last:
                c = fma(a[:, k + 1][:, None], b[k + 1][None], c)
            c = fma(a[:, k][:, None], b[k][None], c)
        total = c if total is None else (total + c).astype(F32).astype(
            numpy.float64)
    return total


def integers(x, w):
    """y of ternary weights and int8 activations: sums of codes, in Python's
    integers, rounded to float32 once, times the product of both scales. One leaf
    of each; scales are those of `rounded`."""
    a = numpy.abs(x.astype(numpy.float64))
    lanes = numpy.zeros(16)
    for row in numpy.abs(w.astype(numpy.float64)):
        for j in range(0, len(row), 16):
            lanes[:len(row[j:j + 16])] += row[j:j + 16]
    for half in (8, 4, 2, 1):
        lanes[:half] += lanes[half:2 * half]
    scale_w = F32(lanes[0] / w.size)
    scale_x = a.max(axis=1).astype(F32) / F32(127)

    def codes(v, scale, most):
        y = numpy.abs(v.astype(F32)) / scale
        return (numpy.minimum(numpy.rint(y), most) *
                numpy.where(v.astype(F32) < 0, -1, 1)).astype(numpy.int64)
    qx = codes(x, numpy.where(scale_x > 0, scale_x, F32(1))[:, None], 127)
    qw = codes(w, scale_w, 1)
    return (qx @ qw.T).astype(F32) * (scale_x * scale_w)[:, None]


def signs_of(order, use):
    return philox(key_of(7, "recipe signs"), STEP, order * 4 + use)[0]


def back(g, x):
    """The gradient of x from that of its rotated and rounded numbers."""
    cols = [(0, x.shape[1])]
    h = rotated(x, None, cols).astype(numpy.float64)
    masked = g.astype(F32).copy()
    for row in range(len(x)):
        for c0, c1 in blocks(x.shape[1], 32):
            limit = 6 * gauss_scale(h[row, c0:c1], 6.0)
            masked[row, c0:c1][~(numpy.abs(h[row, c0:c1]) < limit)] = 0
    return rotated(masked, None, cols) * F32(16 / 9)


def straight(x, w, dy, order, spans, places):
    """y, the float32 gradient of the rotated x, and dW of each span of rows."""
    role = RECIPES["mxfp4-quartet"]
    rows, ins, outs = [(0, len(x))], [(0, IN)], [(0, ROWS)]
    xq = rounded(rotated(x, rows, ins), role[0], False, False, spans=spans)
    wq = rounded(rotated(w, outs, ins), role[0], True, False)

    def again(value, use, gradient, down, cols, draw, parts):
        runs = parts if down else None
        turned = rotated(value, runs, cols, signs_of(order, use), down)
        return rounded(turned, role[2], False, down, draw, spans=parts)

    def draw(use, gradient):
        site = order * 8 + use * 2 + gradient
        return lambda row, col: word(KEY, site, int(places[row]), col)

    def draw_weight(row, col):
        high = (row << 40 | (order * 8 + 2) << 20) + col // 64 * 16 + col % 16
        return philox(KEY, STEP, high)[col // 16 % 4]

    y = chain(xq, wq.T, [(0, IN)])
    dx = chain(again(dy, 1, 1, False, outs, draw(1, 1), spans),
               again(wq, 1, 0, True, ins, draw_weight, outs), [(0, ROWS)])
    dw = chain(again(dy, 2, 1, True, outs, draw(2, 1), spans).T,
               again(xq, 2, 0, True, ins, draw(2, 0), spans), spans)
    return y, dx, dw


def layer(recipe, x, w, dy, key, order):
    if recipe == "mxfp4-quartet":
        y, dx, dw = straight(x, w, dy, order, sequences(), range(TOKENS))
        dx = dx.astype(F32).astype(BF16)
        return {"y": y.astype(F32).astype(BF16), "dx": back(dx, x).astype(BF16),
                "dw": back(dw, w)}
    weights, activations, gradients = RECIPES[recipe]

    def draw(use, gradient):
        site = order * 8 + use * 2 + gradient
        return lambda token, column: word(key, site, token, column)

    def operand(value, role, use, gradient):
        mixed = turn(value) if use == 2 and recipe[:5] == "nvfp4" else value
        return rounded(mixed, role, False, use == 2, draw(use, gradient),
                       KNOWN[use * 2 + (use == 2 and not gradient)])

    if recipe == "bitnet":
        y = integers(x, w)
    else:
        y = chain(operand(x, activations, 0, 0),
                  rounded(w, weights, True, False, None, KNOWN[1]).T,
                  [(0, IN)])
    dx = chain(operand(dy, gradients, 1, 1),
               rounded(w, weights, True, True, None, KNOWN[3]), [(0, ROWS)])
    dw = chain(operand(dy, gradients, 2, 1).T,
               operand(x, activations, 2, 0),
               [(s * LENGTH, (s + 1) * LENGTH) for s in range(SEQUENCES)])
    return {"y": y.astype(F32).astype(BF16), "dx": dx.astype(F32).astype(BF16),
            "dw": dw.astype(F32)}


def expert(recipe, x, w, dy, order, tokens):
    """y, rows of dx and dw of one expert that has these tokens."""
    weights, activations, gradients = RECIPES[recipe]
    x, dy = x[tokens], dy.astype(BF16)
    ends = [int((tokens < last).sum()) for _, last in sequences()]
    spans = [(a, b) for a, b in zip([0] + ends, ends) if a < b]
    if recipe == "mxfp4-quartet":
        y, dx, dw = straight(x, w, dy, order, spans, tokens)
        return y.astype(F32).astype(BF16), dx, back(dw, w)

    def operand(value, role, use, gradient):
        site = order * 8 + use * 2 + gradient
        mixed = turn(value, spans) if use == 2 and recipe[:5] == "nvfp4" \
            else value
        return rounded(mixed, role, False, use == 2,
                       lambda row, column: word(KEY, site, int(tokens[row]),
                                                column),
                       KNOWN[use * 2 + (use == 2 and not gradient)], spans)

    if recipe == "bitnet":
        y = integers(x, w)
    else:
        y = chain(operand(x, activations, 0, 0),
                  rounded(w, weights, True, False, None, KNOWN[1]).T,
                  [(0, IN)])
    dx = chain(operand(dy, gradients, 1, 1),
               rounded(w, weights, True, True, None, KNOWN[3]), [(0, ROWS)])
    dw = chain(operand(dy, gradients, 2, 1).T,
               operand(x, activations, 2, 0), spans)
    return y.astype(F32).astype(BF16), dx, dw.astype(F32)


def choose(x, router):
    """Two experts of each token; None: a choice is too close."""
    logits = x.astype(numpy.float64) @ router.astype(numpy.float64).T
    by = numpy.sort(logits)
    if (by[:, 1] - by[:, 0] < 0.02 * numpy.abs(logits).max(axis=1)).any():
        return None
    return numpy.argsort(logits)[:, 1:]


def experts(recipe, x, w, dh, chosen):
    h = numpy.zeros(dh.shape, BF16)
    dx, dw, row = numpy.zeros((TOKENS, IN), F32), [], 0
    for e in range(len(w)):
        tokens = numpy.argwhere((chosen == e).any(axis=1))[:, 0]
        here = slice(row, row + len(tokens))
        h[here], rows, one = expert(recipe, x, w[e], dh[here], ORDER + 1 + e,
                                    tokens)
        dx[tokens] += rows.astype(BF16).astype(F32)
        dw.append(one)
        row += len(tokens)
    if recipe == "mxfp4-quartet":
        dx = back(dx.astype(BF16), x)
    return {"experts.h": h, "experts.dx": dx.astype(BF16),
            "experts.dw": numpy.concatenate(dw)}


def numbers(random, rows, cols, spread):
    x = random.standard_normal((rows, cols))
    x *= 2.0 ** random.integers(-spread, spread + 1, (rows, cols))
    x[random.random((rows, cols)) < 0.02] = 0
    return x.astype(F32).astype(BF16)


def straight_errors(x, w, dy, random):
    """The products of Quartet in float64, draws of numpy."""
    role = RECIPES["mxfp4-quartet"]
    ins, outs = [(0, IN)], [(0, ROWS)]

    def draw(row, col):
        return int(random.integers(0, 2 ** 32))

    def again(value, down, cols, parts, signs):
        turned = rotated(value, parts if down else None, cols, signs, down)
        return rounded(turned, role[2], False, down, draw, spans=parts)
    xq = rounded(rotated(x, None, ins), role[0], False, False)
    wq = rounded(rotated(w, None, ins), role[0], True, False)
    dx = again(dy, False, outs, sequences(), 77) @ again(wq, True, ins, outs,
                                                          77)
    dw = again(dy, True, outs, sequences(), 5).T @ again(
        xq, True, ins, sequences(), 5)
    return xq @ wq.T, back(dx, x), back(dw, w)


def errors():
    """How far the products of a larger layer are from those of its bfloat16
    numbers, in float64: relative Frobenius norms (docs/precision.md)."""
    globals().update(LENGTH=128, IN=256, ROWS=256)
    random = numpy.random.default_rng(1)

    def gauss(rows, cols, size):
        return (random.standard_normal((rows, cols)) * size).astype(
            F32).astype(BF16)

    def distance(a, b):
        return numpy.linalg.norm(a - b) / numpy.linalg.norm(b)
    for label in ("normal", "outliers"):
        x, w = gauss(SEQUENCES * LENGTH, IN, 1), gauss(ROWS, IN, 0.02)
        dy = gauss(SEQUENCES * LENGTH, ROWS, 1e-3)
        if label == "outliers":
            x[:, ::37] = (x[:, ::37].astype(F32) * 30).astype(BF16)
            dy[::29] = (dy[::29].astype(F32) * 30).astype(BF16)
        exact = [v.astype(numpy.float64) for v in (x, w, dy)]
        for recipe, (weights, activations, gradients) in RECIPES.items():
            if recipe == "mxfp4-quartet":
                y, dx, dw = straight_errors(x, w, dy, random)
                print("%-8s %-12s y %.3f dx %.3f dw %.3f" % (
                    label, recipe, distance(y, exact[0] @ exact[1].T),
                    distance(dx, exact[2] @ exact[1]),
                    distance(dw, exact[2].T @ exact[0])))
                continue

            def operand(value, role, use):
                mixed = turn(value) if use == 2 and recipe[:5] == "nvfp4" \
                    else value
                draws = numpy.random.default_rng(use)
                return rounded(mixed, role, False, use == 2,
                               lambda t, c: int(draws.integers(0, 2 ** 32)))
            y = operand(x, activations, 0) @ rounded(w, weights, True,
                                                     False).T
            dx = operand(dy, gradients, 1) @ rounded(w, weights, True, True)
            dw = operand(dy, gradients, 2).T @ operand(x, activations, 2)
            print("%-8s %-12s y %.3f dx %.3f dw %.3f" % (
                label, recipe, distance(y, exact[0] @ exact[1].T),
                distance(dx, exact[2] @ exact[1]),
                distance(dw, exact[2].T @ exact[0])))


KEY = key_of(7, "recipe")
ORDER = 1  # the embedding, which is cut away, is parameter 0


def main():
    random = numpy.random.default_rng(20261123)
    x = numbers(random, TOKENS, IN, 3)
    w = (numbers(random, ROWS, IN, 2).astype(F32) * F32(0.05)).astype(BF16)
    dy = (numbers(random, TOKENS, ROWS, 4).astype(F32) * F32(0.01)).astype(BF16)
    OUT.mkdir(exist_ok=True)
    everything = {"x": x, "w": w, "dy": dy,
                  "known": numpy.array(KNOWN, F32)}
    # fp8-tiles after attention: dW of x as it was kept.
    kept = rounded(x, KEPT, False, False).astype(F32).astype(BF16)
    everything["fp8-tiles.kept.dw"] = layer("fp8-tiles", kept, w, dy, KEY,
                                            ORDER)["dw"]
    chosen = None
    while chosen is None:
        router = (random.standard_normal((3, IN)) * 0.1).astype(F32).astype(
            BF16)
        chosen = choose(x, router)
    up = (numbers(random, 3 * ROWS, IN, 2).astype(F32) * F32(0.05)).astype(
        BF16)
    dh = (numbers(random, 2 * TOKENS, ROWS, 4).astype(F32) * F32(
        0.01)).astype(BF16)
    everything.update({"router": router, "up": up, "dh": dh})
    for recipe in RECIPES:
        everything.update({recipe + "." + name: value for name, value in
                           experts(recipe, x, up.reshape(3, ROWS, IN), dh,
                                   chosen).items()})
        for name, value in layer(recipe, x, w, dy, KEY, ORDER).items():
            everything[recipe + "." + name] = value
    save_file({k: numpy.ascontiguousarray(v) for k, v in everything.items()},
              OUT / "layers.safetensors")


if __name__ == "__main__":
    errors() if "--errors" in sys.argv else main()
