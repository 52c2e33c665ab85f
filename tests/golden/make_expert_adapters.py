#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/adapters/experts*: low-rank adapters beside experts and
routers, as peft makes and saves them with transformers 5, whose models keep all
experts of a block in one parameter; and the logits in float64.

    python3 tests/golden/make_expert_adapters.py [NAME...]

peft changes names of single experts (w1, w2, w3) to such parameters and doubles
the rank of what w1 and w3 were. It merges them, in float64; transformers
computes the logits with float64 throughout (check_drawn.py). All was made with
peft 0.21.2 on transformers 5.24.0 on 2026-11-28.
"""
import json
import pathlib
import shutil
import sys

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

import check_drawn
from make_parts import inner_float64

HERE = pathlib.Path(__file__).parent

# name: model, and what peft is asked for
CASES = {
    "experts": ("mixtral", dict(
        r=2, lora_alpha=3, target_modules=["q_proj", "w1", "w2", "w3"],
        target_parameters=["mlp.gate.weight"])),
    "experts_apart": ("deepseek_v3", dict(
        r=3, lora_alpha=4, target_modules=None,
        target_parameters=["1.mlp.experts.down_proj",
                           "model.layers.2.mlp.experts.down_proj",
                           "experts.gate_up_proj"],
        rank_pattern={"experts.gate_up_proj": 1},
        alpha_pattern={r".*\.gate_up_proj": 5})),
    "experts_pairs": ("gpt_oss", dict(
        r=2, lora_alpha=3, target_modules=["o_proj"],
        target_parameters=["experts.gate_up_proj", "experts.down_proj",
                           "router.weight"])),
    "experts_turned": ("llama4", dict(
        r=2, lora_alpha=3, target_modules=["o_proj"],
        target_parameters=["experts.gate_up_proj", "experts.down_proj",
                           "router.weight"],
        alpha_pattern={"experts.gate_up_proj": 7})),
    # as peft up to 0.18 took [experts, in, out], which nothing told it
    "experts_straight": ("llama4", dict(
        r=2, lora_alpha=5, target_modules=None,
        target_parameters=["experts.down_proj", "experts.gate_up_proj"])),
}


def make(name):
    base, settings = CASES[name]
    source = HERE / "models" / base
    target = HERE / "adapters" / name
    tokens = torch.tensor(
        json.loads((source / "tokens.json").read_text()))[:2, :11]
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float64, attn_implementation="eager",
        experts_implementation="eager")
    if name == "experts_straight":
        for module in model.modules():
            if hasattr(module, "gate_up_proj"):
                module.is_transposed = True
    model = peft.get_peft_model(
        model, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
    generator = torch.Generator().manual_seed(len(name))
    for inside, value in model.named_parameters():
        if "lora_" in inside:
            drawn = torch.randn(value.shape, generator=generator) / 3
            value.data.copy_(drawn.to(value.dtype))
    shutil.rmtree(target, ignore_errors=True)
    model.save_pretrained(target)
    (target / "README.md").unlink(missing_ok=True)
    values = load_file(target / "adapter_model.safetensors")
    save_file({k: v.to(torch.float32).contiguous() for k, v in values.items()},
              target / "adapter_model.safetensors", metadata={"format": "pt"})
    asked = json.loads((target / "adapter_config.json").read_text())
    asked["base_model_name_or_path"] = base
    for key in ("target_modules", "target_parameters"):
        if isinstance(asked.get(key), list):
            asked[key].sort()  # a set, in any order
    (target / "adapter_config.json").write_text(
        json.dumps(asked, indent=1, sort_keys=True) + "\n")
    (target / "base.json").write_text(json.dumps({"model": base}) + "\n")
    (target / "tokens.json").write_text(json.dumps(tokens.tolist()) + "\n")
    with torch.no_grad():
        theirs = model(tokens, use_cache=False).logits
    merged = model.merge_and_unload().state_dict()
    with inner_float64():
        exact = check_drawn.build(source)
        exact.load_state_dict(merged)
        with torch.no_grad():
            logits = exact(tokens, use_cache=False).logits
    worst = ((logits - theirs).abs().max() / logits.abs().max()).item()
    assert worst < 1e-5, (name, worst)
    save_file({"logits": logits.to(torch.float64).contiguous()},
              target / "logits.safetensors")
    print(f"{name}: {len(values)} tensors beside {base}, transformers with "
          f"peft differs by {worst:.1e}")


transformers.logging.set_verbosity_error()
for case in sys.argv[1:] or CASES:
    make(case)
