# SPDX-License-Identifier: Apache-2.0
"""The same training steps by Lockstep, PyTorch and llm.c, in turns.

    make build/lockstep
    benchmarks/peers.sh [--quick] [--rows NAME,...] [--help]

Same model, batch, precision and threads. In each round every program is
measured alone, one after the other, while the others wait; a ratio is taken
inside a round, and the table shows medians of ratios with their spread.
Stored in benchmarks/results: a JSON file with all single values, a table and
pictures. With LLM_C=CHECKOUT, its `train_gpt2` (built there by its own make)
takes part at the batch and length in its source.

Where other programs are busy, a round is marked in the table; --strict repeats
it. Ours is `lockstep train` on a prepared corpus, data and logging included.
Peak memory and the time to the first step are those of whole processes; for
PyTorch they include compilation from an empty cache.
"""
import argparse
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import measure
import pictures
from presets import PRESETS

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 1.5  # of steps in one measurement, at least
# name: preset, batch, length
ROWS = {"gpt2-124m": ("gpt2-124m", 4, 256), "llama-58m": ("llama-58m", 8, 512),
        "llama-10m": ("llama-10m", 16, 256), "llama-1m": ("llama-1m", 16, 128),
        "gpt2-124m-long": ("gpt2-124m", 4, 1024)}
QUICK = ("llama-10m", "gpt2-124m", "llama-58m", "llama-1m")
PRECISIONS, MODES, PRODUCTS = (
    ("float32", "bfloat16"), ("eager", "compile"), ("pairs", "tiles"))
FAMILY = {"gpt2": "{family: gpt2, ", "llama": "{family: llama, tied: false, "}


class Corpus:
    """A folder with a configuration and its prepared tokens: the project's
    own pages, spelled with a small tokenizer."""

    def __init__(self, settings, row):
        self.folder = tempfile.TemporaryDirectory()
        work = self.folder.name
        docs = os.path.join(measure.ROOT, "docs")
        with open(os.path.join(work, "text.txt"), "w",
                  encoding="utf-8") as file:
            for page in sorted(os.listdir(docs)):
                if page.endswith(".md"):
                    file.write("\n".join(measure.lines_of(
                        os.path.join(docs, page))) + "\n")
        self.config_write(row)
        for words in (["tokenizer", "train", "text.txt", "--vocab", "512",
                       "--out", "tokenizer"],
                      ["train", "run.yaml", "--run", "first"]):
            subprocess.run([settings.lockstep, *words], cwd=work, check=True,
                           stdout=settings.log, stderr=settings.log)

    def config_write(self, row):
        kind, vocab, width, inner, layers, heads, groups = PRESETS[row[0]][:7]
        with open(os.path.join(self.folder.name, "run.yaml"), "w",
                  encoding="utf-8") as file:
            file.write(
                f"model: {FAMILY[kind]}vocab: {vocab}, layers: {layers}, "
                f"width: {width}, heads: {heads}, kv_heads: {groups}, "
                f"feed_forward: {inner}, context: {row[2]}}}\n"
                "tokenizer: {from: tokenizer}\n"
                "data: {train: [text.txt], valid_share: 0, cache: cache, "
                f"sequence: {row[2]}, documents: joined}}\n"
                f"train: {{batch: {row[1]}, steps: 1}}\n"
                "checkpoint: {at_end: false}\n")


