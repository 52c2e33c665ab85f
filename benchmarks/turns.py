#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""turns.py - whole training steps of two builds of the program, in turns.

    python3 benchmarks/turns.py OLD NEW [--turns 8] [--out FILE.json]
        [--under "chrt -r 10"]

Each turn runs `lockstep bench step` of both builds for each model and type, in
the order old, new, then new, old. On a machine that does other work a time can
only be too long: the least step of all turns is compared, and the median of the
steps' medians is given beside it. Planned memory is exact. --under names a
command that runs each of them, at a priority of its own for example."""
import argparse
import json
import os
import statistics
import subprocess
import time

CASES = (("gpt2-124m", 1, 256), ("llama-10m", 4, 256))
TYPES = ("float32", "bfloat16")


def step(program, case, dtype, under):
    model, batch, length = case
    started = os.times()
    out = subprocess.run(
        [*under.split(), program, "bench", "step", "--model", model,
         "--batch", str(batch), "--length", str(length), "--steps", "5",
         "--threads", "1", "--dtype", dtype, "--json"],
        check=True, capture_output=True, text=True).stdout
    ended = os.times()
    row = json.loads(out)
    profile = {kind["name"]: kind["ms"] for kind in row["profile"]["kinds"]}
    return {"least": row["step_ms_least"], "median": row["step_ms"],
            "planned": row["planned_bytes"],
            "peak": row["peak_resident_bytes"],
            "outside": profile["unaccounted"],
            "processor": ended.children_user - started.children_user}


def compare(old, new):
    result = {}
    for name, rows in (("old", old), ("new", new)):
        result[name] = {
            "step_ms_least": min(row["least"] for row in rows),
            "step_ms_median": statistics.median(row["median"] for row in rows),
            "outside_kernels_ms": statistics.median(
                row["outside"] for row in rows),
            "planned_bytes": rows[0]["planned"],
            "peak_resident_bytes": min(row["peak"] for row in rows)}
    result["ratio_least"] = (result["new"]["step_ms_least"] /
                             result["old"]["step_ms_least"])
    result["ratio_of_pairs"] = statistics.median(
        n["least"] / o["least"] for o, n in zip(old, new))
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--out")
    parser.add_argument("--under", default="")
    given = parser.parse_args()
    found = {(case, dtype): ([], []) for case in CASES for dtype in TYPES}
    for turn in range(given.turns):
        for case in CASES:
            for dtype in TYPES:
                order = (0, 1) if turn % 2 == 0 else (1, 0)
                for which in order:
                    program = (given.old, given.new)[which]
                    found[case, dtype][which].append(
                        step(program, case, dtype, given.under))
    rows = []
    for (case, dtype), (old, new) in found.items():
        row = {"model": case[0], "batch": case[1], "length": case[2],
               "dtype": dtype, **compare(old, new)}
        rows.append(row)
        print(f"{case[0]:10} {dtype:9} least {row['old']['step_ms_least']:8.1f}"
              f" {row['new']['step_ms_least']:8.1f} ms"
              f" ratio {row['ratio_least']:.3f}, of pairs"
              f" {row['ratio_of_pairs']:.3f}, planned"
              f" {row['old']['planned_bytes']} {row['new']['planned_bytes']}",
              flush=True)
    if given.out:
        with open(given.out, "w", encoding="utf-8") as file:
            json.dump({"what": "bench step of two builds in turns",
                       "date": time.strftime("%Y-%m-%d"),
                       "turns": given.turns, "threads": 1, "rows": rows},
                      file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
