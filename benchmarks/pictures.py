# SPDX-License-Identifier: Apache-2.0
"""Results as a table in Markdown and as bars with their spread in SVG."""
import html

import goals

OURS, THEIRS = "#1f77b4", "#b0b7bf"
WIDTH, LABEL, BAR, GAP = 640, 170, 18, 6
STYLE = ("text{font:12px sans-serif;fill:#222}"
         ".title{font-weight:bold}.note{fill:#666}")


def number(value):
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def bars(path, title, panels):
    """panels: (heading, unit, [(label, ours?, median, least, most)])."""
    parts, y = [], 28
    room = WIDTH - LABEL - 90
    for heading, unit, items in panels:
        most = max(item[4] for item in items)
        parts.append(f'<text class="title" x="8" y="{y + 14}">'
                     f'{html.escape(heading)}</text>')
        y += 22
        for label, ours, median, low, high in items:
            length, middle = median / most * room, y + BAR / 2
            left, right = (LABEL + v / most * room for v in (low, high))
            parts += [
                f'<text x="{LABEL - 8}" y="{middle + 4}" '
                f'text-anchor="end">{html.escape(label)}</text>',
                f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" '
                f'height="{BAR}" fill="{OURS if ours else THEIRS}"/>',
                f'<path d="M{left:.1f} {middle}H{right:.1f}M{left:.1f} '
                f'{middle - 4}v8M{right:.1f} {middle - 4}v8" '
                'stroke="#222" fill="none"/>',
                f'<text x="{max(right, LABEL + length) + 6:.1f}" '
                f'y="{middle + 4}">{number(median)} {unit}</text>']
            y += BAR + GAP
        y += 10
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
                   f'height="{y}" viewBox="0 0 {WIDTH} {y}">'
                   f'<style>{STYLE}</style><rect width="{WIDTH}" height="{y}" '
                   'fill="#fff"/><text class="title" x="8" y="18">'
                   f'{html.escape(title)}</text>\n'
                   + "\n".join(parts) + "</svg>\n")


def heading_of(row):
    return f"{row['model']} ({row['batch']} x {row['length']}), " \
           f"{row['precision']}"


def is_ours(label):
    return label.startswith("lockstep")


def panels_of(rows, key, unit):
    """Peak memory or first step, of every side."""
    out = []
    for row in rows:
        items = []
        for label, side in row["sides"].items():
            value = side.get(key)
            if isinstance(value, dict):
                items.append((label, is_ours(label), value["median"],
                              value["least"], value["most"]))
            elif value:
                items.append((label, is_ours(label), value, value, value))
        if items:
            out.append((heading_of(row), unit, items))
    return out


def speed_panels(rows):
    return [(heading_of(row), "tokens/s", [
        (label, is_ours(label), *(side["tokens_per_s"][k] for k in (
            "median", "least", "most")))
        for label, side in row["sides"].items()]) for row in rows]


def ratio_text(name, ratio):
    product = name.split(" / ")[0].removeprefix("lockstep").strip()
    return (f"{product} **{ratio['median']:.2f}** ({ratio['least']:.2f} to "
            f"{ratio['most']:.2f})").strip()


def speed_table(rows):
    lines = ["| model (batch x length) | precision | side | tokens/s "
             "| ratios: ours over it | rounds (under other load) |",
             "|---|---|---|---|---|---|"]
    for row in rows:
        for label, side in row["sides"].items():
            rate = side["tokens_per_s"]
            ratios = [ratio_text(name, ratio)
                      for name, ratio in row["ratios"].items()
                      if name.endswith(" / " + label)]
            lines.append(
                f"| {row['model']} ({row['batch']} x {row['length']}) | "
                f"{row['precision']} | {label} | {number(rate['median'])} "
                f"({number(rate['least'])} to {number(rate['most'])}) | "
                f"{', '.join(ratios) or '-'} | {row['rounds']} "
                f"({row['loud']}) |")
    return lines


