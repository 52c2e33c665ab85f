#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mixture_loss.py - the loss of a mixture of experts beside that of the dense
model of as many parameters a token, on the demo's corpus.

    tools/corpus.sh demo/corpus
    build/lockstep tokenizer train demo/corpus/train.jsonl --vocab 2048 \\
        --out demo/tokenizer.json
    python3 benchmarks/mixture_loss.py [--steps 400] [--draw FILE.svg]

Both are the model of `make demo` (4 blocks of width 192) and see the same
tokens in the same order. A feed-forward part of the dense one is 512 wide; one
of the mixture has 16 experts of width 128, of which a token uses three, and one
of all tokens (the form of glm4_moe, with all of a head turned, as in llama).
Stores the losses of validation in results/ and draws them. LOCKSTEP names the
program, THREADS (1) what it says.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import tempfile

import measure

PROGRAM = os.environ.get("LOCKSTEP", "build/lockstep")
CONFIG = "examples/01_first_run/config.yaml"
EACH = 50  # steps between two validations
MODELS = {
    "dense": [],
    "mixture": ["model.family=glm4_moe", "model.rotary=32", "moe.experts=16",
                "moe.top_k=3", "moe.scale=3", "moe.intermediate_size=128",
                "moe.shared_intermediate_size=128", "moe.groups=1",
                "moe.groups_chosen=1"]}
COLOURS = {"dense": "#888888", "mixture": "#1f77b4"}
WIDTH, HEIGHT, LEFT, TOP, BELOW = 720, 380, 60, 40, 330


def trained(folder, name, more, steps):
    """(step, loss) of each validation, and what the run printed."""
    run = os.path.join(folder, name)
    settings = [f"train.steps={steps}", f"validate.every={EACH}",
                "checkpoint.every=0", "checkpoint.at_end=false",
                "model.tied=true", *more]
    subprocess.run(
        [PROGRAM, "train", CONFIG, "--run", run, "--threads",
         os.environ.get("THREADS", "1"),
         *[f"--set={setting}" for setting in settings]],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = [json.loads(line) for line in measure.lines_of(
        os.path.join(run, "metrics.jsonl"))]
    return {"validation": [[row["step"], row["val_loss"]] for row in rows
                           if row["kind"] == "validation"],
            "parameters": parameters(more)}


def parameters(more):
    """All of them, and those that a token uses."""
    plan = subprocess.run(
        [PROGRAM, "plan", CONFIG, "--set=model.tied=true",
         *[f"--set={setting}" for setting in more]],
        check=True, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL).stdout

    def number(name):
        found = re.search(rf"^{name} +([0-9,]+)", plan, re.M)
        return int(found.group(1).replace(",", "")) if found else None

    return {"all": number("parameters"),
            "of a token": number("parameters that a token uses")
                          or number("parameters")}


def draw(path, found, steps):
    losses = [loss for run in found.values() for _, loss in run["validation"]]
    low, high = min(losses) - 0.1, max(losses)

    def place(step, loss):
        return (LEFT + step / steps * (WIDTH - LEFT - 20),
                BELOW - (loss - low) / (high - low) * (BELOW - TOP))

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} '
             f'{HEIGHT}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="#fff"/>',
             f'<text x="{LEFT}" y="22" font-size="14">Loss of held-out text, '
             'nats a token</text>']
    for tick in range(int(low * 2) + 1, int(high * 2) + 1):
        x, y = place(0, tick / 2)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{WIDTH - 20}" '
                     'stroke="#eee"/>'
                     f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" '
                     f'text-anchor="end">{tick / 2:g}</text>')
    for step in range(0, steps + 1, steps // 4):
        x, y = place(step, low)
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" '
                     f'text-anchor="middle">{step}</text>')
    for i, (name, run) in enumerate(found.items()):
        points = " ".join("{:.1f},{:.1f}".format(*place(*at))
                          for at in run["validation"])
        own = run["parameters"]
        parts += [f'<polyline points="{points}" fill="none" stroke="'
                  f'{COLOURS[name]}" stroke-width="2"/>',
                  f'<text x="{LEFT + 260}" y="{TOP + 20 + 18 * i}" fill="'
                  f'{COLOURS[name]}">{name}: {own["of a token"] / 1e6:.2f} '
                  f'million parameters a token, {own["all"] / 1e6:.2f} in '
                  f'all; at the end {run["validation"][-1][1]:.3f}</text>']
    parts += [f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 10}" '
              'text-anchor="middle">steps of 2,048 tokens</text>', "</svg>"]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--draw", default="docs/pictures/mixture_loss.svg")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with concurrent.futures.ThreadPoolExecutor(len(MODELS)) as pool:
            runs = {name: pool.submit(trained, folder, name, more, asked.steps)
                    for name, more in MODELS.items()}
        found = {name: run.result() for name, run in runs.items()}
    draw(asked.draw, found, asked.steps)
    start, _ = measure.store(measure.RESULTS, "mixture-loss",
                             "benchmarks/mixture_loss.py", found)
    for name, run in found.items():
        print(f"{name:8} {run['parameters']['of a token']:9,} of "
              f"{run['parameters']['all']:9,} parameters: loss "
              f"{run['validation'][-1][1]:.4f}")
    print(start + ".json")
    if found["mixture"]["validation"][-1][1] >= \
            found["dense"]["validation"][-1][1]:
        raise SystemExit("the mixture learned no better than the dense model")


if __name__ == "__main__":
    main()
