#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""search_speed.py - how long the planner takes beside its goals.

    search_speed.py --program build/lockstep [--times 3] [--out FILE.json]
                    [--against PROGRAM]

Each command runs so many times; the fastest one is judged. The seconds of a
whole process are compared, and candidates a second of all its processors. With
--against each search runs with both programs in turns, and must answer the
same; seconds of processors count, as the machine may have other work."""
import argparse
import datetime
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import measure

PRESETS = pathlib.Path(__file__).resolve().parents[1] / "examples/presets"
# what, goal in seconds, preset, arguments
SEARCHES = [
    ("405B on 1,024 GPUs, 32 on lists", 2.0, "llama3_405b",
     ["--ranks", "1024", "--top", "32"]),
    ("DeepSeek-V3 on 2,048 GPUs, 32 on lists", 2.0, "deepseek_v3_671b",
     ["--ranks", "2048", "--top", "32"]),
    ("8B on 8 GPUs", 0.2, "llama3_8b", ["--nodes", "1"])]
RATE = 10000  # candidates a second, of a core
ALL_RANKS = ("131,072 ranks unfolded", 2.0)


def timed(command):
    """Seconds by the clock and of processors, and what is printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    found = subprocess.run(command, capture_output=True, text=True,
                           check=False)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if found.returncode != 0:
        sys.exit(f"{' '.join(command)}: {found.stderr}")
    return (wall, after.ru_utime + after.ru_stime -
            before.ru_utime - before.ru_stime, found.stdout)


def answer(printed):
    """What a search says, but for how long it took."""
    found = json.loads(printed)
    for key in ("seconds", "candidates_per_s"):
        found.pop(key)
    return found


def compared(arguments, search):
    """The least seconds of processors of both programs, in turns."""
    least, said = {}, {}
    for _ in range(arguments.times):
        for program in (arguments.program, arguments.against):
            _, processors, printed = timed([program] + search)
            least[program] = min(processors, least.get(program, processors))
            said[program] = answer(printed)
    if said[arguments.program] != said[arguments.against]:
        sys.exit(f"{' '.join(map(str, search))}: the answers differ")
    return least[arguments.program], least[arguments.against]


def compare(arguments):
    rows = []
    for what, _, preset, more in SEARCHES:
        mine, other = compared(arguments, [
            "search", PRESETS / f"{preset}.yaml", "--machine", "h100",
            "--json"] + more)
        rows.append({"what": what, "processor_s": round(mine, 3),
                     "against_processor_s": round(other, 3)})
        print(f"{what:42} {mine:.3f} s of processors, {other:.3f} s "
              f"before: {mine / other:.3f}")
    return rows


def write(arguments, rows):
    if not arguments.out:
        return
    pathlib.Path(arguments.out).write_text(json.dumps(
        {"date": datetime.date.today().isoformat(),
         "machine": measure.machine(), "load": os.getloadavg()[0],
         "times": arguments.times, "rows": rows}, indent=1) + "\n",
        encoding="utf-8")


def fastest(command, times):
    return min((timed(command) for _ in range(times)), key=lambda run: run[0])


def unfolded(program, times, folder):
    """Seconds of `simulate --unfold` of tensor 8, pipe 16, data 1024."""
    config = pathlib.Path(folder) / "many.yaml"
    config.write_text(
        "model: {family: llama, vocab: 32000, layers: 16, width: 4096, "
        "heads: 32}\ndata: {sequence: 2048}\n"
        "train: {batch: 65536, micro_batch: 1, recompute: [block]}\n"
        "mesh: {tensor: 8, pipe: 16, data: 1024}\n", encoding="utf-8")
    perturb = pathlib.Path(folder) / "slow.json"
    perturb.write_text('{"slow": [{"rank": 3, "factor": 1.5}]}',
                       encoding="utf-8")
    return fastest([program, "simulate", config, "--ranks", "131072",
                    "--machine", "h100", "--as", "megatron", "--perturb",
                    perturb, "--unfold"], times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/lockstep")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--against", help="another program")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if arguments.against:
        write(arguments, compare(arguments))
        return
    rows = []
    for what, goal, preset, more in SEARCHES:
        wall, processors, printed = fastest(
            [arguments.program, "search", PRESETS / f"{preset}.yaml",
             "--machine", "h100", "--json"] + more, arguments.times)
        rows.append({"what": what, "seconds": round(wall, 3), "goal": goal,
                     "processor_s": round(processors, 3),
                     "candidates": json.loads(printed)["candidates"]})
    with tempfile.TemporaryDirectory() as folder:
        wall, processors, _ = unfolded(arguments.program, arguments.times,
                                       folder)
    rows.append({"what": ALL_RANKS[0], "seconds": round(wall, 3),
                 "goal": ALL_RANKS[1], "processor_s": round(processors, 3)})
    for row in rows:
        row["met"] = row["seconds"] < row["goal"]
        print(f"{row['what']:42} {row['seconds']:7.3f} s of "
              f"{row['goal']:.1f}, {row['processor_s']:.2f} s of processors"
              f"{'' if row['met'] else '  missed'}")
        if "candidates" in row:
            row["candidates_per_core_s"] = round(row["candidates"] /
                                                 row["processor_s"])
            print(f"    {row['candidates_per_core_s']} candidates a second of "
                  f"a core, all of the search counted (goal of judging: "
                  f"{RATE})")
    write(arguments, rows)


if __name__ == "__main__":
    main()
