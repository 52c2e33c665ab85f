#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes training/<name>/<optimizer>.json: 20 steps in float64 of the models
and tokens of make_training.py under the optimizers that see whole matrices.

    python3 tests/golden/make_whole.py [OPTIMIZER...]

Rows as in training.json: learning rate, loss and gradient norm of each step.

    muon, muon_rms  torch.optim.Muon on the matrices of blocks, one for each
                    tensor of the file, with float64 where it says bfloat16;
                    AdamW, written out in make_training.py, on the rest
    adafactor       torch.optim.Adafactor on everything
    soap            the algorithm of arXiv:2409.11321, written here in NumPy, on
                    the matrices of blocks; AdamW on the rest
"""
import json
import math
import pathlib
import sys

import numpy
import torch

import make_training
import oracle

HERE = pathlib.Path(__file__).parent
SETTINGS = make_training.SETTINGS
CUT = 1e-9  # of the largest eigenvalue: less counts as zero
# peak learning rate, and what the optimizer has beside
OPTIMIZERS = {
    "muon": (0.02, {"momentum": 0.95, "ns_steps": 5, "adjust": "original"}),
    "muon_rms": (3e-3, {"momentum": 0.9, "ns_steps": 4,
                        "adjust": "match_rms_adamw"}),
    "adafactor": (0.02, {"least_scale": 1e-3, "largest": 1.0,
                         "beta2_decay": -0.8}),
    "soap": (3e-3, {"frequency": 3}),
}


class Float64:
    """The module torch, but for one name."""
    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


class Soap:
    """One matrix. State of the eigenbases only; no code of the authors'."""

    def __init__(self, frequency):
        self.frequency, self.t = frequency, 0

    @staticmethod
    def zeros(q, rows):
        """Columns `rows` of q span what a matrix does not see, so any basis of
        that is one. The one taken here is of the projection P on it alone: the
        first unit vector e whose P e is at least sqrt(1/2) times as long as
        the longest; then the same of what is orthogonal to P e."""
        rest = q[:, rows] @ q[:, rows].T
        for k in rows:
            square = numpy.diag(rest)
            at = int(numpy.argmax(square >= square.max() / 2))
            q[:, k] = rest[:, at] / numpy.sqrt(rest[:, at] @ rest[:, at])
            rest = rest - numpy.outer(q[:, k], q[:, k])
        assert abs(q.T @ q - numpy.eye(len(q))).max() < 1e-12
        return q

    def basis(self, matrix):
        """Columns by falling eigenvalues."""
        values, q = numpy.linalg.eigh(matrix)
        values, q = values[::-1], q[:, ::-1].copy()
        return self.zeros(q, numpy.flatnonzero(~(values > CUT * values[0])))

    def turn(self, side, covariance):
        """One power iteration, columns by falling estimates."""
        power = covariance @ self.q[side]
        estimate = (self.q[side] * power).sum(0)
        estimate[estimate <= CUT * estimate.max()] = 0
        order = numpy.argsort(-estimate, kind="stable")
        self.v = numpy.take(self.v, order, axis=side)
        q, r = numpy.linalg.qr(power[:, order])
        left = abs(numpy.diag(r))
        self.q[side] = self.zeros(q, numpy.flatnonzero(
            ~(left > CUT * left.max())))

    def step(self, w, g, rate, decay):
        s, b1, b2 = SETTINGS, SETTINGS["beta1"], SETTINGS["beta2"]
        pair = [g @ g.T, g.T @ g]
        if self.t == 0:
            self.c = [(1 - b2) * c for c in pair]
            self.q = [self.basis(c) for c in self.c]
            self.m, self.v = numpy.zeros_like(g), numpy.zeros_like(g)
            self.t = 1
            return w
        t = self.t
        turned = self.q[0].T @ g @ self.q[1]
        self.m = b1 * self.m + (1 - b1) * g
        self.v = b2 * self.v + (1 - b2) * turned ** 2
        root = numpy.sqrt(self.v / (1 - b2 ** t)) + s["epsilon"]
        inner = (self.q[0].T @ self.m @ self.q[1]) / (1 - b1 ** t) / root
        w = w * (1 - rate * decay) - rate * (
            self.q[0] @ inner @ self.q[1].T)
        self.c = [b2 * c + (1 - b2) * n for c, n in zip(self.c, pair)]
        if t % self.frequency == 0:
            for side in range(2):
                self.turn(side, self.c[side])
        self.t += 1
        return w


def rate_of(step, peak):
    return make_training.rate_of(step) * peak / SETTINGS["lr"]


def is_inner(name, p):
    return p.dim() == 2 and (".layers." in name or ".h." in name
                             or name.startswith("h."))


