#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the positive numbers of every narrow format: docs/pictures/formats.svg.

    python3 tools/draw_formats.py
"""
import math
import pathlib

OUT = pathlib.Path(__file__).parent.parent / "docs" / "pictures" / "formats.svg"
WIDTH, LEFT, RIGHT, ROW = 900, 200, 20, 34
LEAST, MOST = -20, 17  # exponents of two on the axis
STYLE = "text{font:12px sans-serif;fill:#222}.s{fill:#666}"


def floats(mantissa, least, count):
    """Positive values of codes 1 .. count."""
    for code in range(1, count + 1):
        above, low = code >> mantissa, code % (1 << mantissa)
        if above:
            yield 2.0 ** (least + above - 1) * (1 + low / 2 ** mantissa)
        else:
            yield 2.0 ** least * low / 2 ** mantissa


FORMATS = [
    ("e5m2", "8 bits, to 57,344", floats(2, -14, 0x7B)),
    ("e4m3", "8 bits, to 448", floats(3, -6, 0x7E)),
    ("e4m3b11", "8 bits, to 30", floats(3, -10, 0x7F)),
    ("e5m6", "12 bits, to 65,024", floats(6, -14, 0x7BF)),
    ("int8", "8 bits, to 127", (float(i) for i in range(1, 128))),
    ("e2m1", "4 bits, to 6", floats(1, 0, 7)),
    ("e3m0", "4 bits, to 16", floats(0, -2, 7)),
    ("ternary", "2 bits", iter([1.0])),
    ("e8m0", "scales, 2^±127", (2.0 ** i for i in range(-127, 128))),
]


def place(value):
    return LEFT + (math.log2(value) - LEAST) / (MOST - LEAST) * (
        WIDTH - LEFT - RIGHT)


def main():
    parts, y = [], 34
    height = 34 + ROW * len(FORMATS) + 24
    for k in range(LEAST, MOST + 1, 4):
        x = place(2.0 ** k)
        parts.append(f'<path d="M{x:.1f} 26V{height - 22}" stroke="#eee"/>'
                     f'<text class="s" x="{x:.1f}" y="{height - 6}" '
                     f'text-anchor="middle">2^{k}</text>')
    for name, about, values in FORMATS:
        ticks = "".join(f"M{place(v):.1f} {y}v18" for v in values
                        if 2.0 ** LEAST <= v <= 2.0 ** MOST)
        parts.append(f'<text x="8" y="{y + 13}">{name}</text>'
                     f'<text class="s" x="70" y="{y + 13}">{about}</text>'
                     f'<path d="{ticks}" stroke="#1f77b4" '
                     'stroke-width="0.7"/>')
        y += ROW
    OUT.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
        f'height="{height}" viewBox="0 0 {WIDTH} {height}"><style>{STYLE}'
        f'</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        '<text x="8" y="18">Positive numbers of each format: a line for each, '
        'by their logarithm</text>\n' + "\n".join(parts) + "</svg>\n",
        encoding="utf-8")


main()
