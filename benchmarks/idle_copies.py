#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""idle_copies.py - what copies of the state on another node cost a step whose
network has other messages, too: two ranks on two nodes (network namespaces), whose
link carries so many bits a second.

    python3 benchmarks/idle_copies.py [--program build/lockstep] [--other FILE]
                                      [--rate 1gbit] [--steps 16] [--turns 2]
                                      [--copies K|auto] [--out FILE.json]

Runs without copies, and with one after each step (or every K, or as often as the
program takes for 1%), take turns; --other: a second
program (one that sends copies at once) takes turns with the first; each comes first
in one of them. Medians of the
time from the end of a step to the end of the next, without the first six steps: the
first copies touch new pages of the other node. A step without
copies has the same messages and the same link. `loopback`: no limit, one network."""
import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import tempfile
import time

import safety

CONFIG = """\
model: {family: gpt2, vocab: 8192, layers: 6, width: 384, heads: 6, context: 256}
tokenizer: {from: tokenizer.json}
data: {train: [text], sequence: 256, cache: cache, valid_share: 0}
train: {batch: BATCH, steps: STEPS, threads: 1, check_every: 0, on_spike: none}
mesh: {data: 2}
zero: zero1
checkpoint: {minutes: 0, at_end: false}
"""
LEFT_OUT = 6
# A queue of 20 ms at most in each direction, as in a switch.
LIMIT = """\
for i in 1 2; do
    tc qdisc add dev v$i root tbf rate $RATE burst 256kb latency 20ms
    tc -n n$i qdisc add dev eth root tbf rate $RATE burst 256kb latency 20ms
done
"""


def script(rate):
    if rate == "loopback":
        return "set -e\nip link set lo up\n" + safety.RUN.format(
            address="127.0.0.1", inside="")
    return safety.NETWORK + LIMIT + safety.RUN_ON_NODES


def run(program, folder, rate, copies):
    """Milliseconds of each step; what the run says of its copies."""
    subprocess.run(["unshare", "-rnm", "bash", "-c", script(rate), program,
                    "--copies", copies], cwd=folder, check=True,
                   capture_output=True, env={**os.environ, "RATE": rate})
    text = (folder / "run" / "log.txt").read_text(encoding="utf-8")
    steps = list(safety.steps_after(folder, LEFT_OUT).values())
    subprocess.run(["rm", "-rf", "run", "token"], cwd=folder, check=True)
    said = {"every": r"a copy in memory after (?:each|([0-9]+)) step",
            "said_percent": r"costs ([0-9.]+)% of the time",
            "travels_ms": r"([0-9.]+) ms more while one travels",
            "carried_ms": r"([0-9.]+) ms of processors",
            "waits_ms": r"([0-9.]+) ms waiting for other nodes",
            "idle_percent": r"([0-9.]+)% of the bytes travelled"}
    found = {key: re.findall(words, text) for key, words in said.items()}
    return steps, {key: float(all_[-1] or 1)
                   for key, all_ in found.items() if all_}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/lockstep")
    parser.add_argument("--other")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--copies", default="1")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--out")
    asked = parser.parse_args()
    programs = {"this": str(pathlib.Path(asked.program).resolve())}
    if asked.other:
        programs["other"] = str(pathlib.Path(asked.other).resolve())
    kinds = [("this, without copies", "this", "0")]
    kinds += [(f"{name}, with copies", name, asked.copies)
              for name in programs]
    found = {kind: {"medians_ms": [], "said": []} for kind, _, _ in kinds}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        safety.prepare(programs["this"], folder, asked, CONFIG)
        for turn in range(asked.turns):
            first = turn % len(kinds)  # none of them always comes first
            for kind, program, copies in kinds[first:] + kinds[:first]:
                steps, said = run(programs[program], folder, asked.rate,
                                  copies)
                median = statistics.median(steps)
                found[kind]["medians_ms"].append(round(median, 1))
                found[kind]["said"].append(said)
                print(f"{asked.rate}: {kind}: {median:.0f} ms {said}",
                      flush=True)
    without = min(found[kinds[0][0]]["medians_ms"])
    for kind, _, _ in kinds[1:]:
        more = statistics.median(found[kind]["medians_ms"]) - without
        found[kind]["share_of_a_step"] = more / without
        print(f"{kind}: {more:+.0f} ms, {100 * more / without:+.1f}%")
    if asked.out:
        pathlib.Path(asked.out).write_text(json.dumps({
            "date": time.strftime("%Y-%m-%d"), "machine": platform.machine(),
            "load": os.getloadavg(), "command": "benchmarks/idle_copies.py "
            f"--rate {asked.rate} --steps {asked.steps} --turns {asked.turns} "
            f"--copies {asked.copies} --batch {asked.batch}", "ranks": 2, **found}, indent=1) + "\n",
            encoding="utf-8")


if __name__ == "__main__":
    main()
