# SPDX-License-Identifier: Apache-2.0
"""Training steps of mixtures of experts by Lockstep and by transformers, in
turns; and of two ranks that divide the experts beside one with two threads.

    make build/lockstep
    PEERS_PYTHON=DIR/bin/python python3 benchmarks/mixtures.py
        [--models NAME,...] [--precisions NAME,...] [--ranks] [--rounds N]

PEERS_PYTHON: the Python that has torch and transformers. Same model, batch,
precision and threads; no balance loss on either side. In each round every side
is measured alone, one after the other, while the others wait; a ratio is taken
inside a round, and the table shows medians. transformers takes part with each
of its ways to compute experts that work here, eager, and with the fastest of
them compiled. Ours is `lockstep train` on a prepared corpus, data and logging
included. Stored in benchmarks/results.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import measure

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH, LENGTH = 4, 256
MODELS = {
    "mixtral-60m": {"family": "mixtral", "vocab": 8192, "width": 512,
                    "layers": 6, "heads": 8, "kv_heads": 4, "inner": 640,
                    "experts": 8, "top_k": 2},
    "olmoe-60m": {"family": "olmoe", "vocab": 8192, "width": 512, "layers": 4,
                  "heads": 8, "kv_heads": 8, "inner": 128, "experts": 64,
                  "top_k": 8}}
FAST = "tiles" if "amx_bf16" in measure.machine()["has"] else "pairs"
OURS = {"float32": {"lockstep": []},
        "bfloat16": {f"lockstep, {FAST}": [f"numerics.bfloat16={FAST}"]}}
EXPERTS = ("eager", "grouped_mm")
GOALS = {"eager": 2.0, "compile": 1.5, "ranks": 0.85}


def corpus_of(settings, name):
    """peers.Corpus with the model of that name."""
    import peers
    shape = MODELS[name]

    class Corpus(peers.Corpus):
        def config_write(self, row):
            with open(os.path.join(self.folder.name, "run.yaml"), "w",
                      encoding="utf-8") as file:
                file.write(
                    f"model: {{family: {shape['family']}, tied: false, vocab: "
                    f"{shape['vocab']}, layers: {shape['layers']}, width: "
                    f"{shape['width']}, heads: {shape['heads']}, kv_heads: "
                    f"{shape['kv_heads']}, feed_forward: {shape['inner']}, "
                    f"context: {LENGTH}}}\n"
                    f"moe: {{experts: {shape['experts']}, top_k: "
                    f"{shape['top_k']}, balance_loss: 0}}\n"
                    "tokenizer: {from: tokenizer}\n"
                    "data: {train: [text.txt], valid_share: 0, cache: cache, "
                    f"sequence: {LENGTH}, documents: joined}}\n"
                    f"train: {{batch: {BATCH}, steps: 1}}\n"
                    "checkpoint: {at_end: false}\n")

    return Corpus(settings, (name, BATCH, LENGTH))


class Transformers:
    """A process of peer_transformers.py that waits between measurements."""

    def __init__(self, settings, name, precision, mode, experts):
        import peers
        self.cache = tempfile.TemporaryDirectory()
        self.tokens, self.steps_for = BATCH * LENGTH, peers.steps_for
        self.child = measure.spawn(
            [settings.python, os.path.join(HERE, "peer_transformers.py"),
             name, precision, mode, experts, str(settings.threads),
             str(BATCH), str(LENGTH)], stdin=-1, stdout=-1,
            stderr=settings.log,
            env={**os.environ, "PEERS_BEGAN": str(time.monotonic()),
                 "TORCHINDUCTOR_CACHE_DIR": self.cache.name})
        self.first = self.hear()
        self.step_ms = 0
        self.ask(1)

    def hear(self):
        line = self.child.stdout.readline()
        if not line:
            sys.exit("transformers ended early; see build/mixtures.log")
        return json.loads(line)

    def ask(self, steps):
        self.child.stdin.write(f"{steps}\n")
        self.child.stdin.flush()
        self.step_ms = statistics.median(self.hear()["step_ms"])

    def measure(self):
        watch, used = measure.Watch(), measure.used_s(self.child.pid)
        self.ask(self.steps_for(self.step_ms))
        others = watch.others(measure.used_s(self.child.pid) - used)
        return self.tokens / self.step_ms * 1e3, others

    def end(self):
        self.child.stdin.close()
        last = self.hear()
        measure.finished(self.child)
        self.cache.cleanup()
        return {**self.first, **last}


def turns(sides, rounds):
    """Tokens a second of each side in each round, and cores of other work."""
    return [{label: side.measure() for label, side in sides.items()}
            for _ in range(rounds)]


def ratios(rounds, mine, theirs):
    return measure.spread([r[mine][0] / r[theirs][0] for r in rounds])


def against_transformers(settings, name, precision):
    """One row: our products against each way of transformers."""
    import peers
    corpus = corpus_of(settings, name)
    ours = {label: peers.Lockstep(settings, (name, BATCH, LENGTH), corpus,
                                  [f"train.dtype={precision}", *more])
            for label, more in OURS[precision].items()}
    sides = dict(ours)
    for experts in EXPERTS:
        sides[f"eager, {experts}"] = Transformers(settings, name, precision,
                                                  "eager", experts)
    fastest = min(EXPERTS, key=lambda e: sides[f"eager, {e}"].step_ms)
    sides["compile"] = Transformers(settings, name, precision, "compile",
                                    fastest)
    rounds = turns(sides, settings.rounds)
    rows = {"model": name, "precision": precision, "batch": BATCH,
            "length": LENGTH, "threads": settings.threads,
            "fastest": f"eager, {fastest}", "compiled": fastest,
            "tokens_per_s": {label: measure.spread([r[label][0]
                                                    for r in rounds])
                             for label in sides},
            "others": max(r[label][1] for r in rounds for label in sides),
            "ratios": {}}
    for mine in ours:
        for mode, theirs in (("eager", f"eager, {fastest}"),
                             ("compile", "compile")):
            found = ratios(rounds, mine, theirs)
            rows["ratios"][f"{mine} / {theirs}"] = {
                **found, "goal": GOALS[mode]}
            print(f"{name:12} {precision:8} {mine:15} / {theirs:18} "
                  f"{found['median']:5.2f} [{found['least']:.2f}, "
                  f"{found['most']:.2f}]  goal {GOALS[mode]}", flush=True)
    rows["ends"] = {label: side.end() for label, side in sides.items()}
    return rows


def uneven(settings, corpus, name):
    """Rows of the rank that has more of them over the mean, of blocks that all
    wait for each other: what two ranks cannot share."""
    experts = MODELS[name]["experts"]
    work = corpus.folder.name
    subprocess.run(
        [settings.lockstep, "train", "run.yaml", "--run", "counted",
         "--set=train.steps=1", "--set=observe.layers=1"], cwd=work,
        check=True, stdout=settings.log, stderr=settings.log)
    rows = [json.loads(line) for line in measure.lines_of(
        os.path.join(work, "counted", "layers.jsonl"))]
    counts = [block["tokens"] for block in rows[0]["experts"]]
    halves = [(sum(c[:experts // 2]), sum(c)) for c in counts]
    return statistics.mean(2 * max(first, both - first) / both
                           for first, both in halves)


def ranks_beside_threads(settings, name, precision):
    """Two ranks of one thread that divide the experts; one of two threads. The
    routers stay as they were drawn."""
    import peers
    corpus = corpus_of(settings, name)
    row = (name, BATCH, LENGTH)
    options = [f"train.dtype={precision}", "optimizer.lr=1e-7"]
    alone = argparse.Namespace(**{**vars(settings), "threads": 2})
    sides = {"two threads": peers.Lockstep(alone, row, corpus, options)}
    alone = argparse.Namespace(**{**vars(settings), "threads": 1})
    sides["two ranks"] = peers.Lockstep(
        alone, row, corpus, [*options, "mesh.expert=2"],
        more=["--ranks", "2"])
    rounds = turns(sides, settings.rounds)
    found = ratios(rounds, "two ranks", "two threads")
    print(f"{name:12} {precision:8} mesh.expert=2 / two threads "
          f"{found['median']:5.2f} [{found['least']:.2f}, "
          f"{found['most']:.2f}]  goal {GOALS['ranks']}", flush=True)
    return {"model": name, "precision": precision, "ratio": found,
            "rows_of_busier_rank": uneven(settings, corpus, name),
            "goal": GOALS["ranks"],
            "tokens_per_s": {label: measure.spread([r[label][0]
                                                    for r in rounds])
                             for label in sides}}


def settings_read():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precisions", default=",".join(OURS))
    parser.add_argument("--ranks", action="store_true",
                        help="compare two ranks with two threads instead")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default=measure.RESULTS)
    settings = parser.parse_args()
    settings.threads = len(os.sched_getaffinity(0))
    settings.python = os.environ.get("PEERS_PYTHON", sys.executable)
    settings.lockstep = os.path.abspath(
        os.environ.get("LOCKSTEP") or os.path.join(measure.ROOT, "build",
                                                   "lockstep"))
    settings.ahead = False
    settings.log = open(os.path.join(measure.ROOT, "build", "mixtures.log"),
                        "a", encoding="utf-8")
    return settings


def main():
    settings = settings_read()
    compare = ranks_beside_threads if settings.ranks else against_transformers
    kind = "mixtures-ranks" if settings.ranks else "mixtures"
    path = os.path.join(settings.out, measure.file_start() + kind + ".json")
    rows = []
    if os.path.exists(path):  # a call of the same day that made other rows
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    for name in settings.models.split(","):
        for precision in settings.precisions.split(","):
            row = compare(settings, name, precision)
            rows = [r for r in rows if (r["model"], r["precision"]) !=
                    (name, precision)] + [row]
            measure.store(settings.out, kind, "benchmarks/mixtures.py", rows)
    print(path)


if __name__ == "__main__":
    main()