class Lockstep:
    """`lockstep train` on a prepared corpus, a new process each time."""

    def __init__(self, settings, row, corpus, options, more=()):
        self.settings, self.row, self.corpus = settings, row, corpus
        self.more = more  # words of the command
        self.tokens, self.step_ms = row[1] * row[2], 0
        self.options, self.runs = options, []

    def measure(self):
        work = self.corpus.folder.name
        run = os.path.join(work, "run")
        shutil.rmtree(run, ignore_errors=True)
        command = [self.settings.lockstep, "train", "run.yaml", "--run", run,
                   "--threads", str(self.settings.threads),
                   f"--set=train.steps={1 + steps_for(self.step_ms)}",
                   *[f"--set={option}" for option in self.options],
                   *self.more]
        watch, began = measure.Watch(), time.time()
        child = measure.spawn(command, self.settings.ahead, cwd=work,
                              stdout=self.settings.log,
                              stderr=self.settings.log)
        code, used, peak = measure.finished(child)
        others = watch.others(used)
        if code:
            sys.exit(f"{' '.join(command)}: exit code {code}; "
                     "see build/peers.log")
        lines = [json.loads(line) for line in measure.lines_of(
            os.path.join(run, "metrics.jsonl"))]
        rows = [line for line in lines if line["kind"] == "step"]
        self.step_ms = measure.spread(
            [line["step_ms"] for line in rows[1:]])["median"]
        self.runs.append({"peak_mb": peak,
                          "first_step_s": rows[0]["time_s"] - began})
        return self.tokens / self.step_ms * 1e3, others

    def end(self):
        return {key: measure.spread([run[key] for run in self.runs])
                for key in self.runs[0]}

    def bench(self):
        """`bench step`: the profile and the bound of this side."""
        preset, batch, length = self.row
        command = [self.settings.lockstep, "bench", "step", "--json",
                   "--model", preset, "--batch", str(batch), "--length",
                   str(length), "--steps", str(steps_for(self.step_ms)),
                   "--threads", str(self.settings.threads)]
        for option in self.options:
            key, value = option.split("=")
            word = {"train.dtype": "--dtype",
                    "numerics.bfloat16": "--product"}[key]
            if word == "--dtype" or self.settings.chooses:
                command += [word, value]
        child = measure.spawn(command, self.settings.ahead, stdout=-1,
                              stderr=self.settings.log)
        text = child.stdout.read()
        code, _, _ = measure.finished(child)
        return None if code else json.loads(text)


class Torch:
    """A process of peer_torch.py that waits between measurements."""

    def __init__(self, settings, row, precision, mode):
        preset, batch, length = row
        # An empty cache: the first step compiles as it does for a new user.
        self.cache = tempfile.TemporaryDirectory()
        self.reused = settings.cache and mode == "compile"
        more = {"PEERS_BEGAN": str(time.monotonic()),
                "TORCHINDUCTOR_CACHE_DIR": settings.cache or self.cache.name}
        self.child = measure.spawn(
            [sys.executable, os.path.join(HERE, "peer_torch.py"), preset,
             precision, mode, str(settings.threads), str(batch), str(length)],
            settings.ahead, stdin=-1, stdout=-1, stderr=settings.log,
            env={**os.environ, **more})
        self.first = self.hear()
        self.tokens, self.step_ms = batch * length, 0
        self.ask(1)  # the second step is not warm yet

    def hear(self):
        line = self.child.stdout.readline()
        if not line:
            sys.exit("PyTorch ended early; see " + os.path.join(
                measure.ROOT, "build", "peers.log"))
        return json.loads(line)

    def ask(self, steps):
        self.child.stdin.write(f"{steps}\n")
        self.child.stdin.flush()
        times = self.hear()["step_ms"]
        self.step_ms = measure.spread(times)["median"]
        return self.step_ms

    def measure(self):
        watch, used = measure.Watch(), measure.used_s(self.child.pid)
        self.ask(steps_for(self.step_ms))
        others = watch.others(measure.used_s(self.child.pid) - used)
        return self.tokens / self.step_ms * 1e3, others

    def end(self):
        self.child.stdin.close()
        last = self.hear()
        measure.finished(self.child)
        self.cache.cleanup()
        if self.reused:
            del self.first["first_step_s"]
        return {**self.first, **last}


class LlmC:
    """train_gpt2 of a checkout, with a random model and random tokens in the
    formats that it reads (its llmc/dataloader.h and train_gpt2.c)."""

    def __init__(self, settings, row):
        self.settings, self.work = settings, tempfile.TemporaryDirectory()
        self.program = os.path.join(settings.llm_c, "train_gpt2")
        self.tokens = row[1] * row[2]
        folder = os.path.join(self.work.name, "dev/data/tinyshakespeare")
        os.makedirs(folder)
        llmc_model(os.path.join(self.work.name, "gpt2_124M.bin"))
        for name in ("tiny_shakespeare_train.bin", "tiny_shakespeare_val.bin"):
            llmc_tokens(os.path.join(folder, name), self.tokens * 64)
        self.child = None

    @staticmethod
    def shape(checkout):
        """(batch, length) of its main, or None."""
        path = os.path.join(checkout, "train_gpt2.c")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        batch = re.search(r"^\s*int B = (\d+);", text, re.M)
        length = re.search(r"^\s*int T = (\d+);", text, re.M)
        return batch and length and (int(batch[1]), int(length[1]))

    def start(self):
        more = {**os.environ, "OMP_NUM_THREADS": str(self.settings.threads)}
        self.child = measure.spawn([self.program], self.settings.ahead,
                                   stdout=-1, cwd=self.work.name, env=more)

    def step_ms(self):
        for line in self.child.stdout:
            took = re.search(r"took ([0-9.]+) ms", line)
            if took:
                return float(took[1])
        return sys.exit(f"{self.program}: ended after fewer than "
                        f"{2 * self.settings.pairs} lines `took ... ms`")

    def measure(self):
        """It cannot be asked to wait, so it is stopped between rounds; the
        step in which it was does not count."""
        if self.child is None:
            self.start()
        os.kill(self.child.pid, signal.SIGCONT)
        self.step_ms()
        watch, used = measure.Watch(), measure.used_s(self.child.pid)
        rate = self.tokens / self.step_ms() * 1e3
        others = watch.others(measure.used_s(self.child.pid) - used)
        os.kill(self.child.pid, signal.SIGSTOP)
        return rate, others

    def end(self):
        self.child.kill()
        _, _, peak = measure.finished(self.child)
        self.work.cleanup()
        return {"peak_mb": peak}


