# SPDX-License-Identifier: Apache-2.0
"""latent.py - generation over a cache of latents beside one of keys and values.

    BUILD=build python3 benchmarks/latent.py [PAIRS]

Trains one step of a small model with the attention sizes of DeepSeek-V2-Lite (16
heads of 128 + 64, latent 512), then continues one prompt with each cache, in
turns. Stores the bytes of the caches and the tokens a second, medians, in results/.
"""
import json
import os
import statistics
import sys
import tempfile

import measure
from one_step import lockstep, make_model, text_of

CONTEXT, PROMPTS, TOKENS = 2048, (16, 1500), 100
CONFIG = """version: 1
model: {family: deepseek_v2, layers: 4, width: 512, heads: 16}
mla: {query_rank: 0, rank: 512, nope: 128, rope: 64, value: 128}
moe: {experts: 4, top_k: 2, intermediate_size: 256, groups: 1, groups_chosen: 1}
tokenizer: {from: tokenizer.json}
data: {train: [text], sequence: %d}
train: {steps: 1, batch: 1}
run: {dir: run}
""" % CONTEXT


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rows = []
    with tempfile.TemporaryDirectory() as where:
        os.chdir(where)
        make_model(CONFIG, text_of("README.md", "CHANGELOG.md"))
        for words in PROMPTS:
            speed, made = {"keys": [], "latent": []}, {}
            for _ in range(pairs):
                for kind, seen in speed.items():
                    made[kind] = json.loads(lockstep(
                        "generate", "run", "--prompt", "to " * words,
                        "--tokens", str(TOKENS), "--temperature", "0",
                        "--cache", kind, "--json"))
                    seen.append(made[kind]["tokens_per_s"])
            for kind, seen in speed.items():
                rows.append({
                    "cache": kind, "prompt_tokens": made[kind]["prompt_tokens"],
                    "positions": made[kind]["cache_positions"],
                    "cache_bytes": made[kind]["cache_bytes"],
                    "tokens_per_s": round(statistics.median(seen), 1),
                    "same_text": made[kind]["ids"] == made["keys"]["ids"]})
                print(rows[-1])
    start, _ = measure.store(measure.RESULTS, "latent", "latent.py", rows)
    print(start + ".json")


if __name__ == "__main__":
    main()
