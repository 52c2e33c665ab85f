#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares conversations with chat templates in Jinja, token by token.

    pip install tokenizers==0.23.3 jinja2
    python3 tests/golden/check_chat.py LOCKSTEP FIRST LAST

For each seed from FIRST to LAST - 1 it draws a conversation, renders it with the
family's template in Jinja, as apply_chat_template does, and encodes the whole text with
`tokenizers`. `LOCKSTEP tokenize --chat` must write the same ids. Answers begin with a
letter behind white space that templates drop, so that no token has a part of one and of
what stands before. Exit 1: a conversation has other ids.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer

import tokenizer_fuzz
import tokenizer_golden

HERE = pathlib.Path(__file__).parent / "tokenizer"
EACH = "{% for message in messages %}"
TEMPLATES = {
    "llama3": EACH + "{% set content = '<|start_header_id|>' + message['role'] + "
              "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' %}"
              "{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
              "{% endif %}{{ content }}{% endfor %}",
    "chatml": EACH + "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
              "'<|im_end|>' + '\n'}}{% endfor %}",
    "gemma": "{{ bos_token }}" + EACH + "{% if message['role'] == 'assistant' %}"
             "{% set role = 'model' %}{% else %}{% set role = message['role'] %}"
             "{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim"
             " + '<end_of_turn>\n' }}{% endfor %}",
    "phi3": EACH + "{{ '<|' + message['role'] + '|>\\n' + message['content'] + "
            "'<|end|>\\n' }}{% endfor %}",
    "zephyr": EACH + "{{ '<|' + message['role'] + '|>\\n' + message['content'] + "
              "eos_token + '\\n' }}{% endfor %}"}
# Typed by hand, for messages without tools; those of Phi-3 and Zephyr name each role.
# The tokenizer, the first token, what is added to it.
KINDS = {
    "llama3": ("gpt2.json", "<|begin_of_text|>",
               ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                "<|eot_id|>")),
    "chatml": ("qwen2.json", "", ("<|im_start|>", "<|im_end|>")),
    "gemma": ("families/gemma.json", "<bos>",
              ("<bos>", "<start_of_turn>", "<end_of_turn>")),
    "phi3": ("families/phi3.json", "", ("<|assistant|>", "<|system|>")),
    "zephyr": ("families/mistral.json", "", ())}


def conversation(chance, names):
    """Messages without the tokenizer's own tokens, but those of templates."""
    messages = []
    for _ in range(chance.randint(1, 3)):
        for role in ("user", "assistant"):
            text = tokenizer_fuzz.random_text(
                chance, tokenizer_golden.TRAINING.split())[:80]
            if role == "assistant":
                text = chance.choice(["", "\u3000", "Three"]) + "A" + text
            for name in (*names, "\0"):
                text = text.replace(name, "")
            messages.append({"role": role, "content": text})
    return messages


def ids_of(path):
    """Of the one document of a token file (src/data/token_file.h), but the last."""
    data = path.read_bytes()
    vocab, count = struct.unpack("<QQ", data[16:32])
    size, kind = (2, "H") if vocab <= 65536 else (4, "I")
    return list(struct.unpack(f"<{count}{kind}", data[192:192 + size * count]))[:-1]


def check(lockstep, seed, room):
    """The ids that are found, and those of the library."""
    chance, name = random.Random(seed), list(TEMPLATES)[seed % len(TEMPLATES)]
    base, begin, more = KINDS[name]
    tokenizer = Tokenizer.from_file(str(HERE / base))
    if more:
        tokenizer.add_special_tokens([AddedToken(
            word, rstrip=name == "phi3", normalized=False) for word in more])
    tokenizer.save(str(room / "tokenizer.json"))
    added = json.loads(tokenizer.to_str())["added_tokens"]
    messages = conversation(chance, [token["content"] for token in added])
    (room / "one.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    text = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True).from_string(TEMPLATES[name]).render(
            messages=messages, bos_token=begin, eos_token="</s>")
    subprocess.run([lockstep, "tokenize", room / "tokenizer.json", room / "one.jsonl",
                    "--chat", name, "--out", room / "one.tokens"], check=True,
                   capture_output=True)
    return name, ids_of(room / "one.tokens"), tokenizer.encode(
        text, add_special_tokens=False).ids


def main():
    lockstep = pathlib.Path(sys.argv[1]).resolve()
    count = different = 0
    for seed in range(int(sys.argv[2]), int(sys.argv[3])):
        with tempfile.TemporaryDirectory() as room:
            name, found, wanted = check(lockstep, seed, pathlib.Path(room))
        count += 1
        different += found != wanted
        if found != wanted:
            print(f"seed {seed}, {name}:\n  ours   {found}\n  theirs {wanted}")
    print(f"{count} conversations, {different} different")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