def llmc_model(path):
    """Version 3: float32, vocabulary 50,257 filled up to 50,304."""
    shape = (1024, 50257, 12, 12, 768, 50304)
    width = shape[4]
    block = 12 * width * width + 13 * width
    count = (shape[5] + shape[0]) * width + shape[2] * block + 2 * width
    value = struct.pack("<3f", 0.02, -0.013, 0.007)
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240326, 3, *shape, *[0] * 248))
        left = 4 * count
        while left > 0:
            piece = value[:left] if left < 12 else value * min(
                left // 12, 1 << 18)
            file.write(piece)
            left -= len(piece)


def llmc_tokens(path, count):
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
        file.write(b"".join(struct.pack("<H", i * 7919 % 50257)
                            for i in range(count)))


def steps_for(step_ms):
    """As many steps as fill the least time of a measurement."""
    return max(1, min(20, round(1e3 * SECONDS / step_ms))) if step_ms else 1


def sides_of(settings, name, precision, modes):
    """Name of each side: how it starts; Lockstep's come first."""
    row = ROWS[name]
    corpus = Corpus(settings, row)

    def ours(*options):
        return lambda: Lockstep(settings, row, corpus, options)

    if precision == "llm.c":
        return {"lockstep": ours(), "llm.c": lambda: LlmC(settings, row)}
    sides, kinds = {"lockstep": ours()}, ["float32"]
    if precision == "bfloat16":
        sides = {f"lockstep {product}": ours(
            "train.dtype=bfloat16", f"numerics.bfloat16={product}")
            for product in settings.products}
        kinds = ["bfloat16"] + ([] if settings.quick else ["autocast"])
    for kind in kinds:
        for mode in modes:
            label = f"autocast {mode}" if kind == "autocast" else mode
            sides[label] = lambda k=kind, m=mode: Torch(settings, row, k, m)
    return sides


def compare(settings, what, until):
    """One row of the table: rounds over all sides, and ours to bench."""
    name, precision, modes = what
    sides = {label: start() for label, start in
             sides_of(settings, name, precision, modes).items()}
    rounds, tries = [], 0
    while len(rounds) < settings.pairs and tries < 3 * settings.pairs:
        if len(rounds) >= 1 and time.monotonic() > until:
            break
        tries += 1
        one = {label: side.measure() for label, side in sides.items()}
        loud = max(others for _, others in one.values())
        if settings.strict and loud > settings.load:
            print(f"  {loud} cores of other work: again", file=sys.stderr)
            continue
        rounds.append(one)
        print("  " + ", ".join(f"{label} {rate:.1f}" for label, (rate, _)
                               in one.items())
              + f" tokens/s; {loud} cores of others", file=sys.stderr)
    row = {"row": name, "model": ROWS[name][0], "batch": ROWS[name][1],
           "length": ROWS[name][2], "precision": precision,
           "threads": settings.threads, "rounds": len(rounds), "sides": {}}
    ours = [label for label in sides if label.startswith("lockstep")]
    for label, side in sides.items():
        row["sides"][label] = {
            "tokens_per_s": measure.spread([r[label][0] for r in rounds]),
            "other_cores": [r[label][1] for r in rounds], **side.end()}
    row["loud"] = sum(max(o for _, o in r.values()) > settings.load
                      for r in rounds)
    row["ratios"] = {
        f"{mine} / {theirs}": measure.spread([r[mine][0] / r[theirs][0]
                                              for r in rounds])
        for mine in ours for theirs in sides if theirs not in ours}
    return row, {label: sides[label] for label in ours}


# ---- the command ----

def names(known):
    """Reads a list of names; one that is not known ends with the known."""
    def read(text):
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"{name} is none of {', '.join(known)}")
        return text.split(",")
    return read


