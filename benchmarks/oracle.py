#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""oracle.py - whole training steps beside a second trainer, by random settings.

    python3 benchmarks/oracle.py FIRST LAST [--family NAME ...] [--dtype float32] [--ranks]

For each seed from FIRST to LAST - 1 it draws a config.json of any family (that of
tests/golden/check_drawn.py), weights, packed documents with masks, an optimizer, a
schedule, losses of routers and of later tokens, groups, adapters, an average. Lockstep
trains a few steps; a trainer of PyTorch and transformers in float64 trains the same
steps. Rates, losses, gradient norms, and after each step all weights, are compared:
weights relative to the largest change since step 0. Nothing of the second trainer is a
translation of src/: optimizers are torch.optim's or the papers', each document is run
as a sequence of its own, adapters are merged into their matrices before each pass.
Left out: soap, whose bases of gradients of low rank are our own definition, dropout,
jitter and capacities of experts (tests/golden has them), 16 bits. With an epsilon below
1e-6 and with lion, elements are left out whose largest gradient so far is below 1e-12
(float32: 1e-6) of the largest of all, and with lion those whose momentum and gradient
ever added to so little: rounding decides the sign of their update.
--ranks also draws a mesh of 2 to 8 ranks (threads), what they divide, a schedule,
recomputation and, in float32, integer sums; a layout that is refused is drawn again.

