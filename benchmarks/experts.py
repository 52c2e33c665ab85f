#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""experts.py - products over all experts beside one dense product of the same
operations, in turns.

    benchmarks/experts.py [OUT_DIR]      default: benchmarks/results

4,096 tokens, two of eight experts each, width 512; even routing, and the
busiest expert with four times the mean. Each row is the best of all rounds.
LOCKSTEP names the program, ROUNDS (12) and THREADS (1) what they say. One
thread is timed by its own clock, so that other programs disturb it little.
"""
import datetime
import json
import os
import re
import subprocess
import sys

PROGRAM = os.environ.get("LOCKSTEP", "build/lockstep")
ROUNDS = int(os.environ.get("ROUNDS", "12"))
THREADS = os.environ.get("THREADS", "1")
TYPES = {"float32": ["--dtype", "float32"],
         "bfloat16, pairs": ["--dtype", "bfloat16", "--product", "pairs"],
         "bfloat16, tiles": ["--dtype", "bfloat16", "--product", "tiles"]}
DENSE = {"NT 2048x512": "NT 8192x2048x512", "NN 1024x512": "NN 8192x1024x512",
         "TN 2048x512": "TN 2048x512x8192"}
GOALS = {"even": 0.9, "4 x mean": 0.8}


def bench(only, options):
    """Rows of one call: (kernel, shape) -> operations a second."""
    command = [PROGRAM, "bench", "kernels", "--json", "--check", "nothing",
               "--ms", "60", "--threads", THREADS, "--only", only, *options]
    rows = json.loads(subprocess.run(command, check=True, text=True,
                                     stdout=subprocess.PIPE).stdout)["kernels"]
    clock = "thread_cpu_seconds" if THREADS == "1" else "seconds"
    return {(r["kernel"], r["shape"]): r["flops"] / r[clock] for r in rows}


def measure(options):
    best = {}
    for _ in range(ROUNDS):
        for only in ("matmul", "experts_"):
            for row, rate in bench(only, options).items():
                best[row] = max(rate, best.get(row, 0))
    return best


def table(name, best):
    for (kernel, shape), rate in best.items():
        if kernel not in ("experts_product", "experts_gradient"):
            continue
        form, routing = re.match(r"(\S+ \S+) (.*)", shape).groups()
        dense = best[("matmul", DENSE[form])]
        yield {"dtype": name, "product": form, "routing": routing,
               "gflops": rate * 1e-9, "dense_gflops": dense * 1e-9,
               "ratio": rate / dense, "goal": GOALS[routing]}


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"
    with open("/proc/cpuinfo", encoding="ascii") as text:
        cpu = re.search(r"model name\s*: (.*)", text.read()).group(1)
    rows = [row for name, options in TYPES.items()
            for row in table(name, measure(options))]
    for r in rows:
        print(f"{r['dtype']:16} {r['product']:12} {r['routing']:9} "
              f"{r['gflops']:8.0f} of {r['dense_gflops']:5.0f} GFLOP/s "
              f"{r['ratio']:6.0%}  (goal {r['goal']:.0%})")
    name = re.sub("[^A-Za-z0-9]+", "-", cpu).strip("-")
    path = f"{out}/{datetime.date.today()}-{name}-experts.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"date": str(datetime.date.today()), "cpu": cpu,
                   "threads": int(THREADS), "rounds": ROUNDS,
                   "command": "benchmarks/experts.py", "result": rows}, file)
        file.write("\n")
    print(path)


if __name__ == "__main__":
    main()
