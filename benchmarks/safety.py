#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""safety.py - what it costs a run to be safe: GPT-2 124M on two supervised
ranks with copies in memory and with checksums of replicas.

    python3 benchmarks/safety.py [--program build/lockstep] [--steps 30]
                                 [--batch 4] [--only save,far] [--out FILE.json]

With --copies 1 an update reads one copy of the state and writes the other: runs
with it and without copies take turns (state); the log of a run says how long
its steps stood still for it.

Every second step of a run makes a copy, or a check, and is compared with the
steps between, from end to end: within one run, so that a machine that becomes
slower does not count. The first four steps are left out. A save in the background lasts for
several steps: a run that saves at every fifth step is compared with one that
does not, as milliseconds for each save. The same for copies that go to another
node: each rank has a network namespace of its own, and its copies travel by TCP
over a bridge while the steps go on (far, with states that ZeRO divides). Without
ZeRO the other node has the same rows, and only counters travel (twin)."""
import argparse
import json
import pathlib
import platform
import re
import statistics
import subprocess
import tempfile
import time

CONFIG = """\
model: {family: gpt2, vocab: 50304, layers: 12, width: 768, heads: 12, context: 256}
tokenizer: {from: tokenizer.json}
data: {train: [text], sequence: 256, cache: cache, valid_share: 0}
train: {batch: BATCH, steps: STEPS, threads: 1, check_every: 0, on_spike: none}
mesh: {data: 2}
checkpoint: {minutes: 0, at_end: false}
"""
# Settings, and whether each rank has a node of its own.
SECOND = {"copy": (["--copies", "2"], False),
          "check": (["--copies", "0", "--set", "train.check_every=2"], False),
          "twin": (["--copies", "2"], True)}
SAVES = {"without": ["--copies", "0"],
         "with": ["--copies", "0", "--set", "checkpoint.every=5",
                  "--set", "checkpoint.async=true"]}
FAR = {"without": ["--copies", "0", "--set", "zero=zero1"],
       "with": ["--copies", "3", "--set", "zero=zero1"]}
TURNS = 3
LEFT_OUT = 4
# Steps from one to the next; how many are left out: the first two copies touch
# new pages of the other node.
EVERY = {"save": (5, LEFT_OUT), "far": (3, 8)}
# Two nodes on a bridge, with the supervisor between them.
NETWORK = """\
set -e
mount -t tmpfs none /run
mkdir /run/netns
ip link add bridge type bridge
ip address add 10.77.0.254/24 dev bridge
ip link set bridge up
ip link set lo up
for i in 1 2; do
    ip netns add n$i
    ip link add v$i type veth peer name eth netns n$i
    ip link set v$i master bridge up
    ip -n n$i address add 10.77.0.$i/24 dev eth
    ip -n n$i link set eth up
    ip -n n$i link set lo up
done
"""
# Two agents of one rank each, started by `inside`.
RUN = """\
"$0" supervise config.yaml --run run --ranks 2 --listen {address}:7077 \\
    --token token "$@" >log 2>&1 &
until [ -s token ] && grep -q listens log; do sleep 0.1; done
for i in 1 2; do
    {inside} "$0" agent --join {address}:7077 --token token \\
        --slots 1 --name n$i >log.$i 2>&1 &
