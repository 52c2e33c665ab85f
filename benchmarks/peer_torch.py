# SPDX-License-Identifier: Apache-2.0
"""The models of `lockstep bench step` in PyTorch, and one process that trains.

    python3 benchmarks/peer_torch.py MODEL PRECISION MODE THREADS [BATCH LENGTH
                                     [DEVICE]]

    MODEL      gpt2-124m, gpt2-1.5b, llama-1b, llama-58m, llama-10m, llama-1m
    PRECISION  float32, bfloat16 (the whole model), autocast (float32 weights)
    MODE       eager, compile
    THREADS    as Lockstep's --threads
    DEVICE     cpu (default), cuda

Written as a good user would: fused AdamW, scaled_dot_product_attention,
clip_grad_norm_, gradients set to None. It speaks lines of JSON on its output: one after
the first step, then one for each line of its input, which says how many steps
to run; at the end of its input it tells its peak memory. So it waits, without
work, while another program is measured.
"""
import json
import os
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from presets import PRESETS


class Gpt2Block(nn.Module):
    def __init__(self, width, inner, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(width, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        h = F.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.down(h)


class Gpt2(nn.Module):
    def __init__(self, vocab, width, inner, layers, heads, length):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Gpt2Block(width, inner, heads)
                                    for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("at", torch.arange(length), persistent=False)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(self.at[:tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, width, inner, heads, groups):
        super().__init__()
        self.heads, self.groups, self.each = heads, groups, width // heads
        self.norm1 = nn.RMSNorm(width, eps=1e-5)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.each, bias=False)
        self.v = nn.Linear(width, groups * self.each, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.RMSNorm(width, eps=1e-5)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        h = self.norm1(x)
        q = self.q(h).view(batch, length, self.heads, self.each)
        k = self.k(h).view(batch, length, self.groups, self.each)
        v = self.v(h).view(batch, length, self.groups, self.each)
        q, k = rotate(q.transpose(1, 2), cos, sin), rotate(
            k.transpose(1, 2), cos, sin)
        y = F.scaled_dot_product_attention(
            q, k, v.transpose(1, 2), is_causal=True,
            enable_gqa=self.groups != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, vocab, width, inner, layers, heads, groups, length,
                 tied):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, inner, heads, groups)
                                    for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocab, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        each = width // heads
        turn = 10000.0 ** -(torch.arange(0, each, 2) / each)
        angle = torch.outer(torch.arange(length).float(), turn).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens, targets):
        length = tokens.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def model_build(name, length):
    kind, vocab, width, inner, layers, heads, groups = PRESETS[name][:7]
    if kind == "gpt2":
        model = Gpt2(vocab, width, inner, layers, heads, length)
    else:
        model = Llama(vocab, width, inner, layers, heads, groups, length,
                      tied=name == "llama-1b")
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
    return model


def optimizer_build(model):
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2],
               "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() != 2],
               "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)


class Training:
    """One model with its optimizer; `step` is a whole step of training."""

    def __init__(self, name, precision, mode, batch=0, length=0,
                 device="cpu"):
        preset = PRESETS[name]
        self.vocab = preset[1]
        self.shape = (batch or preset[7], length or preset[8])
        torch.manual_seed(1)
        model = model_build(name, self.shape[1])
        if precision == "bfloat16":
            model = model.to(torch.bfloat16)
        self.device = device
        model = model.to(device)
        self.autocast = precision == "autocast"
        self.parameters = list(model.parameters())
        self.optimizer = optimizer_build(model)
        self.model = torch.compile(model) if mode == "compile" else model

    def step(self):
        tokens = torch.randint(0, self.vocab,
                               (self.shape[0], self.shape[1] + 1),
                               device=self.device)
        with torch.autocast(self.device, torch.bfloat16,
                            enabled=self.autocast):
            loss = self.model(tokens[:, :-1].contiguous(),
                              tokens[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def say(**fields):
    print(json.dumps(fields), flush=True)


def serve(training, began, **facts):
    """The first step, then as many as each line of the input says."""
    loss = training.step()
    say(first_step_s=time.monotonic() - began, loss=loss,
        parameters=sum(p.numel() for p in training.parameters),
        torch=torch.__version__, **facts)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            at = time.monotonic()
            loss = training.step()
            times.append(1e3 * (time.monotonic() - at))
        say(step_ms=times, loss=loss)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = usage.ru_maxrss * 1024
    if training.parameters[0].is_cuda:
        peak = torch.cuda.max_memory_allocated()
    say(peak_mb=peak / 2 ** 20)


def main():
    name, precision, mode = sys.argv[1:4]
    torch.set_num_threads(int(sys.argv[4]))
    # The moment before this process began, of the same clock.
    began = float(os.environ.get("PEERS_BEGAN") or time.monotonic())
    training = Training(name, precision, mode, *map(int, sys.argv[5:7]),
                        *sys.argv[7:8])
    serve(training, began, tokens=training.shape[0] * training.shape[1])


if __name__ == "__main__":
    main()
