# SPDX-License-Identifier: Apache-2.0
"""What this project wants to reach, beside what a comparison found."""

# (precision, peer): least ratio of tokens a second; for the smallest model,
# whose steps are overheads, more.
SPEED = {("float32", "eager"): 1.4, ("float32", "compile"): 1.3,
         ("bfloat16", "eager"): 1.7, ("bfloat16", "compile"): 1.25,
         ("llm.c", "llm.c"): 5.0}
SPEED_SMALL = {"eager": 2.0, "compile": 1.7}
# model: most of the peak memory of PyTorch eager in float32
MEMORY = {"gpt2-124m": 0.7, "llama-58m": 0.4, "llama-10m": 0.35}
BESIDE_STEP_S = 0.4  # start to first step, less a step, of llama-10m
BOUND = 0.85         # of the time that products and bytes need


def line(row, label, what, found, goal, met):
    return (f"| {row['row']} | {row['precision']} | {label} | {what} | "
            f"{found} | {goal} | {'yes' if met else '**no**'} |")


def speed_lines(row, label):
    for name, ratio in row["ratios"].items():
        mine, peer = name.split(" / ")
        goal = SPEED.get((row["precision"], peer))
        if row["model"] == "llama-1m":
            goal = SPEED_SMALL.get(peer)
        if mine == label and goal:
            found = ratio["median"]
            yield line(row, label, f"tokens/s over {peer}", f"{found:.2f}",
                       f"at least {goal}", found >= goal)


def process_lines(row, label, eager_mb):
    side, goal = row["sides"][label], MEMORY.get(row["model"])
    if eager_mb and goal and row["row"] == row["model"]:
        found = side["peak_mb"]["median"] / eager_mb
        yield line(row, label, "peak memory over eager float32",
                   f"{found:.2f}", f"at most {goal}", found <= goal)
    if row["model"] == "llama-10m":
        step = row["batch"] * row["length"] / side["tokens_per_s"]["median"]
        found = side["first_step_s"]["median"] - step
        yield line(row, label, "start to first step, beside the step",
                   f"{found:.2f} s", f"at most {BESIDE_STEP_S} s",
                   found <= BESIDE_STEP_S)
    if (side.get("bench") or {}).get("bound_fraction"):
        found = side["bench"]["bound_fraction"]
        yield line(row, label, "fraction of the bound", f"{found:.2f}",
                   f"at least {BOUND}", found >= BOUND)


def table(rows):
    lines = ["| row | precision | side | figure | found | goal | met |",
             "|---|---|---|---|---|---|---|"]
    eager = {row["row"]: row["sides"]["eager"]["peak_mb"] for row in rows
             if row["precision"] == "float32" and "eager" in row["sides"]}
    for row in rows:
        for label in row["sides"]:
            if label.startswith("lockstep"):
                lines += speed_lines(row, label)
                lines += process_lines(row, label, eager.get(row["row"]))
    return lines
