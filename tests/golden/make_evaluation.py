#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes evaluation/: a tiny model, tasks, and what they must say of it.

    python3 tests/golden/make_evaluation.py [--keep | --check-only]

--keep: with the model and the records that are there. --check-only: asks the
harness and writes nothing.

    model/               a Llama of 2 layers with its tokenizer, trained here for
                         some seconds on the sentences below
    *.jsonl              one file of records for each kind of task
    tokenizer_bos.json   the tokenizer with a template that begins each text
    expected.json        log-likelihoods (float64) and metrics, task by task:
                         KIND-SHOTS, with the template KIND-0-bos

Everything is made up here. Likelihoods come from oracle.py in float64, tokens
from the `tokenizers` library; the rules of lm-evaluation-harness are written
down again below. Where the harness itself can be imported (lm-eval 0.4.13), it
is run on the same files and must agree.
"""
import json
import math
import pathlib
import random
import re
import shutil
import statistics
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import oracle

HERE = pathlib.Path(__file__).parent / "evaluation"
CONTEXT, END = 160, "<|endoftext|>"
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 0,
    "dtype": "float32", "head_dim": 8, "hidden_act": "silu",
    "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 64,
    "max_position_embeddings": CONTEXT, "mlp_bias": False,
    "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_scaling": None,
    "rope_theta": 10000.0, "tie_word_embeddings": True,
    "transformers_version": "5.23.0", "use_cache": True, "vocab_size": 320,
}
FACTS = {"fox": "berries", "owl": "mice", "hare": "clover", "otter": "fish",
         "mole": "worms", "heron": "frogs", "toad": "flies", "jay": "acorns"}
PLACES = {"fox": "wood", "owl": "barn", "hare": "field", "otter": "river",
          "mole": "ground", "heron": "marsh", "toad": "garden", "jay": "oak"}
WHEN = ["in the morning", "at night", "after the rain", "all winter"]


def sentence(r):
    who = r.choice(sorted(FACTS))
    return r.choice([
        f"The {who} eats {FACTS[who]} {r.choice(WHEN)}.",
        f"The {who} lives in the {PLACES[who]}.",
        f"{r.choice(WHEN).capitalize()} the {who} looks for {FACTS[who]}."])


def text(r, count):
    return " ".join(sentence(r) for _ in range(count))


# ---- the model ----

def make_tokenizer(corpus):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"], special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    assert tokenizer.get_vocab_size() == CONFIG["vocab_size"]
    return tokenizer


def train(tokenizer, corpus):
    generator = torch.Generator().manual_seed(11)
    weights = {name: value.clone().requires_grad_() for name, value in
               oracle.weights_random(CONFIG, generator, 0.08).items()}
    ids = torch.tensor(tokenizer.encode(" ".join(corpus)).ids)
    optimizer = torch.optim.AdamW(weights.values(), lr=4e-3)
    for _ in range(120):
        at = torch.randint(len(ids) - 65, (16,), generator=generator)
        batch = torch.stack([ids[i:i + 65] for i in at.tolist()])
        loss, _ = oracle.next_token_loss(CONFIG, weights, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"trained to a loss of {loss.item():.3f}")
    return {name: value.detach().to(torch.float32)
            for name, value in weights.items()}


# ---- the records ----

def distractors(r, right, count):
    return r.sample(sorted(set(FACTS.values()) - {right}), count)


def hellaswag(r):
    who = r.choice(sorted(FACTS))
    right = f"eats {FACTS[who]} {r.choice(WHEN)}."
    endings = [right] + [f"eats {x} {r.choice(WHEN)}." for x in
                         distractors(r, FACTS[who], 3)]
    endings[2] = endings[2].replace("eats", "[step] eats") + "  "
    r.shuffle(endings)
    label = next(i for i, e in enumerate(endings) if FACTS[who] in e)
    return {"activity_label": r.choice(["Nature walk", "[header] Animals"]),
            "ctx_a": text(r, r.randint(1, 4)) + r.choice(
                ["", " [title] Food", " [substeps] A [b] note.\nAnd [open"]),
            "ctx_b": r.choice([f"the {who}", f"THE {who.upper()}",
                               f"éA {who}"]),
            "endings": endings, "label": r.choice([label, str(label)])}


def arc(r):
    who = r.choice(sorted(FACTS))
    choices = [FACTS[who]] + distractors(r, FACTS[who], r.choice([2, 3, 4]))
    r.shuffle(choices)
    labels = r.choice(["ABCDE", "12345"])[:len(choices)]
    key = labels[choices.index(FACTS[who])]
    question = f"What does the {who} eat {r.choice(WHEN)}?"
    if r.random() < 0.3:  # the first form of the files
        return {"question": {"stem": question, "choices": [
            {"text": t, "label": x} for t, x in zip(choices, labels)]},
            "answerKey": key}
    return {"question": question, "answerKey": key,
            "choices": {"text": choices, "label": list(labels)}}


def lambada(r):
    who = r.choice(sorted(FACTS))
    return {"text": text(r, r.randint(1, 16)) + r.choice(
        [f" The {who} lives in the {PLACES[who]}", f" The {who} eats "
         f"{FACTS[who]}", f"\nThe {who} is an über–animal"])}


def multiple_choice(r):
    who = r.choice(sorted(FACTS))
    choices = [PLACES[who]] + r.sample(sorted(set(PLACES.values()) -
                                              {PLACES[who]}), 2)
    r.shuffle(choices)
    answer = choices.index(PLACES[who])
    return {"context": r.choice(["", f"The {who} lives in the",
                                 f"{text(r, 14)} The {who} lives in the ",
                                 f"{text(r, 5)}\nThe {who} lives in the \n"]),
            "choices": choices,
            "answer": r.choice([answer, PLACES[who], "ABC"[answer]])}


def perplexity(r):
    return {"text": r.choice(["", " \n"]) + text(r, r.choice([1, 3, 20, 45])) +
            r.choice(["", "\n", " – naïve 猫\t", "   "])}


KINDS = {"hellaswag": hellaswag, "arc": arc, "lambada": lambada,
         "multiple_choice": multiple_choice, "perplexity": perplexity}


# ---- the rules of the harness ----

def clean(string):
    string = string.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", string).replace("  ", " ")


def item_of(kind, row):
    """Context, choices, index of the right one."""
    if kind == "hellaswag":
        context = row["ctx_a"] + " " + row["ctx_b"].capitalize()
        return (clean(row["activity_label"] + ": " + context),
                [clean(e) for e in row["endings"]], int(row["label"]))
    if kind == "arc":
        question, choices = row["question"], row.get("choices")
        if isinstance(question, dict):
            choices = {k: [c[k] for c in question["choices"]]
                       for k in ("text", "label")}
            question = question["stem"]
        return (f"Question: {question}\nAnswer:", choices["text"],
                choices["label"].index(row["answerKey"]))
    if kind == "lambada":
        words = row["text"].split(" ")
        return " ".join(words[:-1]), [words[-1]], 0
    answer = row["answer"]
    if answer in row["choices"]:
        answer = row["choices"].index(answer)
    elif isinstance(answer, str):
        answer = "ABC".index(answer)
    return row["context"], row["choices"], answer


class Model:
    def __init__(self, first=()):
        self.first = list(first)  # before every text
        self.weights = {name: value.to(torch.float64) for name, value in
                        load_file(HERE / "model/model.safetensors").items()}
        self.tokenizer = Tokenizer.from_file(str(HERE / "model/tokenizer.json"))

    def encode(self, string, first=None):
        first = self.first if first is None else first
        ids = self.tokenizer.encode(string, add_special_tokens=False).ids
        return ids if first and ids[:1] == first[:1] else first + ids

    def ids(self, context, continuation):
        """Log-likelihood of the continuation's tokens, and whether each is the
        likeliest one."""
        ids = (context + continuation)[-(CONTEXT + 1):]
        logits = oracle.logits_of(CONFIG, self.weights,
                                  torch.tensor([ids[:-1]]))[0]
        targets = torch.tensor(continuation)
        logits = logits[-len(targets):]
        chosen = torch.log_softmax(logits, -1).gather(1, targets[:, None])
        return (chosen.sum().item(),
                bool((logits.argmax(-1) == targets).all()))

    def pair(self, context, continuation):
        if context == "":
            return self.ids([0], self.encode(continuation, []))
        kept = context.rstrip()
        continuation = context[len(kept):] + continuation
        before = self.encode(kept)
        return self.ids(before, self.encode(kept + continuation)[len(before):])

    def document(self, string):
        ids = [0] + self.encode(string)
        total = 0.0
        for first in range(1, len(ids), CONTEXT):
            part = ids[first:first + CONTEXT]
            end = first + len(part)
            before = ids[max(0, end - CONTEXT - 1):first]
            total += self.ids(before, part)[0]
        return total


def mean_of(values):
    n = len(values)
    return sum(values) / n, statistics.stdev(values) / math.sqrt(n)


def shots_before(items, index, count):
    others = [x for i, x in enumerate(items) if i != index][:count]
    return "".join(f"{context} {choices[answer]}\n\n"
                   for context, choices, answer in others)


def evaluate(model, kind, rows, shots):
    if kind == "perplexity":
        texts = [row["text"] for row in rows]
        sums = [model.document(t) for t in texts]
        words = sum(len(re.split(r"\s+", t)) for t in texts)
        size = sum(len(t.encode()) for t in texts)
        return {"loglikelihoods": [[s] for s in sums], "metrics": {
            "word_perplexity": math.exp(-sum(sums) / words),
            "byte_perplexity": math.exp(-sum(sums) / size),
            "bits_per_byte": -sum(sums) / size / math.log(2)}}
    items = [item_of(kind, row) for row in rows]
    sums, greedy, right = [], [], {"acc": [], "acc_norm": [], "acc_bytes": []}
    for i, (context, choices, answer) in enumerate(items):
        context = shots_before(items, i, shots) + context
        found = [model.pair(context, " " + c) for c in choices]
        sums.append([f[0] for f in found])
        greedy.append(found[0][1])
        for name, size in (("acc", lambda c: 1), ("acc_norm", len),
                           ("acc_bytes", lambda c: len(c.encode()))):
            weighed = [f[0] / size(c) for f, c in zip(found, choices)]
            right[name].append(float(weighed.index(max(weighed)) == answer))
    if kind == "lambada":
        right = {"acc": [float(g) for g in greedy]}
    metrics = {}
    for name, values in right.items():
        metrics[name], metrics[name + "_stderr"] = mean_of(values)
    if kind == "lambada":
        metrics["perplexity"] = math.exp(-mean_of([s[0] for s in sums])[0])
    return {"loglikelihoods": sums, "metrics": metrics}


# ---- the harness itself ----

def harness_tasks(directory):
    """The YAML of its own tasks, with files of ours: the `datasets` library
    wants every row of one type, so questions stand there as items."""
    def task(kind, rows, **fields):
        path = pathlib.Path(directory) / f"{kind}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {"task": kind, "dataset_path": "json", "test_split": "test",
                "dataset_kwargs": {"data_files": {"test": str(path)}},
                **fields}

    def questions(kind):
        rows = [dict(zip(("query", "options", "gold"), item_of(kind, row)))
                for row in rows_of(kind)]
        return task(kind, rows, output_type="multiple_choice",
                    fewshot_split="test",
                    fewshot_config={"sampler": "first_n"},
                    doc_to_text="{{query}}", doc_to_target="gold",
                    doc_to_choice="options",
                    metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}])
    tasks = [questions(k) for k in ("hellaswag", "arc", "multiple_choice")]
    tasks.append(task(
        "lambada", rows_of("lambada"), output_type="loglikelihood",
        doc_to_text="{{text.split(' ')[:-1]|join(' ')}}",
        doc_to_target="{{' '+text.split(' ')[-1]}}",
        metric_list=[{"metric": "perplexity"}, {"metric": "acc"}]))
    tasks.append(task(
        "perplexity", rows_of("perplexity"),
        output_type="loglikelihood_rolling", doc_to_text="",
        doc_to_target="text", metric_list=[
            {"metric": m} for m in ("word_perplexity", "byte_perplexity",
                                    "bits_per_byte")]))
    return tasks


def close(a, b, tolerance):
    return abs(a - b) <= tolerance * max(1.0, abs(b))


def model_with_template(directory):
    directory = pathlib.Path(directory) / "model"
    shutil.copytree(HERE / "model", directory)
    shutil.copy(HERE / "tokenizer_bos.json", directory / "tokenizer.json")
    return directory


def check_harness(expected):
    """transformers' norms and angles are float32, so to about 1e-5."""
    try:
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM
    except ImportError as error:
        print(f"the harness was not asked: {error}")
        return
    import lm_eval
    from lm_eval.tasks.hellaswag.utils import preprocess
    for row in rows_of("hellaswag"):
        for string in [row["ctx_a"]] + row["endings"]:
            assert clean(string) == preprocess(string)
    for shots, name in ((0, "0"), (2, "2"), (0, "0-bos")):
        with tempfile.TemporaryDirectory() as directory:
            path = (model_with_template(directory) if name == "0-bos"
                    else HERE / "model")
            model = HFLM(pretrained=str(path), dtype="float64", device="cpu",
                         batch_size=3)
            tasks = harness_tasks(directory)
            found = simple_evaluate(
                model=model, tasks=tasks if shots == 0 else tasks[:3],
                num_fewshot=shots or None, bootstrap_iters=1000)
        compare_with_harness(found, expected, name)
    print(f"lm-eval {lm_eval.__version__} agrees")


