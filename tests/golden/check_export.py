#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens an exported directory with transformers and compares its logits.

    python3 tests/golden/check_export.py DIR TOKENS.json LOGITS.safetensors [TOLERANCE]
    ... --adapter ADAPTER: DIR is the base model; peft puts ADAPTER beside it

LOGITS is what `lockstep score MODEL --tokens TOKENS.json --logits LOGITS` wrote.
Exit 0: equal within TOLERANCE (1e-5) of the largest logit, or skipped because
Python libraries are missing, which is printed; 1: different.
"""
import json
import sys

adapter = None
if len(sys.argv) > 5 and sys.argv[-2] == "--adapter":
    adapter = sys.argv.pop()
    sys.argv.pop()
if len(sys.argv) not in (4, 5):
    sys.exit(__doc__)
try:
    import torch
    import transformers
    from safetensors.torch import load_file
    if adapter is not None:
        import peft
except ImportError as missing:
    print(f"check_export: skipped, {missing.name} is not installed")
    sys.exit(0)

directory, tokens_path, logits_path = sys.argv[1:4]
tolerance = float(sys.argv[4]) if len(sys.argv) == 5 else 1e-5
with open(tokens_path, encoding="utf-8") as file:
    tokens = torch.tensor(json.load(file))
model, loading = transformers.AutoModelForCausalLM.from_pretrained(
    directory, dtype=torch.float64, attn_implementation="eager",
    output_loading_info=True)
model.eval()
if any("experts" in name for name, _ in model.named_parameters()):
    model.set_experts_implementation("eager")  # others do not take float64
for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
    if loading[kind]:
        sys.exit(f"check_export: {kind}: {sorted(loading[kind])}")
if adapter is not None:
    model = peft.PeftModel.from_pretrained(model, adapter).eval()
with torch.no_grad():
    theirs = model(tokens).logits
ours = load_file(logits_path)["logits"].to(torch.float64)
if ours.shape != theirs.shape:
    sys.exit(f"check_export: shapes {list(ours.shape)}, {list(theirs.shape)}")
worst = ((ours - theirs).abs().max() / theirs.abs().max()).item()
print(f"check_export: {directory}: logits differ by {worst:.1e} of the largest")
sys.exit(worst > tolerance)
