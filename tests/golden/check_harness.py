#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds `lockstep eval` against lm-evaluation-harness on models and tasks made
here: three families, each with a tokenizer of another kind, random weights.

    python3 tests/golden/check_harness.py LOCKSTEP [SEED [MODEL...]]

Needs lm-eval, transformers, tokenizers. Log-likelihoods of every choice and all
metrics must agree to 1e-4 (transformers takes norms and angles in float32).
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from tokenizers import (Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

import make_evaluation as base

CONTEXT = 96
WORDS = ("time person year way day thing man world life hand part child eye "
         "woman place work week case point company number group problem fact "
         "naïve café Straße мир вода 世界 水 東京 señor 🙂 don't it's 3.14 42% "
         "(see) [header] http://a.b/c x_y CamelCase").split()


def sentence(r, least=2, most=12):
    return " ".join(r.choices(WORDS, k=r.randint(least, most)))


def paragraphs(r, count):
    return "\n\n".join(sentence(r, 5, 25) + "." for _ in range(count))


def hellaswag(r, i):
    row = {"activity_label": sentence(r, 1, 3), "ctx_a": sentence(r) + ".",
           "ctx_b": sentence(r, 1, 4), "label": r.randrange(4),
           "endings": [sentence(r) + "." for _ in range(4)]}
    if i % 5 == 1:
        row["ctx_a"] = sentence(r, 120, 160)  # beyond the context
    if i % 5 == 2:
        row["endings"][3] = row["endings"][0]
    if i % 5 == 3:
        row["ctx_b"] = ""
    if i % 5 == 4:
        row["endings"][1] = "[title] " + row["endings"][1] + "  two  spaces"
    return row


def arc(r, i):
    count = 3 + i % 3
    labels = list("ABCDE"[:count]) if i % 2 else [str(k + 1)
                                                 for k in range(count)]
    row = {"question": paragraphs(r, 2) if i % 4 == 0 else sentence(r) + "?",
           "choices": {"text": [sentence(r, 1, 6) for _ in labels],
                       "label": labels},
           "answerKey": r.choice(labels)}
    if i % 7 == 3:
        row["choices"]["text"][0] = row["choices"]["text"][-1]
    return row


def lambada(r, i):
    text = paragraphs(r, 1 + i % 2)[:-1]
    if i % 6 == 1:
        text = "one " + text.split()[0]
    return {"text": text}


def multiple_choice(r, i):
    context = ["", sentence(r), sentence(r) + "\n", paragraphs(r, 3),
               " " + sentence(r) + "  ", "水 🙂\t" + sentence(r)][i % 6]
    choices = [" " + sentence(r, 1, 5) if i % 2 else sentence(r, 1, 5)
               for _ in range(2 + i % 4)]
    return {"context": context, "choices": choices,
            "answer": r.randrange(len(choices))}


def perplexity(r, i):
    return {"text": ["a", "  b\n", paragraphs(r, 6)][i] if i < 3
            else paragraphs(r, 1 + i % 4)}


KINDS = {"hellaswag": hellaswag, "arc": arc, "lambada": lambada,
         "multiple_choice": multiple_choice, "perplexity": perplexity}


def byte_level(corpus):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t, "<|endoftext|>", "<|endoftext|>"


def metaspace(corpus):
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>",
                             fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>", "<s>", "</s>"] +
        [f"<0x{i:02X}>" for i in range(256)]))
    data = json.loads(t.to_str())
    for added in data["added_tokens"][3:]:
        added["special"] = False
    data["added_tokens"] = data["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(data)), "<s>", "</s>"


def unigram(corpus):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    t.decoder = decoders.Replace("▁", " ")
    t.train_from_iterator(corpus, trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"],
        unk_token="<unk>"))
    t.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B",
        special_tokens=[("<bos>", t.token_to_id("<bos>"))])
    return t, "<bos>", "<eos>"


SIZES = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=CONTEXT, initializer_range=0.3)
MODELS = {
    "llama": (byte_level, lambda **f: transformers.LlamaConfig(
        **SIZES, **f)),
    "gpt2": (metaspace, lambda **f: transformers.GPT2Config(
        n_embd=48, n_layer=2, n_head=4, n_positions=CONTEXT,
        initializer_range=0.2, **f)),
    "gemma2": (unigram, lambda **f: transformers.Gemma2Config(
        **SIZES, head_dim=12, sliding_window=40, query_pre_attn_scalar=12,
        **f)),
}


def make_model(name, corpus, directory):
    tokenizer, bos, eos = MODELS[name][0](corpus)
    ids = dict(bos_token_id=tokenizer.token_to_id(bos),
               eos_token_id=tokenizer.token_to_id(eos))
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float32)
    model = transformers.AutoModelForCausalLM.from_config(
        MODELS[name][1](vocab_size=tokenizer.get_vocab_size(), **ids))
    model.save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos,
        "eos_token": eos, "model_max_length": CONTEXT}))


def ours(program, directory, rows, kind, shots):
    path = directory / f"{kind}.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n"
                            for row in rows[kind]))
    said = subprocess.run(
        [program, "eval", str(directory), "--task", str(path), "--kind", kind,
         "--json", "--dtype", "float64", "--out", str(directory / "items"),
         "--shots", str(shots)], check=True, stdout=subprocess.PIPE)
    items = [json.loads(line)
             for line in (directory / "items").read_text().splitlines()]
    return json.loads(said.stdout)["results"][0], items


def compare(found, mine, items, kind):
    worst = 0.0
    samples = sorted(found["samples"][kind], key=lambda s: s["doc_id"])
    assert len(samples) == len(items), kind
    for sample, item in zip(samples, items):
        for got, sum_ in zip(sample["filtered_resps"],
                             item["loglikelihoods"], strict=True):
            got = got[0] if isinstance(got, (tuple, list)) else got
            gap = abs(got - sum_) / max(1, abs(got))
            worst = max(worst, gap)
            assert gap < 1e-4, (kind, item["item"], got, sum_,
                                sample["arguments"])
    names = []
    for name, value in found["results"][kind].items():
        name = name.removesuffix(",none")
        if name not in ("acc", "acc_norm", "perplexity", "word_perplexity",
                        "byte_perplexity", "bits_per_byte"):
            continue
        gap = abs(value - mine[name]) / max(1, abs(value))
        assert gap < 1e-4, (kind, name, value, mine[name])
        names.append(f"{name} {value:.5g}")
    return worst, names


def main():
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    program = sys.argv[1]
    r = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    corpus = [paragraphs(r, 2) for _ in range(200)]
    rows = {k: [make(r, i) for i in range(7 if k == "perplexity" else 42)]
            for k, make in KINDS.items()}
    base.rows_of = lambda kind: rows[kind]
    for name in sys.argv[3:] or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            directory = pathlib.Path(folder) / name
            directory.mkdir()
            make_model(name, corpus, directory)
            model = HFLM(pretrained=str(directory), dtype="float64",
                         device="cpu", batch_size=4, max_length=CONTEXT)
            for shots in (0, 1):
                tasks = base.harness_tasks(folder)
                found = lm_eval.simple_evaluate(
                    model=model, tasks=tasks if shots == 0 else tasks[:3],
                    num_fewshot=shots or None, bootstrap_iters=0)
                for kind in found["results"]:
                    mine, items = ours(program, directory, rows, kind, shots)
                    worst, names = compare(found, mine, items, kind)
                    print(f"{name} {kind} {shots}: {len(items)} items, "
                          f"{worst:.1e}; {', '.join(names)}")
    print(f"check_harness: lm-eval {lm_eval.__version__} agrees")


main()
