#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes training/policy.json: what a run does about 160 steps, five times.

    python3 tests/golden/make_policy.py

Losses fall, with noise and outliers; norms likewise; some are not numbers. The
window's mean, standard deviation and median are those of Python's `statistics`
on exact fractions, rounded at the end. A step that is skipped or undone leaves
nothing in the window. Of a step: loss, norm (null: not a number), action, what
was judged, and its threshold.
"""
import fractions
import json
import math
import os
import random
import statistics

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 160
# window, sigma, norm, on_nan, on_spike
CASES = [(4, 3, 5, "skip", "rewind"), (32, 4, 0, "rewind", "skip"),
         (16, 0, 3, "stop", "warn"), (50, 2.5, 2, "skip", "warn"),
         (7, 3, 4, "skip", "none")]


def drawn(rng, step, level):
    """A loss or a norm: mostly near a falling level."""
    value = level * (1 + 3 / (1 + step / 40)) * math.exp(rng.gauss(0, 0.02))
    kind = rng.random()
    if kind < 0.02:
        return None
    return value * rng.choice([3, 6, 40]) if kind < 0.06 else value


def judged(case, losses, norms, loss, norm):
    window, sigma, factor, on_nan, on_spike = case
    if loss is None or norm is None:
        return on_nan, "loss" if loss is None else "gradient norm", None
    if on_spike == "none" or len(losses) < window:
        return "none", None, None
    if sigma:
        recent = [fractions.Fraction(x) for x in losses[-window:]]
        mean = statistics.mean(recent)
        deviation = max(statistics.pstdev(recent, mean), float(mean) / 100)
        threshold = float(mean) + sigma * deviation
        if loss > threshold:
            return on_spike, "loss", threshold
    if factor:
        threshold = factor * statistics.median(norms[-window:])
        if norm > threshold:
            return on_spike, "gradient norm", threshold
    return "none", None, None


def run(index, case):
    rng = random.Random(1000 + index)
    losses, norms, steps = [], [], []
    for step in range(STEPS):
        loss, norm = drawn(rng, step, 2.0), drawn(rng, step, 0.7)
        action, what, threshold = judged(case, losses, norms, loss, norm)
        steps.append([loss, norm, action, what, threshold])
        if action in ("none", "warn") and None not in (loss, norm):
            losses.append(loss)
            norms.append(norm)
    names = ("spike_window", "spike_sigma", "spike_norm", "on_nan", "on_spike")
    return {"options": [f"train.{n}={v}" for n, v in zip(names, case)],
            "steps": steps}


def main():
    path = os.path.join(HERE, "training", "policy.json")
    cases = [json.dumps(run(i, case)) for i, case in enumerate(CASES)]
    with open(path, "w", encoding="utf-8") as file:
        file.write("[" + ",\n".join(cases) + "]\n")


if __name__ == "__main__":
    main()
