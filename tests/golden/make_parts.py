#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes parts/<name>/: 20 AdamW steps that train a part of the parameters,
or each in its own way, in float64.

    python3 tests/golden/make_parts.py [RUN...]

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
Mixtures of experts are transformers' own, in float64 throughout; peft reads
their adapters from a directory, and turns those of single experts into its own.
"""
import contextlib
import json
import math
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

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
    "lora_mixtral": ("mixtral", "llama", 0.02,
                     (3, 6.0, ["q_proj", "v_proj", "w1", "w2", "w3"],
                      ["self_attn.q_proj", "self_attn.v_proj", "w1", "w2", "w3"])),
    "lora_router": ("mixtral", "llama", 0.02,
                    (3, 6.0, ["q_proj", "router", "w1", "w2", "w3"],
                     ["self_attn.q_proj", "block_sparse_moe.gate", "w1", "w2", "w3"])),
    # Dense blocks, experts of all tokens, and others; of gate and up the latter.
    "lora_deepseek": ("deepseek_v3", "llama", 0.02,
                      (2, 5.0, ["up_proj", "down_proj", "q_a_proj", "q_b_proj",
                                "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
                       ["up_proj", "down_proj", "q_a_proj", "q_b_proj",
                        "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"])),
}


@contextlib.contextmanager
def inner_float64():
    """Inner steps of transformers are float64, too."""
    import check_drawn
    before = torch.Tensor.float, torch.float32, torch.get_default_dtype()
    check_drawn.float64_throughout()
    try:
        yield
    finally:
        torch.Tensor.float, torch.float32, default = before
        torch.float = torch.float32
        torch.set_default_dtype(default)


class Mixture:
    """A model of transformers that takes weights by their names in files."""

    def __init__(self, directory):
        import check_drawn
        self.family = json.loads((directory / "config.json").read_text())["model_type"]
        with inner_float64():
            self.model = check_drawn.build(directory)
        self.parts = {
            inside: [outside for outside, _ in
                     check_drawn.pieces(inside, self.family, value)]
            for inside, value in check_drawn.tensors(self.model)}
        self.weights = {k: v.to(oracle.F64).requires_grad_(v.dim() > 0) for k, v in
                        load_file(directory / "model.safetensors").items()}

    def values(self, weights):
        """Of the model's own tensors, which have all experts of a block."""
        for inside, names in self.parts.items():
            found = [weights[name] for name in names]
            if inside.endswith("gate_up_proj"):
                found = [torch.cat(pair) for pair in zip(found[::2], found[1::2])]
            yield inside, torch.stack(found) if len(names) > 1 else found[0]

    def logits(self, weights, tokens):
        with inner_float64():
            return torch.func.functional_call(
                self.model, dict(self.values(weights)), (tokens,),
                {"use_cache": False}).logits


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


def mixture_peft_loss(directory, weights, adapters, lora, batch):
    """Of the adapters as a directory, such as `lockstep export --adapter` writes."""
    try:
        import peft
    except ImportError:
        return None
    mixture = Mixture(directory)
    rank, alpha, _, modules = lora
    mixture.model.load_state_dict(dict(mixture.values(weights)), strict=False)
    with tempfile.TemporaryDirectory() as made:
        save_file({f"base_model.model.{k}": v.detach().contiguous()
                   for k, v in adapters.items()},
                  f"{made}/adapter_model.safetensors")
        pathlib.Path(f"{made}/adapter_config.json").write_text(json.dumps(
            {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank,
             "lora_alpha": alpha,
             "target_modules": [m for m in modules if not m.endswith(".gate")],
             "target_parameters": ["mlp.gate.weight" for m in modules
                                   if m.endswith(".gate")] or None}))
        model = peft.PeftModel.from_pretrained(mixture.model, made)
    model = model.to(oracle.F64).eval()
    with inner_float64():
        found = model(batch[:, :-1], use_cache=False).logits
    return oracle.loss_of(found, batch[:, 1:]).item()


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
    mixture = None
    if any("expert" in key for key in config):
        mixture = Mixture(HERE / "models" / model)
        weights = mixture.weights
    else:
        weights = base.weights_load(HERE / "models" / model, config)

    def logits(of, batch):
        return mixture.logits(of, batch) if mixture else \
            oracle.logits_of(config, of, batch)

    _, seed, _ = base.RUNS[tokens_of]
    source = json.loads((HERE / "models" / base.RUNS[tokens_of][0] /
                         "config.json").read_text())
    tokens = base.tokens_make(source["vocab_size"],
                              torch.Generator().manual_seed(seed)) \
        % config["vocab_size"]
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
            logits(merged(weights, adapters, scale), batch[:, :-1]),
            batch[:, 1:])
        if step == 0 and lora:
            other = mixture_peft_loss(HERE / "models" / model, weights, adapters,
                                      lora, batch) if model == "mixtral" else \
                None if mixture else \
                peft_loss(config, weights, adapters, lora, batch)
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
            logits(merged(last, last if lora else {}, scale),
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
    for each in sys.argv[1:] or RUNS:
        make(each)