def process_table(rows):
    lines = ["| model (batch x length) | precision | side | peak resident MB "
             "| start to first step | of it beside a step |",
             "|---|---|---|---|---|---|"]
    for row in rows:
        for label, side in row["sides"].items():
            peak, first = side.get("peak_mb"), side.get("first_step_s")
            if is_ours(label):
                peak, first = peak["median"], first["median"]
            step = row["batch"] * row["length"] / side[
                "tokens_per_s"]["median"]
            lines.append(
                f"| {row['model']} ({row['batch']} x {row['length']}) | "
                f"{row['precision']} | {label} | {number(peak)} | "
                + (f"{first:.2f} s | {first - step:.2f} s |" if first
                   else "- | - |"))
    return lines


def bound_table(rows):
    lines = ["| model (batch x length) | precision | side | products GFLOP/s "
             "| bound tokens/s | reached |", "|---|---|---|---|---|---|"]
    for row in rows:
        for label, side in row["sides"].items():
            bench = side.get("bench")
            if bench and "bound_fraction" in bench:
                lines.append(
                    f"| {row['model']} ({row['batch']} x {row['length']}) | "
                    f"{row['precision']} | {label} | "
                    f"{bench['product_gflops']:.0f} | "
                    f"{number(bench['bound_tokens_per_s'])} | "
                    f"{100 * bench['bound_fraction']:.0f}% |")
    return lines


def peers_write(start, result):
    rows = result["rows"]
    name = start.rsplit("/", 1)[1]
    torch = {side["torch"] for row in rows for side in row["sides"].values()
             if "torch" in side}
    pages = {"speed": speed_panels(rows),
             "memory": panels_of(rows, "peak_mb", "MB"),
             "first-step": panels_of(rows, "first_step_s", "s")}
    titles = {"speed": "Training, tokens a second (more is better)",
              "memory": "Peak resident memory (less is better)",
              "first-step": "Start to first finished step (less is better)"}
    lines = [f"# Training beside other programs, {result['date']}", "",
             f"{result['cpu']}, {result['cores']} cores "
             f"({', '.join(result['has'])}); PyTorch "
             f"{', '.join(sorted(torch)) or '-'}; `{result['command']}`. "
             "Medians of rounds, in brackets least and most; ratios are taken "
             "inside a round. bfloat16 of PyTorch is the whole model in "
             "bfloat16 (no float32 weights); Lockstep's keeps float32 "
             "weights, sums and statistics.", ""]
    for page, panels in pages.items():
        if panels:
            bars(f"{start}-{page}.svg", titles[page], panels)
    lines += ["## Speed", "", f"![]({name}-speed.svg)", "", *speed_table(rows)]
    lines += ["", "## Memory and first step", "", f"![]({name}-memory.svg)",
              "", f"![]({name}-first-step.svg)", "", *process_table(rows)]
    lines += ["", "## Beside the bound of the products", "",
              *bound_table(rows), "", "## Beside the goals", "",
              *goals.table(rows)]
    with open(start + ".md", "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def generation_write(start, result):
    name = start.rsplit("/", 1)[1]
    panels, lines = [], [
        f"# Generation beside transformers, {result['date']}", "",
        f"{result['cpu']}, {result['cores']} cores; one sequence, key-value "
        f"cache; `{result['command']}`. Medians of rounds, in brackets least "
        "and most; the bound is measured bandwidth over the bytes of the "
        "weights.", "", f"![]({name}.svg)", "",
        "| model | side | tokens/s | ours over theirs | weights MB "
        "| bound tokens/s | of the bound | peak resident MB |",
        "|---|---|---|---|---|---|---|---|"]
    for row in result["rows"]:
        items = []
        for label, side in row["sides"].items():
            rate, ratio = side["tokens_per_s"], row["ratios"].get(label)
            items.append((label, is_ours(label), rate["median"],
                          rate["least"], rate["most"]))
            lines.append(
                f"| {row['model']} | {label} | {number(rate['median'])} "
                f"({number(rate['least'])} to {number(rate['most'])}) | "
                + (ratio_text(" / ", ratio) if ratio else "-")
                + f" | {number(side['weight_mb'])} | "
                f"{number(side['bound_tokens_per_s'])} | "
                f"{100 * side['bound_fraction']:.0f}% | "
                f"{number(side['peak_mb'])} |")
        panels.append((f"{row['model']}, memory "
                       f"{row['bandwidth_gb_s']:.1f} GB/s", "tokens/s", items))
    bars(start + ".svg", "Generation, tokens a second (more is better)",
         panels)
    with open(start + ".md", "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
