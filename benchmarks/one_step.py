# SPDX-License-Identifier: Apache-2.0
"""A model that was trained for one step, to generate from."""
import os
import subprocess

import measure

PROGRAM = os.path.abspath(os.path.join(os.environ.get("BUILD", "build"), "lockstep"))


def lockstep(*arguments):
    """What it prints."""
    return subprocess.run([PROGRAM, *arguments], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout


def text_of(*names):
    """Files of the repository, one after the other."""
    parts = []
    for name in names:
        with open(os.path.join(measure.ROOT, name), encoding="utf-8") as file:
            parts.append(file.read())
    return "".join(parts)


def make_model(config, text):
    """The directory `run`, here; config names the folder `text` and tokenizer.json."""
    os.mkdir("text")
    for name in ("a", "b"):
        with open(f"text/{name}.txt", "w", encoding="utf-8") as file:
            file.write(text)
    with open("config.yaml", "w", encoding="utf-8") as file:
        file.write(config)
    lockstep("tokenizer", "train", "text", "--vocab", "400", "--out", "tokenizer.json")
    lockstep("train", "config.yaml")
