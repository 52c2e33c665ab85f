#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""integer_sums.py - what numerics.sums=integer costs beside ordered sums, on
the CPU.

    python3 benchmarks/integer_sums.py [--program build/lockstep] [--turns 5]
                                       [--out FILE.json]

For each layout both kinds of sums take turns: processors' seconds of a step (of
all ranks, from runs of two lengths, so that the start does not count; other
work on the machine does not add to them, but makes caches slower), bytes that
rank 0 sends in a step, planned memory of a rank. The model has few tokens for
its parameters, so that sums are a large part of a step: with more tokens the
cost is a smaller one."""
import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

import safety

CONFIG = """\
version: 1
seed: 3
model: {family: llama, vocab: 1024, layers: 4, width: 256, heads: 4}
tokenizer: {from: tokenizer.json}
data: {train: [text], sequence: 64, cache: cache, valid_share: 0}
train: {batch: BATCH, steps: STEPS, micro_batch: 1, threads: 1, check_every: 0, on_spike: none}
checkpoint: {minutes: 0, at_end: false}
"""
LAYOUTS = (("1 rank, 8 leaves", 1, ["numerics.grid_data=8"]),
           ("2 ranks, 8 leaves", 2, ["numerics.grid_data=8", "mesh.data=2"]),
           ("4 ranks, zero1, 8 leaves", 4, ["numerics.grid_data=8",
                                            "mesh.data=4", "zero=zero1"]),
           ("4 ranks, fsdp, 8 leaves", 4, ["numerics.grid_data=8",
                                           "mesh.shard=4", "zero=fsdp"]),
           ("4 ranks, 12 leaves", 4, ["numerics.grid_data=12", "mesh.data=4",
                                      "train.batch=12"]))
SUMS = ("ordered", "integer")
SHORT, LONG = 2, 12


def words_of(sums, settings):
    return [word for setting in [f"numerics.sums={sums}", *settings]
            for word in ("--set", setting)]


def run(program, folder, ranks, words, steps):
    """Seconds of processors that a run takes."""
    before = os.times()
    safety.call(folder, program, "train", "config.yaml", "--run", "run",
                "--ranks", str(ranks), "--set", f"train.steps={steps}", *words)
    after = os.times()
    safety.call(folder, "rm", "-rf", "run")
    return (after.children_user - before.children_user +
            after.children_system - before.children_system)


def of_step(program, folder, ranks, words):
    short = run(program, folder, ranks, words, SHORT)
    long = run(program, folder, ranks, words, LONG)
    return (long - short) / (LONG - SHORT)


def planned(program, folder, ranks, words):
    rows = json.loads(safety.call(
        folder, program, "plan", "config.yaml", "--ranks", str(ranks),
        "--json", *words).stdout)
    return next(row["value"] for row in rows["rows"]
                if row["what"] == "memory")


def measure(program, folder, layout, turns):
    name, ranks, settings = layout
    seconds = {sums: [] for sums in SUMS}
    row = {"layout": name, "settings": settings}
    for turn in range(turns):
        for sums in SUMS if turn % 2 == 0 else reversed(SUMS):
            seconds[sums].append(of_step(program, folder, ranks,
                                         words_of(sums, settings)))
    for sums in SUMS:
        row[sums] = {"processor_s": seconds[sums],
                     "least_s": min(seconds[sums]),
                     "planned_bytes": planned(program, folder, ranks,
                                              words_of(sums, settings))}
    row["ratio_least"] = row["integer"]["least_s"] / row["ordered"]["least_s"]
    row["ratio_of_pairs"] = statistics.median(
        i / o for i, o in zip(seconds["integer"], seconds["ordered"]))
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/lockstep")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out")
    asked = parser.parse_args(namespace=argparse.Namespace(batch=8,
                                                           steps=LONG))
    program = str(pathlib.Path(asked.program).resolve())
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        safety.prepare(program, folder, asked, CONFIG)
        for layout in LAYOUTS:
            rows.append(row := measure(program, folder, layout, asked.turns))
            print(f"{row['layout']:26} processors' seconds "
                  f"{row['ordered']['least_s']:.3f} "
                  f"{row['integer']['least_s']:.3f}, ratio "
                  f"{row['ratio_least']:.3f}, of pairs "
                  f"{row['ratio_of_pairs']:.3f}; planned "
                  f"{row['ordered']['planned_bytes']} "
                  f"{row['integer']['planned_bytes']}", flush=True)
    if asked.out:
        pathlib.Path(asked.out).write_text(json.dumps({
            "what": "steps with ordered and with integer sums, in turns",
            "date": time.strftime("%Y-%m-%d"), "turns": asked.turns,
            "load": os.getloadavg(), "rows": rows}, indent=1) + "\n",
            encoding="utf-8")


if __name__ == "__main__":
    main()