def count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def settings_read():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true",
                        help="four rows, no autocast, at most 15 minutes")
    parser.add_argument("--rows", type=names([*ROWS, "llm.c"]),
                        help="of " + ", ".join(ROWS))
    parser.add_argument("--precisions", type=names(PRECISIONS),
                        default=list(PRECISIONS))
    parser.add_argument("--modes", type=names(MODES), default=list(MODES))
    parser.add_argument("--pairs", type=count, default=5, help="rounds (5)")
    parser.add_argument("--minutes", type=float, default=0,
                        help="shared by the rows, each has a round at least")
    parser.add_argument("--products", type=names(PRODUCTS), help="of bfloat16: "
                        "pairs,tiles; both, with --quick the faster one here")
    parser.add_argument("--threads", type=count,
                        default=len(os.sched_getaffinity(0)))
    parser.add_argument("--load", type=float, default=0.15,
                        help="cores of other work that mark a round (0.15)")
    parser.add_argument("--strict", action="store_true",
                        help="repeat marked rounds, up to three times")
    parser.add_argument("--cache", help="directory of compiled code, kept: "
                        "saves time,\nbut first steps of torch.compile are "
                        "not told")
    parser.add_argument("--ahead", action="store_true",
                        help="run before all other work (needs root)")
    parser.add_argument("--out", default=measure.RESULTS)
    parser.add_argument("--name", default="peers", help="of what is stored, "
                        "such as peers-long\n(peers)")
    settings = parser.parse_args()
    settings.lockstep = os.path.abspath(
        os.environ.get("LOCKSTEP") or os.path.join(measure.ROOT, "build",
                                                   "lockstep"))
    fast = "tiles" if "amx_bf16" in measure.machine()["has"] else "pairs"
    settings.products = settings.products or (
        [fast] if settings.quick else list(PRODUCTS))
    settings.llm_c = os.environ.get("LLM_C", "")
    settings.rows = settings.rows or list(QUICK if settings.quick else ROWS)
    if "llm.c" in settings.rows and not settings.llm_c:
        parser.error("--rows: llm.c takes part with LLM_C=CHECKOUT only")
    minutes = settings.minutes or (15 if settings.quick else 1e6)
    settings.until = time.monotonic() + 60 * minutes
    settings.log = open(os.path.join(measure.ROOT, "build", "peers.log"), "a",
                        encoding="utf-8")
    settings.chooses = "--product" in subprocess.run(
        [settings.lockstep, "bench", "step", "--help"], check=True,
        capture_output=True, text=True).stdout
    return settings


def rows_plan(settings):
    plan = []
    for name in settings.rows:
        for precision in settings.precisions if name in ROWS else ():
            if name.endswith("long"):  # two would not fit into 24 GB
                plan += [(name, precision, [mode]) for mode in settings.modes]
            else:
                plan.append((name, precision, settings.modes))
    if settings.llm_c:
        shape = LlmC.shape(settings.llm_c)
        if not shape or not os.access(os.path.join(
                settings.llm_c, "train_gpt2"), os.X_OK):
            sys.exit(f"LLM_C={settings.llm_c}: build train_gpt2 there first")
        ROWS["llm.c"] = ("gpt2-124m", *shape)
        plan.append(("llm.c", "llm.c", []))
    return plan


def store(settings, rows):
    start, result = measure.store(settings.out, settings.name,
                                  "benchmarks/peers.sh", rows)
    pictures.peers_write(start, result)
    return start


def main():
    settings = settings_read()
    plan, rows, benches = rows_plan(settings), [], []
    for i, what in enumerate(plan):
        print(", ".join(what[:2]), file=sys.stderr, flush=True)
        now = time.monotonic()
        share = (settings.until - now) / (len(plan) - i)
        row, ours = compare(settings, what, now + share)
        rows.append(row)
        benches += [(row["sides"][label], side)
                    for label, side in ours.items()]
        start = store(settings, rows)  # an interrupted run keeps its rows
    for found, side in benches:
        if time.monotonic() < settings.until:
            found["bench"] = side.bench()
            store(settings, rows)
    print(start + ".md")


if __name__ == "__main__":
    main()
