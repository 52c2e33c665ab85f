#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""safety.py - what it costs a run to be safe: GPT-2 124M on two supervised
ranks with copies in memory and with checksums of replicas.

    python3 benchmarks/safety.py [--program build/lockstep] [--steps 30]
                                 [--batch 4] [--out FILE.json]

Every second step of a run makes a copy, or a check, and is compared with the
steps between: within one run, so that a machine that becomes slower does not
count. The first four steps are left out. A save in the background lasts for
several steps: a run that saves at every fifth step is compared with one that
does not, as milliseconds for each save."""
import argparse
import json
import pathlib
import platform
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
SECOND = {"copy": ["--copies", "2"],
          "check": ["--copies", "0", "--set", "train.check_every=2"]}
SAVES = {"without": ["--copies", "0"],
         "with": ["--copies", "0", "--set", "checkpoint.every=5",
                  "--set", "checkpoint.async=true"]}
LEFT_OUT, EVERY = 4, 5


def call(folder, *words):
    return subprocess.run(words, cwd=folder, check=True, capture_output=True,
                          text=True)


def prepare(program, folder, asked):
    (folder / "text").mkdir()
    pages = pathlib.Path(__file__).resolve().parent.parent / "docs"
    for page in pages.glob("*.md"):
        (folder / "text" / (page.stem + ".txt")).write_text(
            page.read_text(encoding="utf-8"), encoding="utf-8")
    call(folder, program, "tokenizer", "train", "text", "--vocab", "1024",
         "--out", "tokenizer.json")
    (folder / "config.yaml").write_text(
        CONFIG.replace("BATCH", str(asked.batch)).replace(
            "STEPS", str(asked.steps)), encoding="utf-8")


def steps_of(program, folder, words):
    """The steps of one run, milliseconds, by number of the step."""
    call(folder, program, "train", "config.yaml", "--run", "run", "--ranks",
         "2", "--supervised", *words)
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in lines.splitlines()]
    call(folder, "rm", "-rf", "run")
    return {row["step"]: row["step_ms"] for row in rows
            if "step_ms" in row and row["step"] > LEFT_OUT}


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/lockstep")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--out")
    asked = parser.parse_args()
    program = str(pathlib.Path(asked.program).resolve())
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(program, folder, asked)
        for kind, words in SECOND.items():
            found[kind] = row = second(steps_of(program, folder, words))
            print(f"{kind}: even steps {row['even_ms']:.0f} ms, odd steps "
                  f"{row['odd_ms']:.0f} ms: {row['cost_ms']:.0f} ms each, "
                  f"{100 * row['share_of_a_step']:.2f}% of a step")
        mean = {kind: statistics.fmean(steps_of(program, folder, words)
                                       .values())
                for kind, words in SAVES.items()}
    cost = (mean["with"] - mean["without"]) * EVERY
    found["save"] = {"without_ms": mean["without"], "with_ms": mean["with"],
                     "cost_ms": cost, "share_of_15_minutes": cost / 900e3}
    print(f"save: {cost:.0f} ms each, {100 * cost / 900e3:.3f}% of a run that "
          "saves every 15 minutes")
    if asked.out:
        pathlib.Path(asked.out).write_text(json.dumps({
            "date": time.strftime("%Y-%m-%d"), "machine": platform.machine(),
            "command": f"benchmarks/safety.py --steps {asked.steps} "
                       f"--batch {asked.batch}", "model": "gpt2-124m",
            "ranks": 2, **found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
