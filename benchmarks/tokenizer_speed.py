# SPDX-License-Identifier: Apache-2.0
"""Encoding speed of every family beside its library, on one core.

    make build/liblockstep.a
    python3 benchmarks/tokenizer_speed.py TEXT... > benchmarks/results/...

The texts are cut into documents of about 4 KB. In each round Lockstep and the
library encode all of them in turn (A B A B ...), in processor time, so that a
busy machine changes little; the medians of the rounds and
the ratio of the two are printed as JSON. The tokenizers are those of
tests/golden/tokenizer_fuzz.py: real ones where a package has them.
"""
import datetime
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
import tokenizer_fuzz as fuzz  # noqa: E402

ROUNDS = 3
DOCUMENT = 4096  # characters
WANTED = ("json byte-level gpt2", "json byte-level llama3", "json gemma",
          "real anthropic", "real cl100k_base", "real o200k_base",
          "real json llama2", "real json mistral", "real tokenizer.model.v1",
          "real tekken_240911.json", "json unigram", "json nmt_nfkc",
          "model unigram", "model nmt_nfkc unigram")


def documents(paths):
    out = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        out += [text[i:i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]
    return out


def measure(tool, encode, path, texts):
    data = struct.pack("<I", 0)  # an empty text warms nothing
    data += fuzz.packed(texts)
    size = sum(len(t.encode()) for t in texts)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        lines = subprocess.run([tool, path, "2"], input=data,
                               stdout=subprocess.PIPE, check=True).stdout
        ours.append(float(lines.split()[0]))  # the first round: cold words
        began = time.process_time()
        for text in texts:
            encode(text)
        theirs.append(time.process_time() - began)
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    return {"lockstep_mb_s": round(size / ours / 1e6, 2),
            "library_mb_s": round(size / theirs / 1e6, 2),
            "ratio": round(theirs / ours, 2)}


def main():
    texts = documents(sys.argv[1:])
    result = {"date": str(datetime.date.today()), "rounds": ROUNDS,
              "documents": len(texts),
              "bytes": sum(len(t.encode()) for t in texts), "rows": {}}
    with tempfile.TemporaryDirectory() as folder:
        tool = fuzz.build_tool(folder)
        for name, encode, _, path in fuzz.every_kind(folder):
            if name not in WANTED:
                continue
            result["rows"][name] = measure(tool, encode, path, texts)
            print(name, result["rows"][name], file=sys.stderr, flush=True)
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