Exit 1: something is apart by more than 1e-7 (float32: 1e-3, of the norm of all changes);
its directory is kept and named. Needs torch and transformers. LOCKSTEP names the
program. --store FILE writes the rows and the table.
"""
import argparse
import collections
import datetime
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "golden"))
import check_drawn
import oracle_trainer
from check_drawn import F32, F64, load
from oracle_trainer import Reference, Refused, SIGMOID, Trainer, is_inner, rate_of

PROGRAM = str(pathlib.Path(os.environ.get("LOCKSTEP", "build/lockstep")).resolve())
TOLERANCE = {"float64": 1e-7, "float32": 1e-3}
# Of one window in all blocks or none, and RMS norms: they take modules for later tokens.
LATER = ("llama", "qwen3", "mixtral", "deepseek_v3", "glm4_moe", "olmoe", "gemma")
OPTIMIZERS = ("adamw", "adamw", "lion", "sgd", "schedule_free", "muon", "adafactor")
# Families whose queries and keys QK-clip may scale here.
QK = ("llama", "mistral", "mixtral", "qwen2", "ministral")
# What a draw has, for the table.
FEATURES = {
    "one document a sample sees all": lambda o: o["data.documents"] == "joined",
    "best fit": lambda o: o["data.packing"] == "best_fit",
    "several micro-batches": lambda o: o["train.micro_batch"] > 0,
    "batch ramp": lambda o: "train.batch_ramp" in o,
    "rate by tokens": lambda o: o.get("optimizer.schedule_by") == "tokens",
    "clipping": lambda o: o["optimizer.clip"] > 0,
    "z-loss": lambda o: o["train.z_loss"] > 0,
    "moving average": lambda o: o["optimizer.ema"] > 0,
    "later tokens": lambda o: "mtp.depth" in o,
    "adapters": lambda o: "lora.rank" in o,
    "muP": lambda o: "model.mup_base_width" in o,
    "groups": lambda o: "optimizer.groups" in o,
    "a batch skipped": lambda o: "train.on_nan" in o,
    "QK-clip": lambda o: "optimizer.qk_clip" in o,
    "router losses": lambda o: o["experts"] and (
        o["moe.balance_loss"] > 0 or o["moe.z_loss"] > 0),
    "device loss": lambda o: o.get("moe.device_loss", 0) > 0,
    "selection biases moved": lambda o: o.get("moe.bias_rate", 0) > 0,
    **{f"{axis} ranks": lambda o, axis=axis: axis in o.get("mesh", {})
       for axis in ("data", "shard", "tensor", "pipe", "context", "expert")},
    "divided weights": lambda o: "zero=zero3" in o.get("layout", ()) or
                                 "zero=fsdp" in o.get("layout", ()),
    "integer sums": lambda o: "numerics.sums=integer" in o.get("layout", ())}


def call(*words, cwd, env=None):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True,
                          check=False, cwd=cwd, env={**os.environ, **(env or {})})
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[0]
        if done.returncode not in (65, 78):
            raise RuntimeError(f"exit code {done.returncode}: {said}")
        raise Refused(said)
    return done.stdout


# Data

def crc32c(data):
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def tokens_write(path, documents, masks, vocab, end):
    """A token file as src/data/token_file.h describes it."""
    ids = [i for one in documents for i in one]
    body = struct.pack(f"<{len(ids)}H", *ids)
    body += bytes(-len(body) % 8)
    starts, at = [], 0
    for one in documents:
        starts.append(at)
        at += len(one)
    body += struct.pack(f"<{len(starts) + 1}Q", *starts, at)
    if masks:
        bits = [i for one in masks for i in one]
        body += bytes(sum(bits[j] << j - i for j in range(i, min(i + 8, len(bits))))
                      for i in range(0, len(bits), 8))
    head = b"LSTOKEN1" + struct.pack("<IIQQQQ", 2, end, vocab, len(ids),
                                     len(documents), len(ids)) + bytes(128)
    head += struct.pack("<I", crc32c(body))
    head += struct.pack("<I", crc32c(head)) + struct.pack("<Q", bool(masks))
    path.write_bytes(head + body)


class Data:
    """Documents, and the pieces of them that the samples of a step have."""

    def __init__(self, chance, vocab, masked):
        self.end = 0
        self.documents = [[chance.randrange(1, vocab) for _ in range(
            chance.choice([1, 3, 8, 15, 40]))] + [0] for _ in range(200)]
        self.masks = [[1] * len(one) for one in self.documents]
        for mask in self.masks if masked else []:
            for _ in range(chance.randrange(3)):
                a = chance.randrange(len(mask))
                b = a + chance.randrange(1, 9)
                mask[a:b] = [0] * len(mask[a:b])

    def samples(self, room, sets, step, joined):
        """Of a step: lists of (tokens, targets) of runs that see each other."""
        shown = json.loads(call("data", "show", "run.yaml", *sets, "--json", "--ids",
                                "--step", step, "--samples", 4096, cwd=room))
        rows = shown.get("fragments") or shown["pieces"]
        samples = collections.defaultdict(list)
        for row in rows:
            of, first, count = row["document"], row["first_token"], row["tokens"]
            document, mask = self.documents[of], self.masks[of]
            tokens = document[first:first + count]
            targets = [document[i] if i < len(document) and mask[i] else -1
                       for i in range(first + 1, first + count + 1)]
            if joined and first + count == len(document):
                targets[-1] = self.documents[of + 1][0] \
                    if self.masks[of + 1][0] else -1
            samples[row["sample"]].append((tokens, targets))
        found = [samples[i] for i in sorted(samples)]
        if joined:
            found = [[(sum((a for a, _ in one), []), sum((b for _, b in one), []))]
                     for one in found]
        return [[(torch.tensor(a), torch.tensor(b), later) for (a, b), later in
                 zip(one, beyond([a for a, _ in one]))] for one in found]


def beyond(runs):
    """Of each run, what modules for later tokens read: the tokens 1 and 2 behind, of
    the next document too; at the end of the sample the token itself."""
    whole, at, out = sum(runs, []), 0, []
    for one in runs:
        out.append([torch.tensor([whole[i + k if i + k < len(whole) else i]
                                  for i in range(at, at + len(one))]) for k in (1, 2)])
        at += len(one)
    return out


# Settings

def draw(seed, families):
    """config.json, options, and what else a run has."""
    chance = random.Random(seed * 7919 + 3)
    config = check_drawn.draw(seed, families)
    family, one = config["model_type"], chance.choice
    mixture = any("expert" in key or key == "moe_k" for key in config)
    later = family in LATER and config.get("sliding_window") is None \
        and "dynamic" not in json.dumps(config) and not config.get("use_sliding_window")
    name = one(OPTIMIZERS)
    o = {"seed": seed, "train.dtype": "float64", "train.threads": 1,
         "train.steps": one([5, 7]), "train.batch": one([4, 6, 8]),
         "data.sequence": one([16, 24, 29]), "data.valid_share": 0,
         "data.documents": one(["separate", "separate", "joined"]),
         "data.packing": one(["concat", "concat", "best_fit"]),
         "train.micro_batch": one([0, 1, 2]), "train.z_loss": one([0, 0, 0.01]),
         "moe.balance_loss": one([0, 0.01, 0.5]), "moe.z_loss": one([0, 0.05]),
         "moe.balance_scope": one(["sequence", "sequence", "batch"]),
         "optimizer.name": name, "optimizer.clip": one([0, 0.5, 1]),
         "optimizer.lr": one([1e-3, 1e-2]) * (0.2 if name == "lion" else 1),
         "optimizer.schedule": one(["constant", "linear", "cosine", "wsd"]),
         "optimizer.warmup": one([0, 2]), "optimizer.min_lr": one([0, 1e-4]),
         "optimizer.decay_share": one([0.2, 0.7]),
         "optimizer.beta1": one([0.9, 0.5]), "optimizer.beta2": one([0.95, 0.8]),
         "optimizer.epsilon": one([1e-8, 1e-3]),
         "optimizer.weight_decay": one([0, 0.1, 1]),
         "optimizer.ema": one([0, 0.9]),
         "optimizer.momentum": one([0.95, 0.5]),
         "optimizer.nesterov": one(["true", "false"]),
         "optimizer.ns_steps": one([5, 2]),
         "optimizer.adjust": one(["original", "match_rms_adamw"]),
         "checkpoint.every": 1, "checkpoint.keep_last": 100}
    if o["data.documents"] == "joined":
        o["data.packing"] = "concat"
    if "dynamic" in json.dumps(config) or "long_factor" in json.dumps(config) \
            or family == "llama4_text":  # chunks of the sample: docs/models.md
        o.update({"data.documents": "joined", "data.packing": "concat"})
    if name == "schedule_free":
        o.update({"optimizer.schedule": "constant", "optimizer.ema": 0})
    if name == "adafactor":
        o["optimizer.lr"] = 0.02
    if one([0, 0, 1]):
        half = o["train.batch"] // 2
        o["train.micro_batch"] = one([0, 1])
        o["train.batch_ramp"] = f"[0={half},2={o['train.batch']}]"
        o["optimizer.schedule_by"] = one(["steps", "tokens"])
    if later and one([0, 1]):
        o.update({"mtp.depth": one([1, 2]), "mtp.weight": one([0.3, 0.9]),
                  "mtp.weight_steps": one([0, 2])})
    if mixture and one([0, 1]) and family not in ("gpt_oss", "phimoe"):
        count = next(config[k] for k in ("num_experts", "num_local_experts",
                                         "n_routed_experts", "moe_num_experts")
                     if k in config)
        if count % 2 == 0:
            o.update({"moe.devices": 2, "moe.device_loss": one([0, 0.3])})
    if family in SIGMOID[:-1] or family == "ernie4_5_moe":
        o["moe.bias_rate"] = one([0, 0.01])
    if name in ("adamw", "lion", "sgd", "schedule_free") and not later \
            and one([0, 0, 0, 1]):
        o["model.mup_base_width"] = one([4, 8])
    elif name in ("adamw", "lion", "sgd", "muon") and "mtp.depth" not in o and not \
            mixture and one([0, 0, 1]):
        o.update({"lora.rank": one([2, 3]), "lora.alpha": one([4, 7]),
                  "lora.rslora": one(["true", "false"])})
    if mixture and name == "lion" and 1 in (config.get("num_experts_per_tok"),
                                            config.get("moe_k")):
        o["moe.balance_loss"] = o["moe.balance_loss"] or 0.01 # a gate of 1 has no slope
    if "lora.rank" not in o and one([0, 0, 1]):
        o["optimizer.groups"] = [one([
            "*norm* frozen", "*wo frozen", "*embed* lr_factor=0.3",
            "* weight_decay=0.05", "*layers.0.* lr_factor=2 beta1=0.7",
            "*wo beta1=0.3 beta2=0.6", "*norm* weight_decay=0.4",
            "*norm* optimizer=lion", "*embed* optimizer=sgd",
            "*layers.0.* weight_decay=0.2"]) for _ in range(one([1, 2]))]
    if one([0, 0, 0, 1]):
        o.update({"train.on_nan": "skip", "train.event_lr": one([1, 0.5])})
    if name in ("adamw", "sgd", "muon", "lion") and family in QK and \
            "lora.rank" not in o and one([0, 0, 1]):
        o["optimizer.qk_clip"] = one([0.2, 1.0])
    return config, o, chance


SCHEDULES = ("gpipe", "1f1b", "interleaved", "breadth-first", "zb-h1", "zb-h2", "zb-v",
             "v-half", "dualpipe", "dualpipev")


def layout(chance, o):
    """A mesh, and words of --set, which may be refused."""
    one, mesh, ranks = chance.choice, {}, 1
    for axis, sizes in (("data", (1, 1, 2, 3, 4)), ("shard", (1, 1, 2)),
                        ("tensor", (1, 1, 2, 3)), ("pipe", (1, 1, 2, 3)),
                        ("context", (1, 1, 2)), ("expert", (1, 1, 2))):
        size = one(sizes)
        if size > 1 and ranks * size <= 8 and (axis != "expert" or o["experts"]):
            mesh[axis] = size
            ranks *= size
    words = [f"mesh.{axis}={size}" for axis, size in mesh.items()]
    words += ["zero=" + one(["ddp", "zero1", "zero2", "zero3", "fsdp"]),
              "train.recompute=" + one(["none", "[block]", "[norm,activation]"]),
              f"numerics.grid_data={o['train.batch'] // 2}",
              f"train.micro_batch={one([o['train.micro_batch'], 1, 2])}"]
    if "tensor" in mesh:
        words.append(f"numerics.grid_tensor={mesh['tensor']}")
    if "context" in mesh:
        words += ["numerics.grid_context=2",
                  "context.kind=" + one(["allgather", "ring", "ulysses"])]
    if "pipe" in mesh:
        words.append("schedule.name=" + one(SCHEDULES))
    if o["train.dtype"] == "float32" and one([0, 1]):
        words.append("numerics.sums=integer")
    return mesh, ranks, words


def train(room, sets, o, fault, ranks):
    """Trains in run/, where asked on a layout that is not refused."""
    chance, last = random.Random(o["seed"] * 31 + 5), Refused("no layout was drawn")
    for _ in range(60 if ranks else 1):
        more = []
        if ranks:
            o["mesh"], count, o["layout"] = layout(chance, o)
            if count == 1:
                continue
            more = ["--ranks", count]
            for word in o["layout"]:
                more += ["--set", word]
        try:
            call("train", "run.yaml", "--run", "run", *sets, *more, cwd=room, env=fault)
            return
        except Refused as refusal:
            last = refusal
        if (room / "run").exists():
            raise RuntimeError(f"a refused run was begun: {last}; {o.get('layout')}")
    raise last


# Comparison

def checkpoint(room, run, step):
    """Weights and, of the other file, averages and y."""
    at = room / run / "ckpt" / f"step-{step:08d}"
    found, others = {}, {}
    for file in sorted(at.glob("*.safetensors")):
        (others if file.name.startswith("optim") else found).update(load(file))
    return found, others


def number(gap):
    """A gap that is none is the largest."""
    return math.inf if math.isnan(gap) else gap


def distance(found, wanted, start, ignored, dtype):
    """Largest difference of a tensor, relative to the largest change of all, with the
    tensor's name; in float32 the norm of all differences, of that of all changes."""
    gaps, changes = {}, {}
    for k, w in wanted.items():
        if k not in found:
            raise ValueError(f"no {k} in the checkpoint: it has {sorted(found)[:9]}")
        gaps[k] = (found[k].view_as(w) - w).abs()
        if k in ignored:
            gaps[k] = gaps[k].where(~ignored[k], torch.zeros_like(gaps[k]))
        if k in start:
            changes[k] = (w - start[k]).abs()

    def most(of):
        return max(((number(v.max().item()), k) for k, v in of.items()),
                   default=(0, ""))

    gap, name = most(gaps)
    if dtype == "float64":
        return gap / (most(changes)[0] or 1e-30), name
    return number(math.sqrt(sum(v.square().sum() for v in gaps.values())
                            / sum(v.square().sum() for v in changes.values()))), name


