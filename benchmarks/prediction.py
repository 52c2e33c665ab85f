#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""prediction.py - how good `plan --time` is on the machine on which it runs.

    benchmarks/prediction.py [--program build/lockstep] [--out FILE.json]
                             [--profile-out FILE.json]
                             [--seconds 10] [--steps 10] [--slices 8]
                             [--tries 2] [--regret]
                             [--dtype float32] [--recipe NAME] [--judged 8]

Calibrates on three configurations, then trains eight others, which were never
calibrated on, with 1 and 2 ranks. The clock of a machine that others use, too,
wanders within seconds. Each configuration is therefore trained in --slices runs
of --steps steps, each between two sentinels (`calibrate --against`), and the
time of a slice is brought to the pace of the profile: products and other works
follow the pace each to the power that `calibrate` found. Prints mean and
largest error of the median slice and the order (Kendall's tau of all pairs),
and beside each error that of the time that is not brought to that pace.

The host of a virtual machine may move its cores apart for a while: a cache line
then takes 500 ns instead of 110 from one to the other, and two threads take 25%
longer for the same step. Slices in such a while do not count where there are at
least three others (of three times as many, at most), nor those beside which
other processes (or other guests of the host) took more than 3% of the cores.

A configuration is noisy if the middle half of its slices lies more than 8%
apart, or passes through memory are more than 15% slower or faster than the
profile's, or exchanges between cores more than twice as slow or fast. It is repeated, --tries times; if more than two of the eight stay so,
or rounds of the calibration differ by more than 10%, the machine is "noisy" and
nothing is judged.
Exit code 0: within the bars (mean 3%, largest 8%, tau 0.9, regret 2%), or
noisy; 1: outside.

--recipe makes products in fewer bits (numerics.recipe, in bfloat16); all of the
eight with each of several recipes, which commas separate. --judged takes the
first of the eight alone.

--regret also runs search's five best layouts of one model on 2 ranks and five
others, drawn, and compares the first with the best that was measured."""
import argparse
import itertools
import json
import os
import pathlib
import platform
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

QUIET, QUIET_ROWS, QUIET_MEMORY, QUIET_EXCHANGE = 0.08, 0.10, 0.15, 1.0
QUIET_CORES = 0.03
BARS = {"mean": 0.03, "largest": 0.08, "tau": 0.9, "regret": 0.02}
# layers, width, heads, sequence, batch
CALIBRATED = [(4, 128, 4, 64, 16), (2, 256, 4, 128, 8), (6, 192, 6, 96, 12)]
JUDGED = [((3, 160, 5, 64, 16), ""), ((5, 96, 4, 128, 16), ""),
          ((2, 320, 5, 64, 8), ""), ((4, 224, 7, 128, 8), ""),
          ((3, 160, 5, 64, 16), "mesh.data=2"),
          ((4, 192, 4, 128, 16), "mesh.pipe=2 train.micro_batch=2"),
          ((2, 256, 8, 64, 16), "mesh.tensor=2"),
          ((4, 160, 4, 96, 16), "mesh.data=2 zero=fsdp")]


def apart(values):
    return max(values) / min(values) - 1


def said_of(found):
    return ("quiet" if found["noise"] <= 1 else "noisy") + (
        f": slices {100 * found['spread']:.0f}% apart; the pace wandered by "
        f"{100 * found['pace_spread']:.0f}%, around {found['pace']:.2f} of the "
        f"profile's, shared cache {found['cache']:.2f}, memory "
        f"{found['memory']:.2f}, exchange {found['exchange']:.2f}; "
        f"{found['far']} slices left out")


class Others:
    """The share of all cores that others took since it was made: other
    processes, and guests of the same host (steal)."""
    def __init__(self):
        self.began, self.busy, self.own = self.now()

    @staticmethod
    def now():
        try:
            with open("/proc/stat", encoding="ascii") as file:
                ticks = [int(t) for t in file.readline().split()[1:9]]
        except OSError:
            ticks = [0] * 8
        busy = sum(ticks) - sum(ticks[3:5]) # neither idle nor waiting
        own = sum(sum(resource.getrusage(of)[:2]) for of in
                  (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), own

    def share(self):
        now, busy, own = self.now()
        return max((busy - self.busy - own + self.own) /
                   (now - self.began) / os.cpu_count(), 0)


def near(sentinels, others):
    """Whether the cores were the run's, and near each other. An exchange of 0
    seconds took too long to be told."""
    return others <= QUIET_CORES and all(
        s["exchange_s"] > 0 and apart([1, s["exchange"]]) <= QUIET_EXCHANGE
        for s in sentinels)


def causes_of(text):
    """The lines "by cause" of a run: measured and predicted ms."""
    return {name.strip(): [float(measured), float(predicted)]
            for name, measured, predicted in re.findall(
                r"^(?:by cause| {8}) +([a-z -]+): ([0-9.e-]+) ms measured, "
                r"([0-9.e-]+) predicted", text, re.M)}


def call(*words):
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{found.stderr}")
    return found


class Machine:
    def __init__(self, asked, folder):
        self.program, self.folder = folder / "lockstep", folder
        shutil.copy2(asked.program, self.program) # nobody builds it anew
        self.steps = asked.steps
        self.slices = asked.slices
        self.tries = asked.tries
        self.recipes = asked.recipe.split(",")
        self.judged = asked.judged
        self.dtype = asked.dtype if asked.recipe == "none" else "bfloat16"
        self.text()
        self.profile = folder / "machine.json"
        names = [self.config(f"calibrated{i}", sizes, self.recipes[0])
                 for i, sizes in enumerate(CALIBRATED)]
        names += [self.config(f"calibrated-{recipe}", CALIBRATED[0], recipe)
                  for recipe in self.recipes[1:]]
        call(self.program, "calibrate", *names, "--seconds",
             str(asked.seconds), "--out", self.profile)
        found = json.loads(self.profile.read_text())["sentinel"]
        self.noise = max(
            found["rest"] / QUIET_ROWS,
            apart([found["memory_before_s"], found["memory_after_s"]])
            / QUIET_MEMORY)

    def text(self):
        draw = random.Random(1)
        words = ["".join(draw.choices("abdegiklmnoprstu", k=draw.randint(2, 7)))
                 for _ in range(400)]
        with open(self.folder / "text.txt", "w", encoding="utf-8") as file:
            for _ in range(600):
                file.write(" ".join(draw.choices(words, k=60)) + ".\n\n")
        call(self.program, "tokenizer", "train", self.folder / "text.txt",
             "--vocab", "300", "--out", self.folder / "tokenizer.json")

    def config(self, name, sizes, recipe):
        layers, width, heads, sequence, batch = sizes
        path = self.folder / f"{name}.yaml"
        path.write_text(
            f"model: {{family: llama, vocab: 300, layers: {layers}, width: "
            f"{width}, heads: {heads}}}\ntokenizer: {{from: "
            f"{self.folder}/tokenizer.json}}\ndata: {{train: [{self.folder}"
            f"/text.txt], sequence: {sequence}, cache: {self.folder}/cache, "
            f"valid_share: 0}}\ntrain: {{batch: {batch}, steps: {self.steps}, "
            f"dtype: {self.dtype}}}\nnumerics: {{recipe: {recipe}}}\n"
            f"checkpoint: {{at_end: false, minutes: 0}}\n",
            encoding="utf-8")
        return path

    def sentinel(self):
        return json.loads(call(self.program, "calibrate", "--against",
                               self.profile).stdout)

    def follows(self, path, ranks, settings):
        """The share of the predicted step that products have."""
        words = [w for one in settings for w in ("--set", one)]
        causes = json.loads(call(
            self.program, "plan", path, "--ranks", str(ranks), "--machine",
            self.profile, "--time", "--explain", "time", "--json",
            *words).stdout)["explain"]["critical_path_s"]
        return causes["products"] / sum(causes.values())

    def slice(self, path, ranks, settings):
        """Median of a few steps, their prediction, in seconds, and both by
        cause."""
        words = [w for one in settings for w in ("--set", one)]
        run = self.folder / f"run{time.monotonic_ns()}"
        said = call(self.program, "train", path, "--ranks", str(ranks), "--run",
                    run, "--set", f"machine={self.profile}", *words)
        rows = [json.loads(line) for line in
                (run / "metrics.jsonl").read_text().splitlines()]
        rows = [r for r in rows if r["kind"] == "step"][1:]
        return (statistics.median(r["step_ms"] for r in rows) / 1e3,
                rows[-1]["predicted_ms"] / 1e3,
                causes_of(said.stdout + said.stderr))

    def run(self, path, ranks, settings):
        """The step in seconds at the pace of the profile, its prediction, and
        how much the machine wandered: slices of a few steps, each between two
        sentinels."""
        share = self.follows(path, ranks, settings)
        seen, slices, predicted = [self.sentinel()], [], 0
        while len(slices) < 3 * self.slices and sum(
                s["counts"] for s in slices) < self.slices:
            others = Others()
            measured, predicted, causes = self.slice(path, ranks, settings)
            busy = others.share()
            seen.append(self.sentinel())
            slow = statistics.mean(
                share * s["products"] + (1 - share) * s["works"]
                for s in seen[-2:])
            slices.append({"raw": measured, "brought": measured / slow,
                           "others": busy, "causes": causes,
                           "counts": near(seen[-2:], busy)})
        count = [s for s in slices if s["counts"]]
        if len(count) < 3:
            count = slices
        raw = [s["raw"] for s in count]
        brought = [s["brought"] for s in count]
        quarters = statistics.quantiles(brought, n=4)
        found = {"measured_s": statistics.median(brought),
                 "raw_s": statistics.median(raw), "predicted_s": predicted,
                 "pace": statistics.median(s["product"] for s in seen),
                 "memory": statistics.median(s["memory"] for s in seen),
                 "cache": statistics.median(s["cache"] for s in seen),
                 "exchange": statistics.median(s["exchange"] for s in seen),
                 "far": len(slices) - len(count),
                 "others": statistics.median(s["others"] for s in count),
                 "causes_ms": {c: [statistics.median(
                     s["causes"].get(c, [0, 0])[i] for s in count)
                     for i in range(2)] for c in count[0]["causes"]},
                 "pace_spread": apart([s["product"] for s in seen]),
                 "spread": (quarters[2] - quarters[0]) / quarters[1]}
        found["noise"] = max(
            found["spread"] / QUIET, found["others"] / QUIET_CORES,
            apart([1, found["memory"]]) / QUIET_MEMORY,
            0 if found["far"] else
            apart([1, found["exchange"]]) / QUIET_EXCHANGE)
        return found

    def measure(self, path, ranks, settings):
        best = None
        for _ in range(self.tries):
            found = self.run(path, ranks, settings)
            if best is None or found["noise"] < best["noise"]:
                best = found
            if best["noise"] <= 1:
                break
        return best


def kendall(rows):
    pairs = [(a["predicted_s"] - b["predicted_s"])
             * (a["measured_s"] - b["measured_s"])
             for a, b in itertools.combinations(rows, 2)]
    if not pairs:
        return 1
    return (sum(p > 0 for p in pairs) - sum(p < 0 for p in pairs)) / len(pairs)


def judge(machine):
    rows = []
    for recipe, (i, (sizes, settings)) in itertools.product(
            machine.recipes, enumerate(JUDGED[:machine.judged])):
        ranks = 2 if "mesh." in settings else 1
        found = machine.measure(
            machine.config(f"judged{i}-{recipe}", sizes, recipe), ranks,
            settings.split())
        found.update(sizes=sizes, settings=settings, ranks=ranks, recipe=recipe,
                     error=found["predicted_s"] / found["measured_s"] - 1)
        found["raw_error"] = found["predicted_s"] / found["raw_s"] - 1
        rows.append(found)
        print(f"{ranks} rank{'s' if ranks > 1 else ' '} {str(sizes):24} "
              f"{recipe if recipe != 'none' else settings:32} measured {1e3 * found['measured_s']:7.2f} ms, "
              f"predicted {1e3 * found['predicted_s']:7.2f}: "
              f"{100 * found['error']:+6.1f}%, undivided "
              f"{100 * found['raw_error']:+6.1f}%  {said_of(found)}", flush=True)
    errors = [abs(r["error"]) for r in rows]
    return {"rows": rows, "mean": statistics.mean(errors),
            "largest": max(errors), "tau": kendall(rows),
            "noisy": machine.noise > 1 or
                     sum(r["noise"] > 1 for r in rows) > 2}


def layouts(machine, path):
    """Search's five best, and five others that the program accepts."""
    found = json.loads(call(
        machine.program, "search", path, "--ranks", "2", "--machine",
        machine.profile, "--top", "40", "--json").stdout)["best"]
    sets = [[s for s in b["set"] if not s.startswith("numerics.")]
            for b in found]
    return sets[:5], random.Random(2).sample(sets[5:], min(5, len(sets) - 5))


def regret(machine):
    path = machine.config("regret", (4, 192, 4, 128, 16), machine.recipes[0])
    best, others = layouts(machine, path)
    times = [machine.measure(path, 2, s) for s in best + others]
    for settings, found in zip(best + others, times):
        print(f"{1e3 * found['measured_s']:7.2f} ms  {' '.join(settings)}",
              flush=True)
    least = min(t["measured_s"] for t in times)
    return {"regret": times[0]["measured_s"] / least - 1, "rows": times,
            "noisy": sum(t["noise"] > 1 for t in times) > 2}


def verdict(name, value, least=False):
    good = value >= BARS[name] if least else value <= BARS[name]
    return f"{name} {value:.3f} ({'>=' if least else '<='} {BARS[name]}): " \
           f"{'good' if good else 'MISSED'}", good


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default="build/lockstep")
    parser.add_argument("--out")
    parser.add_argument("--profile-out", help="the profile, for a comparison "
                                              "with that of another run")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--slices", type=int, default=8)
    parser.add_argument("--tries", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--recipe", default="none")
    parser.add_argument("--judged", type=int, default=len(JUDGED))
    parser.add_argument("--regret", action="store_true")
    asked = parser.parse_args()
    asked.program = str(pathlib.Path(asked.program).resolve())
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(asked, pathlib.Path(folder))
        found = judge(machine)
        if asked.regret:
            found["layouts"] = regret(machine)
        profile = machine.profile.read_bytes()
    said = [verdict("mean", found["mean"]), verdict("largest", found["largest"]),
            verdict("tau", found["tau"], True)]
    noisy = found["noisy"]
    if asked.regret:
        said.append(verdict("regret", found["layouts"]["regret"]))
        noisy = noisy or found["layouts"]["noisy"]
    found.update(noisy=noisy, calibration_noise=machine.noise,
                 processor=platform.processor() or platform.machine(),
                 date=time.strftime("%Y-%m-%d"),
                 command=" ".join(sys.argv))
    if noisy:
        print("noisy: products or memory were not as fast all the time; not "
              "judged: mean "
              f"{found['mean']:.3f}, largest {found['largest']:.3f}, tau "
              f"{found['tau']:.2f}" + (f", regret "
              f"{found['layouts']['regret']:.3f}" if asked.regret else ""))
    else:
        print("\n".join(text for text, _ in said))
    if asked.profile_out:
        pathlib.Path(asked.profile_out).write_bytes(profile)
    if asked.out:
        pathlib.Path(asked.out).write_text(json.dumps(found, indent=1) + "\n",
                                           encoding="utf-8")
    return 0 if noisy or all(good for _, good in said) else 1


if __name__ == "__main__":
    sys.exit(main())
