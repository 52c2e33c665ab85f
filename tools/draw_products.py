#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the blocks of both operands of each product: docs/pictures/products.svg.

    python3 tools/draw_products.py

A small square stands for a few elements. What shares a scale has one outline
and one shade; an arrow runs along the dimension that the product sums.
"""
import pathlib

OUT = pathlib.Path(__file__).parent.parent / "docs" / "pictures" / "products.svg"
CELL, CELLS, BLOCK = 10, 8, 4
SIDE = CELL * CELLS
LEFT, TOP, COLUMN, LINE = 150, 56, 250, 128
STYLE = ("text{font:12px sans-serif;fill:#222}.s{fill:#666}.h{font-weight:bold}"
         ".b{stroke:#345;stroke-width:1}.a{stroke:#b00;stroke-width:2;fill:none}")
SHADES = {"weights": ("#cfe0f3", "#a9c7e8"), "activations": ("#d9ecd0", "#b4d8a2"),
          "gradients": ("#f7ddc4", "#efbf8f")}

# What an operand's blocks are: "strip" along the sum, or "square".
RECIPES = [
    ("mxfp8, mxfp4", "strips of 32 along the sum", {}),
    ("fp8-tiles", "strips of 128, weights 128 x 128", {"weights": "square"}),
    ("nvfp4", "strips of 16, weights 16 x 16", {"weights": "square"}),
]
# Name, meaning, and of both operands: name, role, rows, columns, whether the
# sum runs along a row.
PRODUCTS = [
    ("y = x Wᵀ", "forward", [("x", "activations", "tokens", "in", True),
                             ("W", "weights", "out", "in", True)]),
    ("dx = dy W", "dgrad", [("dy", "gradients", "tokens", "out", True),
                            ("W", "weights", "out", "in", False)]),
    ("dW = dyᵀ x", "wgrad", [("dy", "gradients", "tokens", "out", False),
                             ("x", "activations", "tokens", "in", False)]),
]


def operand(x, y, name, role, rows, columns, along_row, shape):
    high = BLOCK if shape == "square" or not along_row else 1
    wide = BLOCK if shape == "square" or along_row else 1
    parts = []
    for i in range(0, CELLS, high):
        for j in range(0, CELLS, wide):
            shade = SHADES[role][(i // high + j // wide) % 2]
            parts.append(f'<rect class="b" x="{x + j * CELL}" '
                         f'y="{y + i * CELL}" width="{wide * CELL}" '
                         f'height="{high * CELL}" fill="{shade}"/>')
    if along_row:
        parts.append(f'<path class="a" d="M{x} {y - 5}h{SIDE - 3}l-5 -3m5 3l-5 3"/>')
    else:
        parts.append(f'<path class="a" d="M{x - 5} {y}v{SIDE - 3}l-3 -5m3 5l3 -5"/>')
    parts.append(f'<text x="{x}" y="{y + SIDE + 14}">{name} '
                 f'<tspan class="s">{rows} x {columns}</tspan></text>')
    return "".join(parts)


def main():
    wide = LEFT + COLUMN * len(RECIPES) + 10
    high = TOP + LINE * len(PRODUCTS) + 4
    parts = []
    for c, (recipe, said, shapes) in enumerate(RECIPES):
        x = LEFT + c * COLUMN
        parts.append(f'<text class="h" x="{x}" y="20">{recipe}</text>'
                     f'<text class="s" x="{x}" y="36">{said}</text>')
        for r, (_, _, operands) in enumerate(PRODUCTS):
            for k, (name, role, rows, columns, along_row) in enumerate(operands):
                parts.append(operand(x + k * (SIDE + 32), TOP + r * LINE, name,
                                     role, rows, columns, along_row,
                                     shapes.get(role, "strip")))
    for r, (product, meaning, _) in enumerate(PRODUCTS):
        y = TOP + r * LINE + SIDE / 2
        parts.append(f'<text class="h" x="10" y="{y:.0f}">{product}</text>'
                     f'<text class="s" x="10" y="{y + 16:.0f}">{meaning}</text>')
    OUT.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
        f'viewBox="0 0 {wide} {high}"><style>{STYLE}</style>'
        f'<rect width="{wide}" height="{high}" fill="#fff"/>\n'
        + "\n".join(parts) + "\n</svg>\n", encoding="utf-8")


main()