def compare(room, seed, args):
    families, dtype, extra = args.family, args.dtype, args.set
    config, o, chance = draw(seed, families)
    o["train.dtype"], o["family"] = dtype, config["model_type"]
    o["experts"] = any("expert" in key or key == "moe_k" for key in config)
    for word in extra:
        key, _, value = word.partition("=")
        kind = type(o.get(key, value))
        o[key] = (float if kind is int and not value.isdigit() else kind)(value)
    family, depth = config["model_type"], o.get("mtp.depth", 0)
    if depth and "num_nextn_predict_layers" in config:
        config["num_nextn_predict_layers"] = depth
    config.setdefault("tie_word_embeddings", chance.random() < 0.5)
    reference = Reference(room, config, depth)
    weights = reference.draw(torch.Generator().manual_seed(seed))
    save_file({k: v.to(F32).contiguous() for k, v in reference.stored(weights).items()},
              room / "model.safetensors", metadata={"format": "pt"})
    data = Data(chance, config["vocab_size"], chance.random() < 0.5)
    tokens_write(room / "data.tokens", data.documents,
                 data.masks if any(0 in m for m in data.masks) else None,
                 config["vocab_size"], data.end)
    (room / "run.yaml").write_text("version: 1\n")
    given = {k: v for k, v in o.items() if k not in ("family", "experts")}
    if "optimizer.groups" in o:
        given["optimizer.groups"] = json.dumps(o["optimizer.groups"])
    sets = [word for key, value in given.items()
            if not (key.startswith("moe.") and not o["experts"])
            for word in ("--set", f"{key}={value}")]
    sets += ["--set", "model.from=.", "--set", "init.from=.", "--set",
             "data.train=[data.tokens]"]
    adapters = {}
    if depth and family not in ("deepseek_v3", "glm4_moe"):
        weights = begun(room, sets)
    if "lora.rank" in o:
        sets, adapters = adapted(room, sets, weights, o, reference)
    fault = {}
    if "train.on_nan" in o:
        fault = {"LOCKSTEP_FAULT": "train.nan:3"}
    train(room, sets, o, fault, args.ranks)
    rows = [json.loads(line) for line in
            (room / "run" / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["kind"] == "step"]
    joined = o["data.documents"] == "joined"
    steps = o["train.steps"]
    batches = ramp(o)
    queue = []
    for step in range(1, steps + 1):
        queue += data.samples(room, sets, step, joined)
    if fault: # the batch of step 3 is left out
        more = [*sets, "--set", f"train.steps={steps + 1}"]
        queue += data.samples(room, more, steps + 1, joined)
        a = sum(batches[:2])
        del queue[a:a + batches[2]]
    trainer = Trainer(reference, weights, adapters, o)
    start = dict(trainer.p)
    worst = {"rate": (0, ""), "loss": (0, ""), "norm": (0, ""), "weights": (0, "")}
    tokens = 0
    o["warm"] = min(o["optimizer.warmup"], steps)
    by_tokens = o.get("optimizer.schedule_by") == "tokens"
    for step in range(steps):
        batch, row = batches[step], rows[step]
        if by_tokens:
            total = sum(batches[:steps])
            warm, o["warm"] = o["warm"], sum(batches[:o["warm"]])
            rate = rate_of(o, sum(batches[:step]), sum(batches[:step + 1]), total)
            o["warm"] = warm
        else:
            rate = rate_of(o, step, step + 1, steps)
        if fault and step >= 2:
            rate *= o["train.event_lr"]
        loss, length = trainer.step(queue[:batch], rate)
        del queue[:batch]
        for key, found, wanted in (("rate", row["lr"], rate), ("loss", row["loss"], loss),
                                   ("norm", row["grad_norm"], length)):
            gap = number(abs(found - wanted) / max(abs(wanted), 1e-9))
            worst[key] = max(worst[key], (gap, f"step {step + 1}"))
        found, others = checkpoint(room, "run", step + 1)
        if adapters:
            found = {name_of(k): v for k, v in found.items()}
        wanted = dict(trainer.p)
        noise = max(v.max().item() for v in trainer.largest.values()) * (
            1e-12 if dtype == "float64" else 1e-6)
        ignored = {k: v < noise for k, v in trainer.largest.items()} \
            if o["optimizer.epsilon"] < 1e-6 or "lion" in str(o) else {}
        for k, state in trainer.state.items():
            if isinstance(state, oracle_trainer.Lion):
                ignored[k] = ignored[k] | (state.least < noise)
        for k in others:
            stem, _, kind = k.rpartition(".")
            if kind == "ema":
                found[k], wanted[k] = others[k], trainer.average[name_of(stem)]
                ignored[k] = ignored.get(name_of(stem), torch.tensor(False))
            if kind == "y" and stem in wanted:
                found[k], wanted[k] = others[k], trainer.p[stem]
                ignored[k] = ignored.get(stem, torch.tensor(False))
                wanted[stem] = trainer.state[stem].x
        wanted.update(trainer.biases)
        gap, name = distance(found, wanted, start, ignored, dtype)
        worst["weights"] = max(worst["weights"], (gap, f"step {step + 1} {name}"))
        if os.environ.get("SHOW"):
            print(step + 1, row["loss"] - loss, row["grad_norm"] - length, gap, name)
    return config, o, worst


def begun(room, sets):
    """Weights of a run with modules for later tokens, which files of the family
    cannot have, and that run as what others start from."""
    call("train", "run.yaml", "--run", "begun", *sets, "--set", "init.from=", "--set",
         "optimizer.lr=0", "--set", "optimizer.min_lr=0", "--set", "train.steps=1",
         "--set", "model.init_std=0.15", "--set", "optimizer.qk_clip=0", "--set",
         "optimizer.schedule=constant", cwd=room)
    sets[sets.index("init.from=.")] = "init.from=begun"
    return checkpoint(room, "begun", 1)[0]


def ramp(o):
    if "train.batch_ramp" not in o:
        return [o["train.batch"]] * (o["train.steps"] + 1)
    return [o["train.batch"] // 2] * 2 + [o["train.batch"]] * (o["train.steps"] - 1)


def name_of(name):
    """Of an adapter in a checkpoint, as PEFT has it."""
    return name.removeprefix("base_model.model.")


def adapted(room, sets, weights, o, reference):
    """A run with adapters at step 0, and settings that go on with it."""
    generator = torch.Generator().manual_seed(o["seed"])
    rank, adapters, modules = o["lora.rank"], {}, set()
    for name, value in weights.items():
        if not is_inner(name, value):
            continue
        stem = name.removesuffix(".weight")
        rows, cols = value.shape if ".c_" not in name or "starcoder2" == \
            reference.family else value.shape[::-1]
        modules.add(stem.rpartition(".")[2])
        adapters[stem + ".lora_A.weight"] = torch.randn(
            rank, cols, generator=generator, dtype=F64) / math.sqrt(cols)
        adapters[stem + ".lora_B.weight"] = 0.1 * torch.randn(
            rows, rank, generator=generator, dtype=F64)
    adapters = {k: v.to(F32).to(F64) for k, v in adapters.items()}
    (room / "adapter").mkdir()
    save_file({"base_model.model." + k: v.to(F32).contiguous()
               for k, v in adapters.items()},
              room / "adapter" / "adapter_model.safetensors")
    (room / "adapter" / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank,
         "lora_alpha": o["lora.alpha"], "use_rslora": o["lora.rslora"] == "true",
         "target_modules": sorted(modules)}))
    call("import", ".", "adapted", "--adapter", "adapter", cwd=room)
    left = [w for i in range(0, len(sets), 2) for w in sets[i:i + 2]
            if not sets[i + 1].startswith(("lora.", "model.from", "init.from"))]
    for key in ("model", "init", "lora"):
        left += ["--set", f"{key}.from=adapted"]
    return left, adapters


