#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random models of each family, as the installed transformers saves them: does
`lockstep import` read them, compute the same, and export what it reads back?

    python3 tests/golden/check_families.py [LOCKSTEP]

Prints a line for each model: its largest difference of logits, in parts of the
largest logit. Exit 0: all within 1e-5, or skipped because Python libraries are
missing, which is printed; 1: a model that is not.
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"check_families: skipped, {missing.name} is not installed")
    sys.exit(0)

LOCKSTEP = sys.argv[1] if len(sys.argv) > 1 else "build/lockstep"
SIZES = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2,
             num_attention_heads=4, max_position_embeddings=64)
LLAMA = dict(SIZES, intermediate_size=48, num_key_value_heads=2)
GEMMA = dict(LLAMA, head_dim=8, query_pre_attn_scalar=8, sliding_window=16)
GPT = dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 2.0,
        "original_max_position_embeddings": 32}
MODELS = [
    ("llama", LLAMA), ("llama", dict(LLAMA, tie_word_embeddings=True)),
    ("llama", dict(LLAMA, rope_theta=5e5, rope_scaling=LLAMA3)),
    ("llama", dict(LLAMA, rope_scaling=YARN)),
    ("llama", dict(LLAMA, attention_bias=True, mlp_bias=True)),
    ("mistral", dict(LLAMA, sliding_window=16)), ("qwen2", LLAMA),
    ("qwen2", dict(LLAMA, use_sliding_window=True, sliding_window=16,
                   max_window_layers=1)),
    ("qwen3", dict(LLAMA, head_dim=8)), ("gemma", dict(LLAMA, head_dim=8)),
    ("gemma2", GEMMA), ("gemma3_text", GEMMA), ("gemma3", GEMMA),
    ("phi3", LLAMA), ("olmo2", LLAMA), ("smollm3", LLAMA), ("stablelm", LLAMA),
    ("starcoder2", LLAMA), ("gpt_neox", dict(SIZES, intermediate_size=48)),
    ("gpt_neox", dict(SIZES, intermediate_size=48, tie_word_embeddings=True)),
    ("gpt2", GPT), ("gptj", dict(GPT, rotary_dim=4)), ("falcon", SIZES),
    ("falcon", dict(SIZES, num_kv_heads=2, new_decoder_architecture=True)),
]
TOKENS = [[1, 5, 9, 33, 90, 4, 17, 60, 2, 3, 8, 44]]


def make(family, fields):
    """A model whose every weight is random, norms and biases too."""
    eager = {"attn_implementation": "eager"}
    if family == "gemma3":
        config = transformers.Gemma3Config(
            text_config=fields, mm_tokens_per_image=1,
            vision_config=dict(hidden_size=16, intermediate_size=16,
                               num_hidden_layers=1, num_attention_heads=2,
                               image_size=16, patch_size=8))
        model = transformers.Gemma3ForConditionalGeneration._from_config(
            config, **eager)
    else:
        config = transformers.AutoConfig.for_model(
            family, bos_token_id=1, eos_token_id=2, pad_token_id=None,
            **fields)
        model = transformers.AutoModelForCausalLM.from_config(config, **eager)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.1)
    return model.eval()


def run(*words):
    done = subprocess.run([LOCKSTEP, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]}: exit {done.returncode}: "
                           f"{done.stderr.strip()[-400:]}")


def differ(ours, theirs):
    return ((ours.view(theirs.shape) - theirs).abs().max() /
            theirs.abs().max()).item()


def check(family, fields, place):
    files = [os.path.join(place, name) for name in
             ("model", "run", "out", "tokens.json", "logits.safetensors")]
    model, imported, exported, tokens, logits = files
    theirs = make(family, fields)
    theirs.save_pretrained(model)
    run("import", model, imported)
    with open(tokens, "w", encoding="utf-8") as file:
        json.dump(TOKENS, file)
    run("score", imported, "--tokens", tokens, "--logits", logits)
    run("export", imported, exported)
    back = transformers.AutoModelForCausalLM.from_pretrained(
        exported, dtype=torch.float64, attn_implementation="eager")
    with torch.no_grad():
        expected = theirs.double()(torch.tensor(TOKENS)).logits
        again = back.eval()(torch.tensor(TOKENS)).logits
    ours = load_file(logits)["logits"].double()
    return differ(ours, expected), differ(again, expected)


torch.manual_seed(1)
transformers.logging.set_verbosity_error()
bad = 0
for name, sizes in MODELS:
    with tempfile.TemporaryDirectory() as directory:
        try:
            worst = check(name, sizes, directory)
            said = f"import {worst[0]:.1e}, export {worst[1]:.1e}"
            bad += max(worst) > 1e-5
        except RuntimeError as error:
            said = f"FAILED {error}"
            bad += 1
    print(f"{name:12} transformers {transformers.__version__}: {said}")
sys.exit(bad > 0)