done
wait %1
wait
"""
RUN_ON_NODES = RUN.format(address="10.77.0.254", inside="ip netns exec n$i")


said = []  # by the supervised runs


def call(folder, *words):
    return subprocess.run(words, cwd=folder, check=True, capture_output=True,
                          text=True)


def prepare(program, folder, asked, config=CONFIG):
    (folder / "text").mkdir()
    pages = pathlib.Path(__file__).resolve().parent.parent / "docs"
    for page in pages.glob("*.md"):
        (folder / "text" / (page.stem + ".txt")).write_text(
            page.read_text(encoding="utf-8"), encoding="utf-8")
    call(folder, program, "tokenizer", "train", "text", "--vocab", "1024",
         "--out", "tokenizer.json")
    (folder / "config.yaml").write_text(
        config.replace("BATCH", str(asked.batch)).replace(
            "STEPS", str(asked.steps)), encoding="utf-8")


def steps_after(folder, left_out):
    """Milliseconds from the end of a step to the end of the next, by number:
    step_ms has no copies, checks and saves in it."""
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in lines.splitlines()]
    ends = {row["step"]: row["time_s"] for row in rows if "step_ms" in row}
    return {step: 1e3 * (end - ends[step - 1]) for step, end in ends.items()
            if step > left_out}


def steps_of(program, folder, words, far=False, left_out=LEFT_OUT):
    """The steps of one run, as steps_after."""
    if far:
        call(folder, "unshare", "-rnm", "bash", "-c",
             NETWORK + RUN_ON_NODES, program, *words)
    else:
        said.append(call(folder, program, "train", "config.yaml", "--run",
                         "run", "--ranks", "2", "--supervised",
                         *words).stderr)
    steps = steps_after(folder, left_out)
    call(folder, "rm", "-rf", "run")
    return steps


def stall(text):
    """Milliseconds that a step stood still for a copy, as the run says."""
    return float(re.search(r"costs .*?([0-9.]+) ms to make", text).group(1))


def state(program, folder):
    """Medians of a step, run by run, without copies and with the state in
    them; how long a step stood still."""
    medians = {"0": [], "1": []}
    for turn in range(2 * TURNS):
        copies = str(turn % 2)
        steps = steps_of(program, folder, ["--copies", copies])
        medians[copies].append(statistics.median(steps.values()))
        print(f"state: --copies {copies}: {medians[copies][-1]:.0f} ms")
    row = {"without_ms": medians["0"], "with_ms": medians["1"],
           "stall_ms": stall(said[-1])}
    row["share_of_a_step"] = row["stall_ms"] / min(medians["1"])
    print(f"state: a step stands still for {row['stall_ms']:.1f} ms, "
          f"{100 * row['share_of_a_step']:.2f}% of it")
    return row


def second(steps):
    """Steps that do it against the steps between. The work of an even step
    may lie in its own time or in the time of the step after it."""
    even = [ms for step, ms in steps.items() if step % 2 == 0]
    odd = [ms for step, ms in steps.items() if step % 2 == 1]
    more = abs(statistics.median(even) - statistics.median(odd))
    return {"steps": len(steps), "even_ms": statistics.median(even),
            "odd_ms": statistics.median(odd), "cost_ms": more,
            "share_of_a_step": more / min(statistics.median(even),
                                          statistics.median(odd))}


def lasting(program, folder, runs, kind):
    """What each of the saves or copies of a run costs that last for several
    steps."""
    every, left_out = EVERY[kind]
    mean = {name: statistics.fmean(steps_of(program, folder, words,
                                            kind == "far",
                                            left_out).values())
            for name, words in runs.items()}
    cost = (mean["with"] - mean["without"]) * every
    row = {"without_ms": mean["without"], "with_ms": mean["with"],
           "cost_ms": cost}
    print(f"{kind}: a step takes {mean['without']:.0f} ms, "
          f"{mean['with']:.0f} ms with one at every {every}th: "
          f"{cost:.0f} ms each")
    if kind == "save":
        row["share_of_15_minutes"] = cost / 900e3
        print(f"save: {100 * cost / 900e3:.3f}% of a run that saves every 15 "
              "minutes")
    else:
        row["steps_for_1_percent"] = cost / (0.01 * mean["without"])
        print(f"far: 1% of a run with a copy at every "
              f"{row['steps_for_1_percent']:.0f}th step")
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/lockstep")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--only", default="state,copy,check,save,twin,far")
    parser.add_argument("--out")
    asked = parser.parse_args()
    program = str(pathlib.Path(asked.program).resolve())
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(program, folder, asked)
        wanted = asked.only.split(",")
        if "state" in wanted:
            found["state"] = state(program, folder)
        for kind, (words, far) in SECOND.items():
            if kind not in wanted:
                continue
            found[kind] = row = second(steps_of(program, folder, words, far))
            if not far and "--copies" in words and words[1] != "0":
                row["stall_ms"] = stall(said[-1])
            print(f"{kind}: even steps {row['even_ms']:.0f} ms, odd steps "
                  f"{row['odd_ms']:.0f} ms: {row['cost_ms']:.0f} ms each, "
                  f"{100 * row['share_of_a_step']:.2f}% of a step")
        for kind, runs in (("save", SAVES), ("far", FAR)):
            if kind in wanted:
                found[kind] = lasting(program, folder, runs, kind)
    if asked.out:
        pathlib.Path(asked.out).write_text(json.dumps({
            "date": time.strftime("%Y-%m-%d"), "machine": platform.machine(),
            "command": f"benchmarks/safety.py --steps {asked.steps} "
                       f"--batch {asked.batch} --only {asked.only}",
            "model": "gpt2-124m",
            "ranks": 2, **found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
