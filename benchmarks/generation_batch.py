# SPDX-License-Identifier: Apache-2.0
"""generation_batch.py - many prompts at once beside one after the other.

    BUILD=build python3 benchmarks/generation_batch.py [PAIRS]

Trains one step of a Llama with 86 million parameters, which fit into no cache, and
continues 32 prompts with `--batch` of 1, 4, 16 and 32, in turns. Tokens a second of all
prompts together: the time of 25 tokens each less that of one, which reads weights and
prompts. Compares the texts. Stores medians in results/.
"""
import json
import os
import statistics
import sys
import tempfile
import time

import measure
from one_step import lockstep, make_model, text_of

BATCHES, PROMPTS, TOKENS = (1, 4, 16, 32), 32, 24
TYPES = ("float32", "bfloat16")
CONFIG = """version: 1
model: {family: llama, layers: 12, width: 768, heads: 12}
tokenizer: {from: tokenizer.json}
data: {train: [text], sequence: 128}
train: {steps: 1, batch: 1}
run: {dir: run}
"""


def write_prompts(words):
    with open("prompts.txt", "w", encoding="utf-8") as file:
        for i in range(PROMPTS):
            file.write(" ".join(words[20 * i:20 * i + 3 + i % 7]) + "\n")


def run(kind, batch, tokens):
    """Seconds, and the ids of each text."""
    began = time.monotonic()
    lines = lockstep("generate", "run", "--prompts", "prompts.txt", "--tokens", str(tokens),
                     "--batch", str(batch), "--dtype", kind, "--json")
    return (time.monotonic() - began,
            [json.loads(line)["ids"] for line in lines.splitlines()])


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    rows = []
    with tempfile.TemporaryDirectory() as where:
        os.chdir(where)
        text = text_of("CHANGELOG.md")
        make_model(CONFIG, text)
        write_prompts(text.split())
        for kind in TYPES:
            speed, texts = {batch: [] for batch in BATCHES}, {}
            for _ in range(pairs):
                for batch, seen in speed.items():
                    short, _ = run(kind, batch, 1)
                    long, texts[batch] = run(kind, batch, 1 + TOKENS)
                    made = sum(len(ids) - 1 for ids in texts[batch])
                    seen.append(made / (long - short))
            for batch, seen in speed.items():
                rows.append({
                    "dtype": kind, "batch": batch,
                    "tokens_per_s": round(statistics.median(seen), 1),
                    "of_one": round(statistics.median(seen) / statistics.median(speed[1]), 2),
                    "same_texts": texts[batch] == texts[1]})
                print(rows[-1], flush=True)
    start, _ = measure.store(measure.RESULTS, "generation-batch", "generation_batch.py", rows)
    print(start + ".json")


if __name__ == "__main__":
    main()