def library(kind, options, params):
    if kind == "adafactor":
        return torch.optim.Adafactor(
            [{"params": [p for p in params.values() if p.dim() == 2],
              "weight_decay": SETTINGS["weight_decay"]},
             {"params": [p for p in params.values() if p.dim() != 2],
              "weight_decay": 0.0}],
            lr=0.0, beta2_decay=options["beta2_decay"],
            eps=(SETTINGS["epsilon"], options["least_scale"]),
            d=options["largest"], foreach=False)
    torch.optim._muon.torch = Float64()
    return torch.optim.Muon(
        list(params.values()), lr=0.0,
        weight_decay=SETTINGS["weight_decay"], momentum=options["momentum"],
        ns_steps=options["ns_steps"], adjust_lr_fn=options["adjust"])


def adamw(weights, moments, step, rate):
    """make_training.update of some weights with another rate."""
    old = make_training.rate_of
    make_training.rate_of = lambda _: rate
    make_training.update(weights, moments, step, 1.0)
    make_training.rate_of = old


def make(run, name):
    model, seed, clip = make_training.RUNS[run]
    peak, options = OPTIMIZERS[name]
    config = json.loads((HERE / "models" / model / "config.json").read_text())
    weights = make_training.weights_load(HERE / "models" / model, config)
    moments = {k: (torch.zeros_like(v), torch.zeros_like(v))
               for k, v in weights.items()}
    tokens = make_training.tokens_make(config["vocab_size"],
                                       torch.Generator().manual_seed(seed))
    inner = {k: p for k, p in weights.items()
             if name == "adafactor" or is_inner(k, p)}
    rest = {k: p for k, p in weights.items() if k not in inner}
    soap = {k: Soap(options["frequency"]) for k in inner} \
        if name == "soap" else None
    torch_one = None if soap else library(name, options, inner)
    rows = []
    for step in range(SETTINGS["steps"]):
        batch, rate = tokens[step], rate_of(step, peak)
        loss = oracle.loss_of(oracle.logits_of(config, weights, batch[:, :-1]),
                              batch[:, 1:])
        loss.backward()
        norm = math.sqrt(sum((p.grad ** 2).sum().item()
                             for p in weights.values()))
        for p in weights.values():
            p.grad *= min(1.0, clip / (norm + 1e-6))
        if soap:
            for k, p in inner.items():
                p.data = torch.from_numpy(soap[k].step(
                    p.data.numpy(), p.grad.numpy(), rate,
                    SETTINGS["weight_decay"]))
        else:
            for group in torch_one.param_groups:
                group["lr"] = rate
            torch_one.step()
        adamw(rest, moments, step, rate)
        for p in inner.values():
            p.grad = None
        rows.append({"step": step, "lr": rate, "loss": loss.item(),
                     "grad_norm": norm})
    print(f"{run} {name}: loss {rows[0]['loss']:.6f} to "
          f"{rows[-1]['loss']:.6f}, {len(inner)} tensors")
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    head = json.dumps({"model": model, "clip": clip, **SETTINGS,
                       "lr": peak,
                       "min_lr": SETTINGS["min_lr"] * peak / SETTINGS["lr"],
                       "rules": [], **options}, indent=1)
    (HERE / "training" / run / f"{name}.json").write_text(
        head[:-2] + ',\n "rows": [\n  ' + lines + "\n ]\n}\n")


def number(index):
    """Something like noise, the same in C."""
    m = (index * 7919 + 5) * 2654435761 % 2 ** 32
    m = (m ^ m >> 15) * 2246822519 % 2 ** 32
    m ^= m >> 13
    return (m - 2 ** 31) / 2 ** 31


def make_soap_steps():
    """A matrix alone, gradients from `number`."""
    cases = []
    for rows, cols in ((8, 8), (12, 5), (5, 12), (16, 2), (1, 9)):
        soap, size = Soap(2), rows * cols
        w = numpy.array([number(i) for i in range(size)]).reshape(rows, cols)
        for t in range(1, 8):
            g = numpy.array([number(t * size + i) for i in range(size)])
            w = soap.step(w, g.reshape(rows, cols), 0.01,
                          SETTINGS["weight_decay"])
        cases.append({"rows": rows, "cols": cols, "frequency": 2,
                      "steps": 7, "lr": 0.01, "beta1": SETTINGS["beta1"],
                      "beta2": SETTINGS["beta2"],
                      "epsilon": SETTINGS["epsilon"],
                      "weight_decay": SETTINGS["weight_decay"],
                      "w": w.ravel().tolist()})
    (HERE / "training" / "soap_steps.json").write_text(
        '{"cases": [\n' + ",\n".join(json.dumps(c) for c in cases)
        + "\n]}\n")


if __name__ == "__main__":
    make_soap_steps()
    for each in make_training.RUNS:
        for optimizer in sys.argv[1:] or OPTIMIZERS:
            make(each, optimizer)
