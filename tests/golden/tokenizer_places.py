# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizer/places.json: where the tokens of every tokenizer
in that folder come from, as its own library tells it.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 tiktoken==0.14.0
    python3 tests/golden/tokenizer_places.py

The texts are those of expected.json. Of each only a digest is kept: FNV-1a of
32 bits over the characters where tokens begin and stop, as little-endian u32;
tiktoken tells only where they begin. The files themselves stay as they are.
"""
import base64
import json
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tokenizer_families as families  # noqa: E402
import tokenizer_golden as golden  # noqa: E402


def digest(places):
    value = 0x811C9DC5
    for place in places:
        numbers = place if isinstance(place, tuple) else (place,)
        for byte in struct.pack("<%dI" % len(numbers), *numbers):
            value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def of_ranks(name, path):
    import tiktoken
    with open(path, "rb") as file:
        ranks = {base64.b64decode(token): int(rank)
                 for token, rank in (line.split() for line in file)}
    return golden.of_tiktoken(tiktoken.Encoding(
        name, pat_str=families.PATTERNS[name], mergeable_ranks=ranks,
        special_tokens={}))


def of_tekken(path):
    import tiktoken
    with open(path) as file:
        data = json.load(file)
    ranks = {base64.b64decode(word["token_bytes"]): word["rank"]
             for word in data["vocab"]}
    return golden.of_tiktoken(tiktoken.Encoding(
        "tekken", pat_str=data["config"]["pattern"], mergeable_ranks=ranks,
        special_tokens={}), data["config"]["default_num_special_tokens"])


def library(path):
    name = os.path.basename(path)
    if name == "tekken.json":
        return of_tekken(path)
    if name.endswith(".json"):
        return golden.of_tokenizers(golden.Tokenizer.from_file(path))
    if name.endswith(".model"):
        import sentencepiece
        return golden.of_sentencepiece(
            sentencepiece.SentencePieceProcessor(model_file=path))
    return of_ranks(name.split(".")[0], path)


def main():
    out = {}
    for folder, texts in ((golden.HERE, golden.NASTY),
                          (families.HERE, families.TEXTS)):
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name in ("expected.json", "places.json", "learned.json"):
                continue
            if not os.path.isfile(path):
                continue
            tokenizer = library(path)
            out[os.path.relpath(path, golden.HERE)] = [
                digest(tokenizer.places(text)[1]) for text in texts]
    with open(os.path.join(golden.HERE, "places.json"), "w") as file:
        json.dump(out, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
