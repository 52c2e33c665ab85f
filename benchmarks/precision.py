#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses of the ladder (precision.sh), less those of bfloat16.

    python3 benchmarks/precision.py SIZE OUT_DIR RUNGS

RUNGS names a directory of a run on each line, bfloat16 first. Writes
DATE-precision-SIZE.json and .svg.
"""
import datetime
import html
import json
import pathlib
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT = 860, 420, 60, 40, 250
COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b",
           "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#000000", "#aa5500",
           "#0055aa", "#55aa00"]
STYLE = "text{font:12px sans-serif;fill:#222}.title{font-weight:bold}"


def rows_of(run):
    with open(pathlib.Path(run) / "metrics.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def losses_of(run):
    return [r["loss"] for r in rows_of(run) if r.get("kind") == "step"]


def valid_of(run):
    values = [r["val_loss"] for r in rows_of(run)
              if r.get("kind") == "validation"]
    return values[-1] if values else None


def smooth(values, window):
    return [sum(values[max(0, i - window + 1):i + 1]) / min(window, i + 1)
            for i in range(len(values))]


def draw(path, title, series, steps):
    most = max(max(s) for _, s in series)
    least = min(0, min(min(s) for _, s in series))
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - 40

    def place(i, v):
        return (LEFT + wide * i / max(1, steps - 1),
                TOP + high * (most - v) / (most - least or 1))
    parts = []
    for k in range(5):
        v = least + (most - least) * k / 4
        y = place(0, v)[1]
        parts.append(f'<path d="M{LEFT} {y:.1f}h{wide}" stroke="#ddd"/><text '
                     f'x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                     f'{v:.3f}</text>')
    order = sorted(range(len(series)), key=lambda k: -series[k][1][-1])
    for line, k in enumerate(order):
        name, values = series[k]
        colour = COLOURS[k % len(COLOURS)]
        points = " ".join("%.1f,%.1f" % place(i, v)
                          for i, v in enumerate(values))
        y = TOP + 16 * line + 10
        parts.append(f'<polyline points="{points}" fill="none" '
                     f'stroke="{colour}" stroke-width="1.5"/><text '
                     f'x="{WIDTH - RIGHT + 22}" y="{y}">{html.escape(name)} '
                     f'{values[-1]:+.3f}</text><rect x="{WIDTH - RIGHT + 8}" '
                     f'y="{y - 9}" width="10" height="10" fill="{colour}"/>')
    parts.append(f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 8}" '
                 f'text-anchor="middle">step, of {steps}</text>')
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
        f'height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"><style>{STYLE}'
        f'</style><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
        f'<text class="title" x="8" y="20">{html.escape(title)}</text>\n'
        + "\n".join(parts) + "</svg>\n", encoding="utf-8")


def main():
    size, out, rungs = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    names = pathlib.Path(rungs).read_text(encoding="utf-8").split("\n")[:-1]
    base = losses_of("bfloat16")
    window = max(1, len(base) // 10)
    result = {"kind": "precision", "size": size, "steps": len(base), "rungs": []}
    series = []
    for name in names:
        losses = losses_of(name)
        gap = smooth([a - b for a, b in zip(losses, base)], window)
        last = smooth(losses, window)[-1]
        result["rungs"].append({
            "name": name, "loss": last, "gap": gap[-1],
            "valid_loss": valid_of(name),
            "relative_gap": gap[-1] / smooth(base, window)[-1]})
        if name != "bfloat16":
            series.append((name, gap))
    stem = f"{datetime.date.today()}-precision-{size}"
    (out / f"{stem}.json").write_text(json.dumps(result, indent=1) + "\n",
                                      encoding="utf-8")
    draw(out / f"{stem}.svg", f"Llama {size}: training loss less that of "
         f"bfloat16, mean of {window} steps", series, len(base))
    for rung in result["rungs"]:
        print("%-36s loss %.4f  gap %+.4f (%+.2f%%)  valid %s" % (
            rung["name"], rung["loss"], rung["gap"],
            100 * rung["relative_gap"],
            "-" if rung["valid_loss"] is None else
            "%.4f" % rung["valid_loss"]))


main()
