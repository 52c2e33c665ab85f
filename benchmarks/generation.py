# SPDX-License-Identifier: Apache-2.0
"""Tokens a second with a key-value cache, one sequence: Lockstep's `generate` and
transformers' on the same random checkpoint, in turns.

    make build/lockstep
    python3 benchmarks/generation.py [--rows gpt2-124m,llama-10m] [--pairs 5]

The checkpoint is written by save_pretrained; `lockstep generate` opens the same
directory (and a bfloat16 one). Every token reads every weight once, so the bound is
the bandwidth of memory, measured in the same run by PyTorch reading a large tensor,
over the bytes of the weights. Stored in benchmarks/results.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import measure
import pictures
from presets import PRESETS

PROMPT = "The"


# ---- the other side: one process of transformers ----

def model_make(name, folder):
    import torch
    import transformers
    kind, vocab, width, inner, layers, heads, groups = PRESETS[name][:7]
    torch.manual_seed(1)
    if kind == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=vocab, n_embd=width, n_inner=inner, n_layer=layers,
            n_head=heads, bos_token_id=0, eos_token_id=0))
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=vocab, hidden_size=width, intermediate_size=inner,
            num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=groups, max_position_embeddings=1024,
            tie_word_embeddings=False, bos_token_id=0, eos_token_id=0))
    for kind in ("float32", "bfloat16"):
        model.to(getattr(torch, kind)).save_pretrained(
            os.path.join(folder, kind))


def bandwidth(torch):
    """Bytes a second of reading what fits no cache, best of five."""
    data = torch.ones(1 << 29)  # 2 GB: larger than any cache
    best = 0.0
    for _ in range(5):
        began = time.monotonic()
        data.sum()
        best = max(best, 4 * data.numel() / (time.monotonic() - began))
    return best


def work(folder, threads):
    """Answers lines of `tokens` with seconds."""
    import torch
    torch.set_num_threads(threads)
    if folder == "bandwidth":
        print(bandwidth(torch))
        return
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto").eval()
    with torch.inference_mode():
        for line in sys.stdin:
            ids = torch.tensor([[1, 2, 3]])
            began = time.monotonic()
            model.generate(ids, attention_mask=torch.ones_like(ids),
                           max_new_tokens=int(line), min_new_tokens=int(line),
                           do_sample=False, use_cache=True, pad_token_id=0)
            print(time.monotonic() - began, flush=True)


def worker(settings, folder):
    return measure.spawn(
        [sys.executable, os.path.abspath(__file__), "--work", folder,
         "--threads", str(settings.threads)],
        settings.ahead, stdin=-1, stdout=-1, stderr=settings.log)


class Transformers:
    def __init__(self, settings, folder):
        self.child = worker(settings, folder)
        self.ask(8)

    def ask(self, tokens):
        self.child.stdin.write(f"{tokens}\n")
        self.child.stdin.flush()
        return tokens / float(self.child.stdout.readline())

    def measure(self, tokens):
        watch, used = measure.Watch(), measure.used_s(self.child.pid)
        rate = self.ask(tokens)
        return rate, watch.others(measure.used_s(self.child.pid) - used)

    def end(self):
        self.child.stdin.close()
        return {"peak_mb": measure.finished(self.child)[2]}


class Lockstep:
    def __init__(self, settings, folder, flags):
        self.settings, self.peak = settings, 0
        self.command = [settings.lockstep, "generate", folder, "--json",
                        "--prompt", PROMPT, "--temperature", "1", "--threads",
                        str(settings.threads), *flags]

    def measure(self, tokens):
        watch = measure.Watch()
        child = measure.spawn([*self.command, "--tokens", str(tokens)],
                              self.settings.ahead, stdout=-1,
                              stderr=self.settings.log)
        text = child.stdout.read()
        code, used, self.peak = measure.finished(child)
        if code:
            sys.exit(f"{' '.join(self.command)}: exit code {code}; "
                     "see build/peers.log")
        return json.loads(text)["tokens_per_s"], watch.others(used)

    def end(self):
        return {"peak_mb": self.peak}


# ---- the comparison ----

def weights_read(name):
    """Elements that one token reads: not the rows of the embedding table
    that it does not need, but the whole head."""
    kind, vocab, width, inner, layers, heads, groups = PRESETS[name][:7]
    if kind == "gpt2":
        block = 4 * width * width + 2 * width * inner + 9 * width + inner
    else:
        block = (2 * width * width + 2 * width * width // heads * groups
                 + 3 * width * inner + 2 * width)
    return vocab * width + layers * block


def compare(settings, name, folder):
    sides = {}
    for kind in ("float32", "bfloat16"):
        path = os.path.join(folder, kind)
        flags = ["--dtype", kind] if settings.has_dtype else []
        if kind == "float32" or settings.has_dtype:
            sides[f"lockstep {kind}"] = Lockstep(settings, path, flags)
        sides[f"transformers {kind}"] = Transformers(settings, path)
    rounds = []
    for _ in range(settings.pairs):
        rounds.append({label: side.measure(settings.tokens)
                       for label, side in sides.items()})
        print("  " + ", ".join(f"{label} {rate:.1f}" for label, (rate, _)
                               in rounds[-1].items()) + " tokens/s",
              file=sys.stderr, flush=True)
    child = worker(settings, "bandwidth")
    band = float(child.stdout.read())
    measure.finished(child)
    row = {"model": name, "tokens": settings.tokens, "rounds": len(rounds),
           "bandwidth_gb_s": band / 1e9, "sides": {}, "ratios": {}}
    for label, side in sides.items():
        size = weights_read(name) * (4 if label.endswith("float32") else 2)
        rates = measure.spread([r[label][0] for r in rounds])
        row["sides"][label] = {
            "tokens_per_s": rates, "weight_mb": size / 1e6,
            "bound_tokens_per_s": band / size,
            "bound_fraction": rates["median"] * size / band,
            "other_cores": [r[label][1] for r in rounds], **side.end()}
    for label in sides:
        theirs = label.replace("lockstep", "transformers")
        if label.startswith("lockstep"):
            row["ratios"][label] = measure.spread(
                [r[label][0] / r[theirs][0] for r in rounds])
    return row


def store(settings, rows):
    start, result = measure.store(settings.out, "generation",
                                  "python3 benchmarks/generation.py", rows)
    pictures.generation_write(start, result)
    return start


def settings_read():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", default="gpt2-124m,llama-10m")
    parser.add_argument("--pairs", type=int, default=5, help="rounds (5)")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--threads", type=int,
                        default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ahead", action="store_true",
                        help="run before all other work (needs root)")
    parser.add_argument("--out", default=measure.RESULTS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    settings = settings_read()
    if settings.work:
        work(settings.work, settings.threads)
        return
    settings.lockstep = os.path.abspath(
        os.environ.get("LOCKSTEP") or os.path.join(measure.ROOT, "build",
                                                   "lockstep"))
    settings.log = open(os.path.join(measure.ROOT, "build", "peers.log"), "a",
                        encoding="utf-8")
    settings.has_dtype = "--dtype" in subprocess.run(
        [settings.lockstep, "generate", "--help"], check=True,
        capture_output=True, text=True).stdout
    rows = []
    for name in settings.rows.split(","):
        with tempfile.TemporaryDirectory() as folder:
            print(name, file=sys.stderr, flush=True)
            model_make(name, folder)
            for kind in ("float32", "bfloat16"):
                subprocess.run(
                    [settings.lockstep, "tokenizer", "train",
                     os.path.join(measure.ROOT, "README.md"), "--vocab", "400",
                     "--out", os.path.join(folder, kind, "tokenizer.json")],
                    check=True,
                    stdout=settings.log)
            rows.append(compare(settings, name, folder))
        start = store(settings, rows)
    print(start + ".md")


if __name__ == "__main__":
    main()
