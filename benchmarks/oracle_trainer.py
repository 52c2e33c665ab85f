#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""oracle_trainer.py - the second trainer of oracle.py: models of transformers in
float64, losses, rates and optimizers from their papers or torch.optim. Each document
is run as a sequence of its own, adapters are merged into their matrices before each
pass."""
import fnmatch
import json
import math

import torch
from torch.nn.functional import cross_entropy, embedding, linear

import check_drawn
from check_drawn import F32, F64, pieces, tensors

# Families whose checkpoints have other tensors than their files.
JOINED = ("granitemoe", "granitemoeshared", "gpt_oss", "llama4_text")
SCORES = []  # inputs of the softmax of attention, block by block


class Refused(Exception):
    """Lockstep takes no such configuration, or there is nothing to compare."""


def softmax_watched(x, *rest, **named):
    if x.dim() == 4:
        SCORES.append(x.detach())
    return SOFTMAX(x, *rest, **named)


SOFTMAX = torch.nn.functional.softmax


def norm(x, weight, epsilon):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight


class Whole(torch.nn.Module):
    """A model, and what lies behind it."""

    def __init__(self, model, config, depth):
        super().__init__()
        self.model, self.config, self.depth = model, config, depth
        self.routers, self.extra = [], None
        for name, module in model.named_modules():
            if name.endswith((".gate", ".router")) and isinstance(
                    getattr(module, "weight", None), torch.Tensor) \
                    and module.weight.dim() == 2 and "shared" not in name:
                module.register_forward_hook(self.routed)

    def routed(self, module, args, out):
        x = args[0].reshape(-1, args[0].shape[-1])
        logits = linear(x, module.weight, getattr(module, "bias", None))
        chosen = out[2] if len(out) > 2 else logits.topk(1).indices
        self.routers.append((logits, chosen.reshape(len(logits), -1)))

    def forward(self, tokens, beyond):
        self.routers = []
        if not self.depth:
            return [self.model(tokens, use_cache=False).logits], self.routers
        inner, extra, length = self.model.model, self.extra, tokens.shape[1]
        epsilon, blocks = self.config["rms_norm_eps"], self.config["num_hidden_layers"]
        plus = 1 if self.config["model_type"] == "gemma" else 0
        x = inner(tokens, use_cache=False).last_hidden_state
        logits = [self.model.lm_head(x)]
        table = inner.embed_tokens.weight  # rows as they are, also in gemma
        position = torch.arange(length)[None]
        mask = torch.zeros(length, length).masked_fill(
            torch.ones(length, length).triu(1) > 0, -math.inf)[None, None]
        for k in range(self.depth):
            stem = f"model.layers.{blocks + k}."
            both = torch.cat([
                norm(embedding(beyond[k][None], table), extra[stem + "enorm.weight"] + plus,
                     epsilon),
                norm(x, extra[stem + "hnorm.weight"] + plus, epsilon)], -1)
            x = inner.layers[blocks + k](
                linear(both, extra[stem + "eh_proj.weight"]), attention_mask=mask,
                position_ids=position,
                position_embeddings=inner.rotary_emb(both, position))
            if isinstance(x, tuple):
                x = x[0]
            x = norm(x, extra[stem + "shared_head.norm.weight"] + plus, epsilon)
            logits.append(self.model.lm_head(x))
        return logits, self.routers


def apart(name, value, family):
    """Names in checkpoints, with their parts of a tensor that has all experts."""
    interleaved, turned = family == "gpt_oss", family in ("gpt_oss", "llama4_text")
    stem, _, last = name.rpartition(".")
    if last == "weight":
        stem, _, last = stem.rpartition(".")
    gate = last in ("gate_up_proj", "input_linear", "gate_up_proj_bias")
    if family not in JOINED or value.dim() < 2 or not (
            gate or last in ("down_proj", "output_linear")) or "shared" in name \
            or value.dim() == 2 and last != "gate_up_proj_bias":
        yield name, value
        return
    stem = stem.removesuffix(".experts") + ".experts"
    for i, one in enumerate(value):
        one = one.T if turned and one.dim() == 2 else one
        kind = "bias" if one.dim() == 1 else "weight"
        if not gate:
            yield f"{stem}.{i}.down.{kind}", one
            continue
        halves = (one[0::2], one[1::2]) if interleaved else one.chunk(2)
        yield f"{stem}.{i}.gate.{kind}", halves[0]
        yield f"{stem}.{i}.up.{kind}", halves[1]


def together(names, weights, family):
    """The inverse: a tensor as the file has it."""
    found = [weights[name] for name in names]
    if names[0].endswith((".gate.weight", ".gate.bias")) and len(names) > 1:
        pairs = zip(found[::2], found[1::2])
        found = [torch.stack(pair, 1).flatten(0, 1) if family == "gpt_oss"
                 else torch.cat(pair) for pair in pairs]
    if family in ("gpt_oss", "llama4_text") and found[0].dim() == 2:
        found = [one.T for one in found]
    return torch.stack(found)


class Reference:
    """A model whose weights have the names of checkpoints."""

    def __init__(self, room, config, depth):
        self.config, self.family, self.depth = config, config["model_type"], depth
        (room / "config.json").write_text(json.dumps(config))
        if depth:
            more = {**config, "num_hidden_layers": config["num_hidden_layers"] + depth}
            (room / "config.json").write_text(json.dumps(more))
        model = check_drawn.build(room)
        if depth:
            model.config.num_hidden_layers = config["num_hidden_layers"]
        (room / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        self.whole = Whole(model, config, depth)
        self.files = {inside: [out for out, _ in pieces(inside, self.family, value)]
                      for inside, value in tensors(model)}
        self.parts = {inside: [part for out, piece in pieces(inside, self.family, value)
                               for part, _ in apart(out, piece, self.family)]
                      for inside, value in tensors(model)}

    def draw(self, generator):
        check_drawn.fill(self.whole.model, generator)
        found = {out: piece.detach().clone()
                 for inside, value in tensors(self.whole.model)
                 for file, whole in pieces(inside, self.family, value)
                 for out, piece in apart(file, whole, self.family)}
        for k in range(self.depth):
            width = self.config["hidden_size"]
            stem = f"model.layers.{self.config['num_hidden_layers'] + k}."
            for name, shape in (("enorm", (width,)), ("hnorm", (width,)),
                                ("shared_head.norm", (width,)),
                                ("eh_proj", (width, 2 * width))):
                value = 0.15 * torch.randn(shape, generator=generator, dtype=F64)
                value += name != "eh_proj" and self.family != "gemma"
                found[f"{stem}{name}.weight"] = value.to(F32).to(F64)
        return found

    def stored(self, weights):
        """As a file has them."""
        found = dict(weights)
        for inside, names in self.parts.items():
            if self.family in JOINED and names != self.files[inside]:
                found[self.files[inside][0]] = together(names, weights, self.family)
                for name in names:
                    del found[name]
        return found

    def __call__(self, weights, tokens, beyond):
        values = {}
        for inside, names in self.parts.items():
            found = [weights[name] for name in names]
            if self.family in JOINED and ".experts." in names[0] and \
                    names != self.files[inside]:
                values["model." + inside] = together(names, weights, self.family)
            elif inside.endswith("gate_up_proj") and self.family not in \
                    check_drawn.RENAMED and len(found) > 1:
                found = [torch.cat(pair) for pair in zip(found[::2], found[1::2])]
                values["model." + inside] = torch.stack(found)
            else:
                values["model." + inside] = torch.stack(found) \
                    if len(names) > 1 or inside.endswith("experts.down_proj") and \
                    self.family not in check_drawn.RENAMED else found[0]
        self.whole.extra = weights
        return torch.func.functional_call(self.whole, values, (tokens[None], beyond))


def merged(weights, adapters, scale):
    out = dict(weights)
    for name in adapters:
        if not name.endswith(".lora_A.weight"):
            continue
        stem = name.removesuffix(".lora_A.weight")
        change = scale * adapters[stem + ".lora_B.weight"] @ adapters[name]
        if ".h." in stem and ".c_" in stem:  # of gpt2
            change = change.T
        out[stem + ".weight"] = weights[stem + ".weight"] + change
    return out


def router_losses(routers, learned, options, config, before):
    """Sums over learned tokens of one sample; counts of each block.
    routers: of each block (logits, chosen); learned: flags of tokens."""
    total, counts = 0, []
    sigmoid = config["model_type"] in SIGMOID
    for i, (logits, chosen) in enumerate(routers):
        experts = logits.shape[-1]
        if experts == 1:
            continue
        count = chosen[learned].flatten().bincount(minlength=experts).to(F64)
        counts.append(count)
        f = count * experts / count.sum().clamp_min(1)
        if options["moe.balance_scope"] == "batch":
            f = before[i] if before else torch.zeros(experts)
        s = torch.sigmoid(logits)
        p = s / s.sum(-1, keepdim=True) if sigmoid else logits.softmax(-1)
        weight = options["moe.balance_loss"] * f
        groups = int(options.get("moe.devices", 0))
        if groups:
            mean = f.view(groups, -1).mean(1, keepdim=True).expand(-1, experts // groups)
            weight = weight + options["moe.device_loss"] * mean.flatten()
        total = total + (p * weight)[learned].sum() \
            + options["moe.z_loss"] * (logits.logsumexp(-1) ** 2)[learned].sum()
    return total, counts


SIGMOID = ("glm4_moe", "deepseek_v3", "glm4_moe_lite", "dots1", "minimax_m2",
           "solar_open", "llama4_text")


def losses(reference, weights, samples, options, step, before):
    """What is differentiated, the loss of the next token, counts of the experts."""
    depth, z = reference.depth, options["train.z_loss"]
    sums, z_sum, routers = [0] * (1 + depth), 0, 0
    targets, counts = [0] * (1 + depth), None
    highest = None
    for sample in samples:
        found, learned = [], []
        for tokens, wanted, later in sample:
            SCORES.clear()
            logits, routed = reference(weights, tokens, later)
            found.append(routed)
            learned.append(wanted >= 0)
            top = [s.flatten(2).max(-1).values[0] for s in SCORES]
            highest = top if highest is None else [
                torch.maximum(a, b) for a, b in zip(highest, top)]
            for k in range(1 + depth):
                goal = torch.full_like(wanted, -1)
                goal[:len(goal) - k] = wanted[k:]
                sums[k] = sums[k] + cross_entropy(logits[k][0], goal, ignore_index=-1,
                                                  reduction="sum")
                targets[k] += (goal >= 0).sum().item()
            z_sum = z_sum + (logits[0][0].logsumexp(-1) ** 2)[wanted >= 0].sum()
        blocks = [(torch.cat([a for a, _ in of]), torch.cat([b for _, b in of]))
                  for of in zip(*found)]
        if blocks:
            one, more = router_losses(blocks, torch.cat(learned), options,
                                      reference.config, before)
            routers = routers + one
            counts = more if counts is None else [a + b for a, b in zip(counts, more)]
    loss = sums[0] / targets[0]
    total = loss + z * z_sum / targets[0] + routers / targets[0]
    weight = options.get("mtp.weight", 0.3)
    if options.get("mtp.weight_steps") and step >= options["mtp.weight_steps"]:
        weight = 0.1
    for k in range(depth):
        if targets[k + 1]:
            total = total + weight / depth * sums[k + 1] / targets[k + 1]
    return total, loss.item(), counts, highest


# Optimizers

def is_inner(name, value):
    """A matrix of a block."""
    return value.dim() == 2 and (".layers." in name or ".h." in name) \
        and not name.endswith(".bias")


class Lion:
    """Chen et al. 2023, algorithm 2. least: of what signs were taken of."""

    def __init__(self, p, o):
        self.m, self.o = torch.zeros_like(p), o
        self.least = torch.full_like(p, math.inf)

    def step(self, p, g, rate, decay, t):
        b1, b2 = self.o["beta1"], self.o["beta2"]
        both = b1 * self.m + (1 - b1) * g
        self.least = torch.minimum(self.least, both.abs())
        update = torch.sign(both)
        self.m = b2 * self.m + (1 - b2) * g
        return p - rate * (update + decay * p)


class ScheduleFree:
    """Defazio et al. 2024, algorithm 1, with the largest rate so far in c. p is y."""

    def __init__(self, p, o):
        self.z, self.x, self.v, self.o = p.clone(), p.clone(), torch.zeros_like(p), o
        self.sum = self.most = 0

    def step(self, p, g, rate, decay, t):
        b1, b2 = self.o["beta1"], self.o["beta2"]
        self.v = b2 * self.v + (1 - b2) * g * g
        u = g / (torch.sqrt(self.v / (1 - b2 ** t)) + self.o["epsilon"]) + decay * p
        self.z = self.z - rate * u
        self.most = max(self.most, rate)
        self.sum += self.most ** 2
        c = self.most ** 2 / self.sum if self.sum else 0
        self.x = (1 - c) * self.x + c * self.z
        return (1 - b1) * self.z + b1 * self.x


class Muon:
    """Jordan et al. 2024."""

    def __init__(self, p, o):
        self.b, self.o = torch.zeros_like(p), o

    def step(self, p, g, rate, decay, t):
        mu = self.o["momentum"]
        self.b = mu * self.b + (1 - mu) * g
        x = mu * self.b + (1 - mu) * g if self.o["nesterov"] else self.b
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        x = x / x.norm().clamp_min(1e-7)
        for _ in range(self.o["ns_steps"]):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        x = x.T if tall else x
        rows, cols = p.shape
        scale = math.sqrt(max(1, rows / cols)) if self.o["adjust"] == "original" \
            else 0.2 * math.sqrt(max(rows, cols))
        return p * (1 - rate * decay) - rate * scale * x


class Torch:
    """One of torch.optim."""

    def __init__(self, p, o):
        self.p = torch.nn.Parameter(p.clone())
        self.inner = {
            "adamw": lambda: torch.optim.AdamW(
                [self.p], lr=0.1, betas=(o["beta1"], o["beta2"]), eps=o["epsilon"]),
            "sgd": lambda: torch.optim.SGD(
                [self.p], lr=0.1, momentum=o["beta1"], nesterov=o["beta1"] > 0),
            "adafactor": lambda: torch.optim.Adafactor(
                [self.p], lr=0.1, eps=(o["epsilon"], 1e-3)),
        }[o["name"]]()

    def step(self, p, g, rate, decay, t):
        self.p.data.copy_(p)
        self.p.grad = g.clone()
        self.inner.param_groups[0].update(lr=rate, weight_decay=decay)
        self.inner.step()
        return self.p.data.clone()


KINDS = {"lion": Lion, "schedule_free": ScheduleFree, "muon": Muon}


def rate_of(o, at, after, steps):
    """Of a step that begins after `at` of `steps` and ends after `after`."""
    peak, least, warm = o["optimizer.lr"], o["optimizer.min_lr"], o["warm"]
    if at < warm:
        return peak * after / warm
    kind, share = o["optimizer.schedule"], o["optimizer.decay_share"]
    progress = min(1, (at - warm) / max(steps - warm, 1e-9))
    if kind == "constant":
        return peak
    if kind == "linear":
        return peak + (least - peak) * progress
    if kind == "cosine":
        return least + (peak - least) * (1 + math.cos(math.pi * progress)) / 2
    if kind == "inverse_sqrt":
        return max(least, peak * math.sqrt(warm / after))
    fall = steps * share
    p = min(1, max(0, (at - (steps - fall)) / fall)) if fall else 0
    return {"linear": lambda: peak + (least - peak) * p,
            "sqrt": lambda: least + (peak - least) * (1 - math.sqrt(p)),
            "cosine": lambda: least + (peak - least) * (1 + math.cos(math.pi * p)) / 2,
            "exponential": lambda: peak * (least / peak) ** p,
            "inverse": lambda: 1 / (p / least + (1 - p) / peak),
            }[o.get("optimizer.decay_type", "linear")]()


OUT = {"gpt2": "attn.c_proj", "gptj": "attn.out_proj", "gpt_neox": "attention.dense",
       "falcon": "self_attention.dense"}


def rules_of(name, decays, o, adapter):
    """Of a parameter: factor of the rate, decay, settings of its optimizer; None:
    frozen."""
    rule = {"lr_factor": 1.0,
            "weight_decay": o["optimizer.weight_decay"] if decays else 0.0,
            "frozen": False}
    for key in ("beta1", "beta2", "epsilon", "momentum", "nesterov", "ns_steps",
                "adjust", "name"):
        rule[key] = o["optimizer." + key]
    rule["nesterov"] = rule["nesterov"] == "true"
    inside = name.replace(".h.", ".layers.").replace("transformer.wte", "embedding")
    inside = inside.replace("ln_", "norm_")  # as Lockstep calls them
    inside = inside.replace(".enorm", ".mtp.embedding_norm")
    for row in o.get("optimizer.groups", []):
        pattern, *words = row.split()
        if pattern == "*wo":
            pattern = f"*{OUT.get(o['family'], 'self_attn.o_proj')}.weight"
        if not any(fnmatch.fnmatchcase(each, pattern) for each in (name, inside)):
            continue
        for word in words:
            key, _, value = word.partition("=")
            if key == "optimizer":
                rule["name"] = value
            else:
                rule[key] = float(value) if value else True
    return None if rule["frozen"] else rule


def mup_of(name, value, o, config, last, kind):
    """Factors of the rate, of epsilon and of the gradient in the norm."""
    base = o.get("model.mup_base_width")
    if not base:
        return 1, 1, 1
    m = (config.get("hidden_size") or config.get("n_embd")) / base
    sgd = kind == "sgd"
    if last in name or "shared_expert_gate" in name or name.endswith(
            (".gate.weight", "router.weight", "router.layer.weight")) \
            and ".experts." not in name:
        return 1 / m, m, 1 / m
    if name.endswith(("sinks", "router.bias")) or "lm_head.bias" in name or (
            name.endswith(("q_norm.weight", "k_norm.weight"))
            and config["model_type"] not in WHOLE_NORMS) or ".norms." in name:
        return 1, 1, 1
    if value.dim() >= 2 and (".layers." in name or ".h." in name) and not \
            name.endswith(("bias",)):
        return (1, 1, 1) if sgd else (1 / m, 1, 1)
    return (m, 1, 1) if sgd else (1, 1, 1)


WHOLE_NORMS = ("olmo2", "olmoe", "flex_olmo", "minimax_m2")
LAST = ("model.norm.", "transformer.ln_f.", "gpt_neox.final_layer_norm.",
        "shared_head.norm")


class Trainer:
    def __init__(self, reference, weights, adapters, o):
        self.reference, self.o = reference, o
        self.frozen = weights if adapters else {}
        self.p = dict(adapters or weights)
        self.biases = {k: v for k, v in self.p.items() if "correction_bias" in k}
        for k in self.biases:
            del self.p[k]
        self.scale = 0
        if adapters:
            rank, alpha = o["lora.rank"], o["lora.alpha"]
            self.scale = alpha / (math.sqrt(rank) if o["lora.rslora"] == "true"
                                  else rank)
        self.rules, self.state, self.factor = {}, {}, {}
        for k, v in self.p.items():
            matrix = v.dim() >= 2 and not k.endswith("bias")
            rule = self.rules[k] = rules_of(k, matrix, o, bool(adapters))
            if rule is None:
                continue
            if rule["name"] == "muon" and not is_inner(k, v):
                rule["name"] = "adamw"
            last = next((one for one in LAST if one in k), "?")
            rate, epsilon, share = mup_of(k, v, o, reference.config, last, rule["name"])
            rule["lr_factor"] *= rate
            rule["epsilon"] *= epsilon
            self.factor[k] = share
            self.state[k] = KINDS.get(rule["name"], Torch)(v, rule)
        self.average = {k: self.p[k].clone() for k in self.state}
        self.t, self.before, self.largest = 0, None, {}

    def values(self):
        return {**self.frozen, **self.p, **self.biases}

    def step(self, samples, rate):
        o, leaves = self.o, {}
        for k, v in self.p.items():
            leaves[k] = v.detach().clone().requires_grad_(k in self.state)
        weights = {**self.frozen, **leaves, **self.biases}
        if self.scale:
            weights = merged(weights, leaves, self.scale)
        total, loss, counts, highest = losses(self.reference, weights, samples, o,
                                              self.t, self.before)
        names = list(self.state)
        grads = torch.autograd.grad(total, [leaves[k] for k in names],
                                    allow_unused=True)
        grads = {k: torch.zeros_like(self.p[k]) if g is None else g
                 for k, g in zip(names, grads)}
        length = math.sqrt(sum((g * self.factor[k]).square().sum().item()
                               for k, g in grads.items()))
        clip = o["optimizer.clip"]
        scale = min(1.0, clip / (length + 1e-6)) if clip else 1.0
        self.t += 1
        for k, g in grads.items():
            rule = self.rules[k]
            self.largest[k] = torch.maximum(
                g.abs(), self.largest.get(k, torch.zeros_like(g)))
            self.p[k] = self.state[k].step(
                self.p[k], g * scale, rate * rule["lr_factor"], rule["weight_decay"],
                self.t).detach()
        self.clip_scores(highest)
        ema = o["optimizer.ema"]
        for k in self.average:
            self.average[k] = ema * self.average[k] + (1 - ema) * self.p[k]
        if counts:
            self.before = [c * len(c) / c.sum() for c in counts]
            for k, c in zip(self.biases, counts if len(self.biases) == len(counts)
                            else []):
                self.biases[k] = self.biases[k] + o["moe.bias_rate"] * torch.sign(
                    c.mean() - c).view_as(self.biases[k])
        return loss, length

    def clip_scores(self, highest):
        tau = self.o.get("optimizer.qk_clip")
        if not tau:
            return
        config = self.reference.config
        heads = config["num_attention_heads"]
        groups = config.get("num_key_value_heads") or heads
        for i, top in enumerate(highest):
            ratio = (tau / top).where(top > tau, torch.ones(heads))
            for each, factor in (("q", ratio if groups < heads else ratio.sqrt()),
                                 ("k", torch.ones(heads) if groups < heads
                                  else ratio.sqrt())):
                for part in ("weight", "bias"):
                    k = f"model.layers.{i}.self_attn.{each}_proj.{part}"
                    if k not in self.state or each == "k" and groups < heads:
                        continue
                    v = self.p[k].view(heads, -1)
                    self.p[k] = (v * factor[:, None]).view_as(self.p[k])