def one(seed, args, room):
    """A row of the table."""
    config, o, _ = draw(seed, args.family)
    row = {"seed": seed, "family": config["model_type"],
           "optimizer": o["optimizer.name"]}
    try:
        config, o, worst = compare(room, seed, args)
    except Refused as refusal:
        return {**row, "refused": str(refusal)}
    except (ValueError, KeyError, RuntimeError) as error:
        return {**row, "failed": str(error)}
    row["schedule"] = o["optimizer.schedule"]
    row["has"] = [name for name, has in FEATURES.items() if has(o)]
    if args.ranks:
        row["layout"] = o["layout"]
    row.update({key: gap for key, (gap, _) in worst.items()})
    if max(gap for gap, _ in worst.values()) > TOLERANCE[args.dtype]:
        row["failed"] = "; ".join(f"{k}: {at}" for k, (_, at) in worst.items())
    return row


def table(rows):
    """Lines: what was compared, how often, and the largest distances."""
    rows = [row for row in rows if "weights" in row]
    names = [("all", rows)]
    for key in ("optimizer", "schedule", "family"):
        names += [(value, [row for row in rows if row[key] == value])
                  for value in sorted({row[key] for row in rows})]
    names += [(name, [row for row in rows if name in row["has"]]) for name in FEATURES]
    for name, of in names:
        if of:
            yield f"{name:32}{len(of):5}" + "".join(
                f"{max(row[key] for row in of):10.0e}" for key in (
                    "rate", "loss", "norm", "weights"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--family", nargs="*")
    parser.add_argument("--dtype", default="float64", choices=TOLERANCE)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--store", metavar="FILE")
    args = parser.parse_args()
    args.family = args.family or list(check_drawn.FAMILIES)
    transformers.logging.set_verbosity_error()
    check_drawn.float64_throughout()
    torch.nn.functional.softmax = oracle_trainer.softmax_watched
    torch.set_num_threads(1)
    rows = []
    for seed in range(args.first, args.last):
        room = pathlib.Path(tempfile.mkdtemp(prefix=f"oracle-{seed}-"))
        row = one(seed, args, room)
        rows.append(row)
        print(json.dumps(row), flush=True)
        if "failed" in row or args.keep:
            print(f"    kept: {room}")
        else:
            shutil.rmtree(room)
        if args.store: # also where it is ended early
            pathlib.Path(args.store).write_text(json.dumps(
                {"date": str(datetime.date.today()), "command": sys.argv,
                 "torch": torch.__version__, "transformers": transformers.__version__,
                 "table": list(table(rows)), "rows": rows}, indent=1) + "\n")
    print(f"{'':32}seeds      rate      loss      norm   weights")
    print("\n".join(table(rows)))
    sys.exit(any("failed" in row for row in rows))


if __name__ == "__main__":
    main()