def compare_with_harness(found, expected, shots):
    for kind, values in found["results"].items():
        want = expected[f"{kind}-{shots}"]
        samples = sorted(found["samples"][kind], key=lambda s: s["doc_id"])
        for sample, sums in zip(samples, want["loglikelihoods"]):
            for got, ours in zip(sample["filtered_resps"], sums):
                got = got[0] if isinstance(got, (tuple, list)) else got
                assert close(got, ours, 1e-4), (kind, got, ours)
        for name, value in want["metrics"].items():
            if name == "acc_bytes" or name == "acc_bytes_stderr":
                continue
            key = name + ",none"
            if name.endswith("_stderr"):
                key = name[:-7] + "_stderr,none"
            assert close(values[key], value, 1e-4), (kind, name, values[key],
                                                     value)
            print(f"{kind}-{shots:<16} {name:16} {values[key]:.9g} = "
                  f"{value:.9g}")


def rows_of(kind):
    return [json.loads(line) for line in
            (HERE / f"{kind}.jsonl").read_text().splitlines()]


def write_template():
    tokenizer = json.loads((HERE / "model/tokenizer.json").read_text())
    end = {"SpecialToken": {"id": END, "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [end, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [end, {"Sequence": {"id": "A", "type_id": 0}},
                 {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {END: {"id": END, "ids": [0], "tokens": [END]}}}
    (HERE / "tokenizer_bos.json").write_text(json.dumps(
        tokenizer, indent=2, ensure_ascii=False) + "\n")


def make():
    r = random.Random(7)
    (HERE / "model").mkdir(parents=True, exist_ok=True)
    corpus = [text(r, 4) for _ in range(300)]
    tokenizer = make_tokenizer(corpus)
    tokenizer.save(str(HERE / "model/tokenizer.json"))
    save_file(train(tokenizer, corpus), HERE / "model/model.safetensors",
              metadata={"format": "pt"})
    (HERE / "model/config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (HERE / "model/tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END,
        "eos_token": END, "model_max_length": CONTEXT}) + "\n")
    for kind, make_row in KINDS.items():
        rows = [make_row(r) for _ in range(10 if kind == "perplexity" else 24)]
        (HERE / f"{kind}.jsonl").write_text("".join(
            json.dumps(row, ensure_ascii=i % 2 == 0) + "\n"
            for i, row in enumerate(rows)))


def main():
    if "--keep" not in sys.argv[1:] and "--check-only" not in sys.argv[1:]:
        make()
    if "--check-only" not in sys.argv[1:]:
        write_template()
        model, begun = Model(), Model([0])
        expected = {}
        for kind in KINDS:
            for shots in (0, 2) if kind != "perplexity" else (0,):
                expected[f"{kind}-{shots}"] = evaluate(model, kind,
                                                       rows_of(kind), shots)
            expected[f"{kind}-0-bos"] = evaluate(begun, kind, rows_of(kind), 0)
        (HERE / "expected.json").write_text(json.dumps(expected, indent=1) +
                                            "\n")
    check_harness(json.loads((HERE / "expected.json").read_text()))


if __name__ == "__main__":
    main()
