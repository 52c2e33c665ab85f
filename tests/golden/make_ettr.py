#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/ettr.csv: the share of time that runs with failures train.

    python3 tests/golden/make_ettr.py >tests/golden/ettr.csv

Closed form: arXiv:2410.21680. Exact: Daly 2006. Played: a run second by second
of its life, that is trained, saved, interrupted and restarted.
"""
import math
import random

LLAMA_3 = 466 / 54 / 2048
BASE = -math.log(0.44) / 600 * 86400 / 12500
SIZES = [1024 << i for i in range(8)]
WAYS = [(0.0065, 600, 0, 5), (0.0065, 180, 300, 5), (0.0065, 20, 10, 0.05),
        (0.0065, 3, 10, 0.05)]
PUBLISHED = [(100000, BASE, 600, 1, 0), (100000, BASE, 180, 1, 0),
             (9600, LLAMA_3, 600, 10, 0.05), (16384, LLAMA_3, 600, 0, 5)]


def best(rate, stall):
    """The interval for which `exact` is largest: there, with y = rate interval,
    -log(1 - y) = y + rate stall."""
    low, high = 0.0, 1.0
    for _ in range(200):
        y = (low + high) / 2
        low, high = (y, high) if -math.log1p(-y) < y + rate * stall else (low, y)
    return high / rate


def played(rate, restart, interval, stall, failures=100000):
    draw = random.Random(7)
    useful = wall = 0.0
    for _ in range(failures):
        life = draw.expovariate(rate)
        wall += life
        useful += max(0, (life - restart) // (interval + stall)) * interval
    return useful / wall


print("ranks,per_node_day,restart_s,interval_s,stall_s,closed,exact,played")
for ranks, day, restart, asked, stall in PUBLISHED + [
        (n, *way) for way in WAYS for n in SIZES]:
    rate = day * ((ranks + 7) // 8) / 86400
    interval = asked or best(rate, stall)
    closed = (1 - rate * (restart + interval / 2)) / (1 + stall / interval)
    exact = (math.exp(-rate * restart) * rate * interval /
             math.expm1(rate * (interval + stall)))
    print(f"{ranks},{day!r},{restart},{asked},{stall},{max(closed, 0)!r},"
          f"{exact!r},{played(rate, restart, interval, stall):.4f}")
