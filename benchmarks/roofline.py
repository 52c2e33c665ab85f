#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""roofline.py - the layers of a GPT block on a machine's roofline.

    benchmarks/roofline.py [--program build/lockstep] [--machine a100-80]
                           [--width 6144] [--tokens 2048] [--tensor 8] OUT.svg

Each point is one layer of one of the tensor ranks, by FLOP a byte and the FLOP
a second that both roofs allow: the dashed ones of the datasheet, the others of
the machine's constants."""
import argparse
import json
import math
import subprocess

WIDTH, HEIGHT, LEFT, TOP = 760, 420, 70, 40
X, Y = (0.1, 3000), (1e10, 1e15)


def constants(program, machine):
    found = subprocess.run([program, "machines", "--json"], check=True,
                           capture_output=True, text=True)
    for each in json.loads(found.stdout)["machines"]:
        if each["name"] == machine:
            return {k: v["value"] for k, v in each["constants"].items()}
    raise SystemExit(f"no machine {machine}")


def product(name, m, n, k):
    return name, 2 * m * n * k, 2 * (m * n + m * k + n * k)


def layers(h, m, t):
    return [product("qkv", m, 3 * h // t, h),
            product("attention out", m, h, h // t),
            product("up", m, 4 * h // t, h),
            product("down", m, h, 4 * h // t),
            ("attention, fused", 4 * m * (m / 2) * h / t, 2 * 4 * m * h / t),
            ("norm", 8 * m * h / t, 2 * 2 * m * h / t),
            ("gelu", 20 * m * 4 * h / t, 2 * 2 * m * 4 * h / t),
            ("residual", m * h / t, 2 * 3 * m * h / t),
            product("product of 1 token", 1, 4 * h // t, h)]


def place(x, y):
    def part(value, ends):
        return ((math.log(value) - math.log(ends[0]))
                / (math.log(ends[1]) - math.log(ends[0])))
    return (LEFT + part(x, X) * (WIDTH - LEFT - 30),
            HEIGHT - 50 - part(y, Y) * (HEIGHT - 50 - TOP))


def roof(rate, peak, style):
    ends = [(X[0], X[0] * rate), (peak / rate, peak), (X[1], peak)]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in
                      (place(*end) for end in ends))
    return f'<polyline points="{points}" fill="none" {style}/>'


def axes():
    parts = []
    for power in range(-1, 4):
        x, y = place(max(10.0 ** power, X[0]), Y[0])
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" '
                     f'y2="{y:.1f}" stroke="#eee"/><text x="{x:.1f}" '
                     f'y="{y + 18:.1f}" text-anchor="middle">'
                     f'{10.0 ** power:g}</text>')
    for power in range(10, 16):
        x, y = place(X[0], 10.0 ** power)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 30}" '
                     f'y2="{y:.1f}" stroke="#eee"/><text x="{x - 8:.1f}" '
                     f'y="{y + 4:.1f}" text-anchor="end">'
                     f'{10.0 ** (power - 12):g}</text>')
    return parts


def draw(asked, c):
    peak, rate = c["peak_16"], c["memory_rate"]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} '
             f'{HEIGHT}" font-family="sans-serif" font-size="11">',
             '<rect width="100%" height="100%" fill="#fff"/>',
             f'<text x="{LEFT}" y="22" font-size="14">{asked.machine}: a block '
             f'of width {asked.width}, {asked.tokens} tokens, tensor '
             f'{asked.tensor}</text>', *axes(),
             roof(rate, peak, 'stroke="#999" stroke-dasharray="5 4"'),
             roof(rate * c["memory"], peak * c["gemm"],
                  'stroke="#1f77b4" stroke-width="2"')]
    limited = 0  # by the peak: their names stand under each other
    for name, flops, moved in layers(asked.width, asked.tokens, asked.tensor):
        x = flops / moved
        y = min(x * rate * c["memory"], peak * c["gemm"])
        left, top = place(x, y)
        high = x * rate * c["memory"] > peak * c["gemm"]
        limited += high
        below = top + 8 + 13 * limited if high else top + 14
        parts.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="4" '
                     f'fill="#d62728"/><text x="{left + 8:.1f}" '
                     f'y="{below:.1f}">{name}</text>')
    parts += [f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 10}" '
              'text-anchor="middle">FLOP a byte</text>',
              f'<text x="16" y="{HEIGHT / 2:.0f}" text-anchor="middle" '
              f'transform="rotate(-90 16 {HEIGHT / 2:.0f})">TFLOP/s</text>',
              "</svg>"]
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default="build/lockstep")
    parser.add_argument("--machine", default="a100-80")
    parser.add_argument("--width", type=int, default=6144)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--tensor", type=int, default=8)
    parser.add_argument("out")
    asked = parser.parse_args()
    with open(asked.out, "w", encoding="utf-8") as file:
        file.write(draw(asked, constants(asked.program, asked.machine)))


if __name__ == "__main__":
    main()
