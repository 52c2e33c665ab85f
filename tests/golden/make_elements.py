#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes training/<name>/{lion,sgd,schedule_free}.json and optimizers/: the
optimizers that see each weight alone, and their narrow states.

    python3 tests/golden/make_elements.py

training/: 20 steps in float64 of the models and tokens of make_training.py, rows
as in training.json.

    sgd            torch.optim.SGD with nesterov=True; decay on matrices
    lion           program 1 of arXiv:2302.06675, written here in PyTorch
    schedule_free  algorithm 1 of arXiv:2405.15682 with AdamW's second moment,
                   written here with x, y and z; "average_loss" is that of the
                   last step's batch at x, after the last step

optimizers/states.safetensors: 6 steps of AdamW on 2,500 numbers whose moments
are stored as bfloat16, and as codes of 8 bits. Each step is computed in 64-bit
mantissas and rounded to float32 once; codes are found by searching bins.

optimizers/dynamic_map.safetensors: what the codes of arXiv:2110.02861 stand for,
as bitsandbytes has them (create_dynamic_map), from its definition.
"""
import json
import math
import pathlib

import numpy
import torch
from safetensors.numpy import save_file

import make_training
import oracle

HERE = pathlib.Path(__file__).parent
SETTINGS = make_training.SETTINGS
WIDE = numpy.longdouble
# peak learning rate, and what differs from make_training.py
OPTIMIZERS = {
    "sgd": (0.1, {"beta1": 0.9}),
    "lion": (1e-3, {"beta1": 0.9, "beta2": 0.99}),
    "schedule_free": (3e-3, {"beta1": 0.9, "schedule": "constant",
                             "min_lr": 0.0}),
}


# ---- 20 steps of a model ----

def rate_of(settings, step):
    if settings["schedule"] != "constant":
        return make_training.rate_of(step) * settings["lr"] / SETTINGS["lr"]
    warmup = settings["warmup"]
    return settings["lr"] * min(1.0, (step + 1) / warmup)


class Lion:
    def __init__(self, weights, settings):
        self.s = settings
        self.m = {k: torch.zeros_like(p) for k, p in weights.items()}

    def step(self, weights, rate, _):
        b1, b2 = self.s["beta1"], self.s["beta2"]
        for name, p in weights.items():
            g, m = p.grad, self.m[name]
            decay = self.s["weight_decay"] if p.dim() == 2 else 0.0
            change = torch.sign(b1 * m + (1 - b1) * g) + decay * p.data
            p.data -= rate * change
            self.m[name] = b2 * m + (1 - b2) * g


class Sgd:
    def __init__(self, weights, settings):
        self.torch = torch.optim.SGD(
            [{"params": [p for p in weights.values() if p.dim() == 2],
              "weight_decay": settings["weight_decay"]},
             {"params": [p for p in weights.values() if p.dim() != 2],
              "weight_decay": 0.0}],
            lr=0.0, momentum=settings["beta1"], nesterov=True)

    def step(self, _, rate, __):
        for group in self.torch.param_groups:
            group["lr"] = rate
        self.torch.step()


class ScheduleFree:
    """Weights hold y between steps."""

    def __init__(self, weights, settings):
        self.s = settings
        self.z = {k: p.detach().clone() for k, p in weights.items()}
        self.x = {k: p.detach().clone() for k, p in weights.items()}
        self.v = {k: torch.zeros_like(p) for k, p in weights.items()}
        self.sum = 0.0

    def step(self, weights, rate, t):
        b1, b2 = self.s["beta1"], self.s["beta2"]
        self.sum += rate ** 2
        c = rate ** 2 / self.sum
        for name, p in weights.items():
            decay = self.s["weight_decay"] if p.dim() == 2 else 0.0
            self.v[name] = b2 * self.v[name] + (1 - b2) * p.grad ** 2
            root = torch.sqrt(self.v[name] / (1 - b2 ** t))
            change = p.grad / (root + self.s["epsilon"]) + decay * p.data
            self.z[name] = self.z[name] - rate * change
            self.x[name] = (1 - c) * self.x[name] + c * self.z[name]
            p.data.copy_((1 - b1) * self.z[name] + b1 * self.x[name])


KINDS = {"sgd": Sgd, "lion": Lion, "schedule_free": ScheduleFree}


def loss_at(config, weights, batch):
    return oracle.loss_of(oracle.logits_of(config, weights, batch[:, :-1]),
                          batch[:, 1:])


def make(run, name):
    model, seed, clip = make_training.RUNS[run]
    peak, beside = OPTIMIZERS[name]
    settings = {**SETTINGS, "lr": peak, "clip": clip, "model": model,
                "min_lr": SETTINGS["min_lr"] * peak / SETTINGS["lr"],
                **beside}
    settings.pop("rules")
    config = json.loads((HERE / "models" / model / "config.json").read_text())
    weights = make_training.weights_load(HERE / "models" / model, config)
    tokens = make_training.tokens_make(config["vocab_size"],
                                       torch.Generator().manual_seed(seed))
    kind = KINDS[name](weights, settings)
    rows = []
    for step in range(settings["steps"]):
        rate = rate_of(settings, step)
        loss = loss_at(config, weights, tokens[step])
        loss.backward()
        norm = math.sqrt(sum((p.grad ** 2).sum().item()
                             for p in weights.values()))
        for p in weights.values():
            p.grad *= min(1.0, clip / (norm + 1e-6))
        with torch.no_grad():
            kind.step(weights, rate, step + 1)
        for p in weights.values():
            p.grad = None
        rows.append({"step": step, "lr": rate, "loss": loss.item(),
                     "grad_norm": norm})
    out = {"optimizer": name, **settings, "rows": rows}
    if name == "schedule_free":
        with torch.no_grad():
            out["average_loss"] = loss_at(config, kind.x, tokens[-1]).item()
    path = HERE / "training" / run / f"{name}.json"
    path.write_text(json.dumps(out, indent=1) + "\n")
    print(path.name, run, rows[0]["loss"], rows[-1]["loss"],
          out.get("average_loss", ""))


# ---- narrow states ----

COUNT, BLOCK, STEPS, LR = 2500, 1024, 6, 1e-3


def fma(a, b, c):
    return (WIDE(a) * WIDE(b) + WIDE(c)).astype(numpy.float32)


def codebook(bits):
    """Edges of the bins and what they stand for, from 0 up."""
    edges, values = [], [0.0]
    for decade in range(bits):
        begin = 10.0 ** (decade - bits)
        for j in range(2 ** decade):
            edges.append(begin * (1 + 9 * j / 2 ** decade))
            values.append(begin * (1 + 9 * (j + 0.5) / 2 ** decade))
    values[-1] = 1.0
    if bits == 8:
        edges[0] = 1e-300
    else:
        edges[0] = 0.5 * values[1]
    return numpy.array(edges), numpy.array(values, numpy.float32)


def encode(x, bits):
    """Codes [n], scales [blocks], and the numbers that they stand for."""
    edges, values = codebook(bits)
    codes, scales, back = [], [], []
    for first in range(0, len(x), BLOCK):
        part = x[first:first + BLOCK]
        scale = numpy.abs(part).max()
        share = numpy.abs(part.astype(numpy.float64)) / float(scale)
        index = numpy.searchsorted(edges, share, side="right")
        sign = (part < 0) & (index > 0)
        codes.append((index + 128 * sign).astype(numpy.uint8))
        scales.append(scale)
        back.append(numpy.where(sign, -values[index], values[index]) * scale)
    return (numpy.concatenate(codes), numpy.array(scales, numpy.float32),
            numpy.concatenate(back).astype(numpy.float32))


def to_bfloat16(x):
    return torch.from_numpy(x).to(torch.bfloat16).float().numpy()


def adamw(gradients, weight, narrow):
    """narrow(x, positive): a moment as it is stored, and what is kept."""
    b1, b2, eps, decay = 0.9, 0.95, 1e-8, 0.1
    f32 = numpy.float32
    m = numpy.zeros(COUNT, f32)
    v = numpy.zeros(COUNT, f32)
    kept = None
    for t, g in enumerate(gradients, 1):
        m = fma(f32(b1), m, f32(1 - b1) * g)
        v = fma(f32(b2), v, f32(1 - b2) * g * g)
        root = fma(numpy.sqrt(v), f32(1 / math.sqrt(1 - b2 ** t)), f32(eps))
        weight = fma(f32(-LR / (1 - b1 ** t)), m / root,
                     weight * f32(1 - LR * decay))
        (m, kept_m), (v, kept_v) = narrow(m, False), narrow(v, True)
        kept = kept_m, kept_v
    return weight, kept


def make_states():
    draw = numpy.random.default_rng(31)
    gradients = (draw.standard_normal((STEPS, COUNT)) *
                 10.0 ** draw.uniform(-6, 0, COUNT)).astype(numpy.float32)
    gradients[:, 7::500] = 0
    weight = draw.standard_normal(COUNT).astype(numpy.float32)

    def codes(x, positive):
        code, scale, back = encode(x, 8 if positive else 7)
        return back, (code, scale)

    def halves(x, _):
        back = to_bfloat16(x)
        return back, back

    out = {"gradients": gradients, "weight": weight}
    out["weight8"], ((out["m8"], out["m8_scales"]),
                     (out["v8"], out["v8_scales"])) = adamw(
                         gradients, weight, codes)
    out["weight16"], (out["m16"], out["v16"]) = adamw(gradients, weight,
                                                      halves)
    (HERE / "optimizers").mkdir(exist_ok=True)
    save_file(out, HERE / "optimizers" / "states.safetensors")
    print("states", {k: v.shape for k, v in out.items()})


def dynamic_map(signed):
    """The 256 numbers of Dettmers' dynamic quantization, ascending, as the
    library of that paper lays them out: seven exponents; below each, the middles
    of equal parts between a tenth and one, as many as its fraction's bits can
    tell; 0 and 1 beside."""
    numbers = [0.0, 1.0]
    for exponent in range(7):
        parts = 2 ** exponent if signed else 2 ** (exponent + 1)
        ends = numpy.linspace(0.1, 1.0, parts + 1)
        middles = 10.0 ** (exponent - 6) * (ends[:-1] + ends[1:]) / 2
        numbers += list(middles)
        if signed:
            numbers += list(-middles)
    assert len(numbers) == 256
    return numpy.sort(numpy.array(numbers)).astype(numpy.float32)


def make_map():
    save_file({"signed": dynamic_map(True), "unsigned": dynamic_map(False)},
              HERE / "optimizers" / "dynamic_map.safetensors")


if __name__ == "__main__":
    for each_run in make_training.RUNS:
        for each in OPTIMIZERS:
            make(each_run, each)
    make_states()
    make_map()
