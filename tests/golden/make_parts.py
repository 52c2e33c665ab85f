#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes parts/<name>/: 20 AdamW steps that train a part of the parameters,
or each in its own way, in float64.

    python3 tests/golden/make_parts.py

    parts.json             settings, loss and gradient norm of each step; rows
                           of optimizer.groups, as the test gives them; loss of
                           the moving average of the weights on the last batch
    adapters.safetensors   low-rank adapters at the start, F64, names as PEFT's
                           without its prefix
    gradients.safetensors  of the adapters, mean over the first batch

What a group says is written here a second time, by name, without globs.
Adapters are merged into their matrices before each forward pass, so that no
line is shared with the two products of src/nn/adapter.c. Where peft is
installed, its loss is compared (its base model computes norms in float32).
"""
import json
import math
import pathlib

import torch
from safetensors.torch import save_file

import make_training as base
import oracle

HERE = pathlib.Path(__file__).parent
EMA = 0.9

GROUPS = [
    "model.embed_tokens.weight lr_factor=0.25 weight_decay=0",
    "layers.0.attention.wo frozen",
    "*norm* weight_decay=0.2 beta2=0.5",
    "model.layers.1.* beta1=0.5",
    "*.1.mlp.down_proj.weight lr_factor=2",
]


def rule_of(name, decays):
    """(factor of the rate, decay, beta1, beta2), None: frozen."""
    s = base.SETTINGS
    factor, decay = 1.0, s["weight_decay"] if decays else 0.0
    beta1, beta2 = s["beta1"], s["beta2"]
    if name == "model.embed_tokens.weight":
        factor, decay = 0.25, 0.0
    if name == "model.layers.0.self_attn.o_proj.weight":
        return None
    if "norm" in name:
        decay, beta2 = 0.2, 0.5
    if name.startswith("model.layers.1."):
        beta1 = 0.5
    if name == "model.layers.1.mlp.down_proj.weight":
        factor = 2.0
    return factor, decay, beta1, beta2


# name: model, tokens' seed, clip, and of adapters: rank, alpha, targets, and
# the modules of a layer that they name
RUNS = {
    "groups": ("llama_nine_heads", "llama", 1.0, None),
    "lora": ("llama_nine_heads", "llama", 0.02,
             (3, 6.0, ["q_proj", "v_proj", "down_proj"],
              ["self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"])),
    "lora_gpt2": ("gpt2_plain_names", "gpt2", 0.02,
                  (2, 3.0, ["all"],
                   ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"])),
}


def adapters_make(weights, modules, rank, generator):
    """B is not zero, so that A has a gradient at once."""
    made = {}
    for name in weights:
        stem = name.removesuffix(".weight")
        if not any(stem.endswith(module) for module in modules):
            continue
        out, inner = weights[name].shape
        if ".c_" in name:  # stored [in, out]
            out, inner = inner, out
        a = torch.randn(rank, inner, generator=generator, dtype=oracle.F64)
        b = torch.randn(out, rank, generator=generator, dtype=oracle.F64)
        made[f"{stem}.lora_A.weight"] = (a / math.sqrt(inner)).requires_grad_()
        made[f"{stem}.lora_B.weight"] = (b * 0.1).requires_grad_()
    return made


def merged(weights, adapters, scale):
    result = dict(weights)
    for name in adapters:
        if not name.endswith(".lora_A.weight"):
            continue
        stem = name.removesuffix(".lora_A.weight")
        change = scale * adapters[f"{stem}.lora_B.weight"] @ adapters[name]
        if ".c_" in stem:
            change = change.T
        result[f"{stem}.weight"] = weights[f"{stem}.weight"] + change
    return result


def peft_loss(config, weights, adapters, lora, batch):
    try:
        import peft
        import transformers
    except ImportError:
        return None
    torch.set_default_dtype(torch.float64)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config))
    rank, alpha, _, modules = lora
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=modules,
        fan_in_fan_out=config["model_type"] == "gpt2"))
    torch.set_default_dtype(torch.float32)
    state = model.state_dict()
    found = 0
    for key in state:
        plain = key.removeprefix("base_model.model.")
        plain = plain.replace(".base_layer", "").replace(".default", "")
        if plain in adapters:
            state[key] = adapters[plain].detach()
            found += 1
        elif plain in weights:
            state[key] = weights[plain].detach()
        elif plain == "lm_head.weight":
            first = next(iter(weights))
            state[key] = weights[first].detach()
    assert found == len(adapters), (found, len(adapters))
    model.load_state_dict(state)
    model.eval()
    logits = model(batch[:, :-1]).logits
    return oracle.loss_of(logits.to(oracle.F64), batch[:, 1:]).item()


def make(run):
    s = base.SETTINGS
    model, tokens_of, clip, lora = RUNS[run]
    config = json.loads((HERE / "models" / model / "config.json").read_text())
    weights = base.weights_load(HERE / "models" / model, config)
    _, seed, _ = base.RUNS[tokens_of]
    tokens = base.tokens_make(config["vocab_size"],
                              torch.Generator().manual_seed(seed))
    directory = HERE / "parts" / run
    directory.mkdir(parents=True, exist_ok=True)
    adapters, scale = {}, 0.0
    if lora:
        rank, alpha, targets, modules = lora
        scale = alpha / rank
        adapters = adapters_make(weights, modules, rank,
                                 torch.Generator().manual_seed(77))
        save_file({k: v.detach().contiguous() for k, v in adapters.items()},
                  directory / "adapters.safetensors")
        for p in weights.values():
            p.requires_grad_(False)
    rules = {k: rule_of(k, p.dim() == 2) if not lora else
             (1.0, s["weight_decay"], s["beta1"], s["beta2"])
             for k, p in (adapters or weights).items()}
    trained = {k: p for k, p in (adapters or weights).items()
               if rules[k] is not None}
    moments = {k: (torch.zeros_like(p), torch.zeros_like(p))
               for k, p in trained.items()}
    average = {k: p.detach().clone() for k, p in trained.items()}
    rows = []
    for step in range(s["steps"]):
        batch, t = tokens[step], step + 1
        loss = oracle.loss_of(
            oracle.logits_of(config, merged(weights, adapters, scale),
                             batch[:, :-1]), batch[:, 1:])
        if step == 0 and lora:
            other = peft_loss(config, weights, adapters, lora, batch)
            if other is not None:
                print(f"{run}: peft's loss differs by "
                      f"{abs(other - loss.item()):.1e}")
                assert abs(other - loss.item()) < 1e-6
        loss.backward()
        if step == 0 and lora:
            save_file({k: p.grad.contiguous() for k, p in trained.items()},
                      directory / "gradients.safetensors")
        norm = math.sqrt(sum((p.grad ** 2).sum().item()
                             for p in trained.values()))
        factor = min(1.0, clip / (norm + 1e-6))
        for name, p in trained.items():
            rate, decay, beta1, beta2 = rules[name]
            rate *= base.rate_of(step)
            m, v = moments[name]
            g = p.grad * factor
            m.mul_(beta1).add_((1 - beta1) * g)
            v.mul_(beta2).add_((1 - beta2) * g * g)
            p.data.mul_(1 - rate * decay)
            root = torch.sqrt(v / (1 - beta2 ** t)) + s["epsilon"]
            p.data.sub_(rate * (m / (1 - beta1 ** t)) / root)
            average[name].mul_(EMA).add_((1 - EMA) * p.data)
        for p in weights.values():
            p.grad = None
        for p in adapters.values():
            p.grad = None
        rows.append({"step": step, "loss": loss.item(), "grad_norm": norm})
    last = {**weights, **adapters, **average}
    with torch.no_grad():
        ema_loss = oracle.loss_of(
            oracle.logits_of(config, merged(last, last if lora else {}, scale),
                             tokens[-1][:, :-1]), tokens[-1][:, 1:]).item()
    print(f"{run}: loss {rows[0]['loss']:.6f} to {rows[-1]['loss']:.6f}, "
          f"average {ema_loss:.6f}, "
          f"{sum(r['grad_norm'] > clip for r in rows)} steps clipped")
    head = {"model": model, "tokens": tokens_of, "clip": clip,
            **{k: v for k, v in s.items() if k != "rules"}, "ema": EMA,
            "ema_loss": ema_loss, "groups": [] if lora else GROUPS}
    if lora:
        head.update(rank=rank, alpha=alpha, targets=targets)
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    (directory / "parts.json").write_text(
        json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n  ' + lines
        + "\n ]\n}\n")


if __name__ == "__main__":
    for each in RUNS:
        make(each)
