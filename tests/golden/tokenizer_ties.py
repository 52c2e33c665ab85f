# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizer/ties: texts for which a tokenizer must choose
between two answers that look alike, and what the libraries choose.

    pip install tokenizers==0.22.2 sentencepiece==0.2.3
    python3 tests/golden/tokenizer_ties.py

`doubled` of expected.json: added tokens with one normal form. `tokenizers` up to 0.22 finds
the special one, then the one that was added first; 0.23 takes any, another in
each process, so that only the older one can be asked.

unigram.model: pieces that the user defined, which overlap. The texts are those
of many random ones that another rule would cut differently: `zero` gives such
pieces nothing, `endless` lets sums grow without bounds; for it many characters
that no piece spells, one unknown token, lead.
"""
import json
import os
import random
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tokenizer_families as families  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers import AddedToken, Tokenizer, models, normalizers  # noqa: E402

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer",
                    "ties")
DOUBLED = ["<a>", "<A><a>", "x<q>y<Q>", "<both>", "<Both>", "<raw><RAW>",
           "<mid> <MID>", "<A> <b> <\uff21>", "<one> <two>"]
USER = ["th", "he", "the", "e", "ee", "in", "ing", "s", "ship", "hip",
        families.MARK + "the", "an", "ght"]


def doubled():
    t = Tokenizer(models.BPE({c: i for i, c in enumerate("<>abQxy ")}, [],
                             unk_token=None))
    t.normalizer = normalizers.Sequence([
        normalizers.NFKC(), normalizers.Replace("A", "a"),
        normalizers.Replace("Q", "q"), normalizers.Replace("B", "b"),
        normalizers.Replace("MID", "mid")])
    for content, options in (
            ("<A>", {}), ("<a>", {}), ("<\uff21>", {}),
            ("<q>", {}), ("<Q>", {"special": True}),
            ("<both>", {}), ("<Both>", {}), ("<b>", {"lstrip": True}),
            ("<B>", {}), ("<raw>", {"normalized": False}),
            ("<RAW>", {"normalized": False}), ("<MID>", {}),
            ("<mid>", {"rstrip": True}), ("<two>", {}), ("<one>", {})):
        t.add_tokens([AddedToken(content, **dict(
            {"normalized": True, "special": False}, **options))])
    return {"tokenizer": t.to_str(), "texts": DOUBLED,
            "ids": [t.encode(text).ids for text in DOUBLED]}


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def cut(model, text, zero=False, endless=False):
    """The likeliest pieces of a normalized text, by one rule or another."""
    scores, unknown = {}, 0
    for i in range(model.get_piece_size()):
        name = model.id_to_piece(i).encode()
        if model.is_control(i) or model.is_unknown(i):
            continue
        scores[name] = model.get_score(i)
        if name.decode() in USER:
            scores[name] = 0 if zero else single(.1 * (len(name) - 1))
        else:
            unknown = min(unknown, scores[name])
    data, longest = text.encode(), max(map(len, scores))
    best = [None] * (len(data) + 1)  # (sum, begin)
    best[0], at = (0.0, 0), 0
    while at < len(data):
        size = 1
        while at + size < len(data) and data[at + size] & 0xC0 == 0x80:
            size += 1
        before = best[at][0]
        if abs(before) > 100000 and not endless:
            for i in range(at, min(at + longest, len(data)) + 1):
                if best[i]:
                    best[i] = (single(best[i][0] - before), best[i][1])
            before = best[at][0]
        offers = [(n, scores.get(data[at:at + n]))
                  for n in range(1, longest + 1)]
        if data[at:at + size] not in scores:
            offers.append((size, unknown - 10))
        for n, score in offers:
            if score is None or at + n > len(data):
                continue
            total = single(score + before)
            if best[at + n] is None or total > best[at + n][0]:
                best[at + n] = (total, at)
        at += size
    out = []
    while at > 0:
        out.append(data[best[at][1]:at])
        at = best[at][1]
    return out[::-1]


def unigram():
    import sentencepiece
    path = os.path.join(HERE, "unigram.model")
    with open(path, "wb") as file:
        file.write(families.pieces(
            user_defined_symbols=USER, vocab_size=300, split_by_whitespace=False,
            remove_extra_whitespaces=False, add_dummy_prefix=False))
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    words = families.words_of(model)[3:] + USER * 10
    rng, texts = random.Random(1), []
    for rule, lead, pieces in (("zero", 0, 14), ("endless", 40000, 150)):
        found = 0
        while found < 8:
            text = "\u2603" * lead + "".join(
                rng.choice(words) for _ in range(rng.randint(2, pieces)))
            right = cut(model, text)
            if right == cut(model, text, **{rule: True}):
                continue
            text = text.replace(families.MARK, " ")
            ids = model.encode(text)
            pieces_of = [p.encode() for p in model.encode(text, out_type=str)]
            assert pieces_of[lead > 0:] == right[lead:]
            texts.append({"lead": lead, "rest": text[lead:], "ids": ids})
            found += 1
    return texts


def main():
    assert tokenizers.__version__ < "0.23", tokenizers.__version__
    os.makedirs(HERE, exist_ok=True)
    with open(os.path.join(HERE, "expected.json"), "w") as file:
        json.dump({"doubled": doubled(), "unigram": unigram()}, file,
                  separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
