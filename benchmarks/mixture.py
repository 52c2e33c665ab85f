# SPDX-License-Identifier: Apache-2.0
"""mixture.py - the share of a demo step that a mixture of 1,000 sources takes.

    BUILD=build python3 benchmarks/mixture.py [STEPS]

Trains the demo's model on one source and on 1,000 of random weights, and takes
from profile.json the time of a step that making batches and writing metrics took (data).
The time is that of the rank's own thread; a busy machine lengthens both parts.
Stores the figures in results/.
"""
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import measure

PROGRAM = os.path.abspath(os.path.join(os.environ.get("BUILD", "build"),
                                       "lockstep"))
SOURCES, PIECE = 1000, 3000


def lockstep(*arguments):
    subprocess.run([PROGRAM, *arguments], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def make_texts(where):
    names = sorted(glob.glob(os.path.join(measure.ROOT, "src/*/*.c")))
    text = "".join(open(name, encoding="utf-8").read() for name in names)
    os.mkdir(os.path.join(where, "texts"))
    for i in range(SOURCES):
        at = i * PIECE % (len(text) - PIECE)
        with open(os.path.join(where, f"texts/{i}.txt"), "w") as file:
            file.write(text[at:at + PIECE])


def trained(where, name, rows, steps):
    """The profile of a run of that data."""
    config = open(os.path.join(measure.ROOT, "examples", "01_first_run",
                               "config.yaml")).read()
    config = re.sub(r"(?m)^validate:\n.*\n|^  (train|valid): .*\n", "", config)
    config = config.replace("demo/tokenizer.json", "tokenizer.json")
    config = config.replace("data:\n", "data:\n  valid_share: 0\n" + rows)
    with open(os.path.join(where, "config.yaml"), "w") as file:
        file.write(config)
    lockstep("train", "config.yaml", "--run", name,
             "--set", f"train.steps={steps}", "--set", "optimizer.warmup=1")
    with open(os.path.join(where, name, "profile.json")) as file:
        return json.load(file)


def data_and_step(profile):
    """Of a profile: its kind `data`, and the mean step."""
    data = sum(row["ms"] for row in profile["kinds"] if row["kind"] == "data")
    return data, profile["step_ms"]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    random.seed(1)
    with tempfile.TemporaryDirectory() as where:
        os.chdir(where)
        make_texts(where)
        lockstep("tokenizer", "train", "texts", "--vocab", "2048", "--out",
                 "tokenizer.json")
        many = "  mixture:\n" + "".join(
            f"    - s{i} {random.uniform(0.1, 5):.3f} texts/{i}.txt\n"
            for i in range(SOURCES))
        found = {}
        for name, rows in (("one", "  train: [texts]\n"), ("many", many)):
            data, step = data_and_step(trained(where, name, rows, steps))
            found[name] = {"data_ms": round(data, 4), "step_ms": round(step, 2),
                           "share": round(data / step, 5)}
            print(f"{name}: data {data:.3f} ms of a step of {step:.1f} ms, "
                  f"{100 * data / step:.3f}%")
    found.update(sources=SOURCES, steps=steps)
    measure.store(measure.RESULTS, "mixture", "python3 benchmarks/mixture.py",
                  found)
    if found["many"]["share"] >= 0.01:
        sys.exit("a mixture of 1,000 sources costs 1% of a step or more")


if __name__ == "__main__":
    main()
