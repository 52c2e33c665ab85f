# SPDX-License-Identifier: Apache-2.0
"""Encoding and learning beside the libraries, on one core.

    make build/lockstep build/liblockstep.a
    python3 benchmarks/tokenizer_speed.py TEXT...

Encoding: the texts are cut into documents of about 4 KB; every tokenizer of
tests/golden/tokenizer_fuzz.py, real ones where a package has them. Learning: a
byte-level BPE of each size in LEARNED from the texts as they are, by `lockstep
tokenizer train` and by the trainer of `tokenizers`.

In each round both sides do all of it in turn (A B A B ...), in processor time of
one thread, so that a busy machine changes little. Stored in results/: medians and
the median, least and most of the ratios of the rounds. ONLY=learning or
ONLY=encoding leaves the rest out; FILTER takes tokenizers with that in the name.
"""
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import measure

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, os.path.join(measure.ROOT, "tests", "golden"))
import tokenizer_fuzz as fuzz  # noqa: E402
from tokenizers import (  # noqa: E402
    Tokenizer, models, pre_tokenizers, trainers)

ROUNDS = int(os.environ.get("ROUNDS") or 5)
LEARNED = (8192, 32000)  # tokens
DOCUMENT = 4096  # characters
WANTED = ("json byte-level gpt2", "json byte-level llama3", "json gemma",
          "real anthropic", "real cl100k_base", "real o200k_base",
          "real json llama2", "real json mistral", "real tokenizer.model.v1",
          "real tekken_240911.json", "json unigram", "json nmt_nfkc",
          "json punctuation", "model unigram", "model nmt_nfkc unigram")


def documents(paths):
    out = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        out += [text[i:i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]
    return out


def encoding(tool, encode, path, texts):
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
    return rates(size, ours, theirs)


def rates(size, ours, theirs):
    """Seconds of the rounds of both sides as one row of the result."""
    ratios = [b / a for a, b in zip(ours, theirs)]
    return {"lockstep_mb_s": round(size / statistics.median(ours) / 1e6, 2),
            "library_mb_s": round(size / statistics.median(theirs) / 1e6, 2),
            "ratio": round(statistics.median(ratios), 2),
            "ratio_least": round(min(ratios), 2),
            "ratio_most": round(max(ratios), 2)}


def child_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def learn(paths, vocab, folder):
    """Seconds of learning so many tokens, both sides in turn."""
    program = (os.environ.get("LOCKSTEP")
               or os.path.join(measure.ROOT, "build", "lockstep"))
    ours, theirs = [], []
    for _ in range(ROUNDS):
        began = child_s()
        subprocess.run([program, "tokenizer", "train", *paths, "--vocab",
                        str(vocab), "--threads", "1", "--out",
                        os.path.join(folder, "learned.json")], check=True,
                       stdout=subprocess.DEVNULL)
        ours.append(child_s() - began)
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
            add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=vocab, show_progress=False,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        began = time.process_time()
        tokenizer.train(paths, trainer)
        theirs.append(time.process_time() - began)
    return rates(sum(os.path.getsize(p) for p in paths), ours, theirs)


def main():
    texts = documents(sys.argv[1:])
    result = {"rounds": ROUNDS, "documents": len(texts),
              "bytes": sum(len(t.encode()) for t in texts), "rows": {}}
    only = os.environ.get("ONLY")
    with tempfile.TemporaryDirectory() as folder:
        for vocab in LEARNED if only != "encoding" else ():
            name = f"learning {vocab}"
            result["rows"][name] = learn(sys.argv[1:], vocab, folder)
            print(name, result["rows"][name], file=sys.stderr, flush=True)
        tool = fuzz.build_tool(folder)
        for name, encode, _, path in fuzz.every_kind(folder):
            if (name not in WANTED or only == "learning"
                    or os.environ.get("FILTER", "") not in name):
                continue
            result["rows"][name] = encoding(tool, encode, path, texts)
            print(name, result["rows"][name], file=sys.stderr, flush=True)
    start, _ = measure.store(measure.RESULTS, "tokenizers",
                             "python3 benchmarks/tokenizer_speed.py", result)
    print(start + ".json")


if __name__ == "__main__":
    main()
