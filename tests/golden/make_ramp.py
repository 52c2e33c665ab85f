#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes training/ramp.json: the batches of 200 steps of seven ramps.

    python3 tests/golden/make_ramp.py

The batch of each step follows from the samples that were consumed before it, as
megatron.core.num_microbatches_calculator says it for --rampup-batch-size START
INCREMENT SAMPLES: SAMPLES are cut into as many equal parts as there are
increments; the batch is START and as many INCREMENTs as parts have been consumed,
and the last batch as soon as all SAMPLES have been.
"""
import json
import pathlib

STEPS = 200
# START, INCREMENT, SAMPLES, the last batch
RAMPS = [(16, 16, 600, 64), (8, 8, 1, 80), (2, 2, 1000, 40), (3, 1, 7, 12),
         (4, 1, 100, 4), (32, 16, 5000, 1024), (5, 3, 333, 50)]


class Calculator:
    """Keeps a global batch up to date with consumed samples."""

    def __init__(self, start, increment, samples, last):
        self.start, self.increment = start, increment
        self.samples, self.last = samples, last
        rises = (last - start) // increment
        self.part = samples / rises if rises else 0.0
        self.consumed = 0

    def next(self):
        """The batch of the next step, which is then consumed."""
        if self.consumed > self.samples or not self.part:
            batch = self.last
        else:
            batch = self.start + int(self.consumed / self.part) * self.increment
        self.consumed += batch
        return batch


rows = []
for ramp in RAMPS:
    calculator = Calculator(*ramp)
    rows.append({"rows": list(ramp[:3]), "last": ramp[3],
                 "batches": [calculator.next() for _ in range(STEPS)]})
path = pathlib.Path(__file__).parent / "training" / "ramp.json"
path.write_text(json.dumps(rows) + "\n")
for row in rows:
    print(row["rows"], row["last"], row["batches"][:12])
