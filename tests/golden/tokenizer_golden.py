# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizer: what the `tokenizers` library answers.

    pip install tokenizers==0.23.3
    python3 tests/golden/tokenizer_golden.py           # writes the files
    python3 tests/golden/tokenizer_golden.py --check   # all code points, with
                                                       # build/lockstep

Small tokenizers of the pipelines of real models are trained on TRAINING, which
is ours, and a list of nasty texts is encoded with each, with and without the
tokens of the template. `learned.json` is what BpeTrainer learns from TRAINING;
our own trainer must learn the same. Nothing here is downloaded.
"""
import json
import os
import subprocess
import sys
import tempfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer")
END = "<|endoftext|>"

TRAINING = """\
The quick keeper of the lighthouse counts the ships that pass by night.
She doesn't count the ones that don't answer; they'll come again, she's sure.
In 1987 there were 12345 of them, in 2024 only 678, and 3.14159 is no ship.
Der Leuchtturmwärter zählt die Schiffe, die größten zuerst; größer geht's kaum.
La gardienne du phare compte les bateaux: été comme hiver, çà et là, où l'œil va.
El farero cuenta los barcos. ¿Cuántos son? ¡Muchos más que ayer, mañana más!
Смотритель маяка считает корабли, которые проходят ночью мимо берега.
Ο φαροφύλακας μετράει τα πλοία που περνούν τη νύχτα από το ακρωτήρι.
灯台守は夜に通る船を数えます。灯台の光は海を渡る。船は答えない。
灯塔看守人在夜里数着经过的船只。灯塔的光照在海上。
등대지기는 밤에 지나가는 배를 센다. 등대의 불빛이 바다를 건넌다.
حارس المنارة يعد السفن التي تمر ليلا. السفن لا تجيب.
שומר המגדלור סופר את הספינות שעוברות בלילה.
दीपस्तंभ का रखवाला रात में गुज़रने वाले जहाज़ों को गिनता है।
ผู้ดูแลประภาคารนับเรือที่ผ่านไปในเวลากลางคืน
	if (ship->lights != NULL) {\n\t\tcount++;   /* one more */\n\t}
def count(ships):\n    return sum(1 for ship in ships if ship.lights)\n
👩‍👩‍👧 👍🏽 🇩🇪 🚢🚢🚢 -- the keeper's children draw ships too!!! (99% of them...)
""" * 2

NASTY = [
    "",
    " ",
    "  \n",
    "The keeper's ships don't answer; they'LL come, SHE'S sure, I'd've 'said 'S",
    "'\u017fhip 'ſ 're'ves 't't 'x ''s ’s",
    "one  two   three    four\tfive\t\tsix \t seven",
    "line\nline\r\nline\r\n\r\n  \n\n   end  \r\r x\n ",
    "1 12 123 1234 12345 1234567890 3.14 ½ ² Ⅷ ٣٤٥ १२३ 𝟘𝟙 1a2b",
    "café cafe\u0301 Å \u212b ﬁ ﬀ e\u0323\u0301 \u1e69 s\u0323\u0307 각 \u1100\u1161\u11a8",
    "a\u0000b\u0001\u001f\u007f\u0085c\u00a0d\u3000e\u2003f\u2028g\u200bh\ufeffi",
    "\u0085x \u00a0 y\u1680z \u001c\u001d ",
    "日本語テキスト、カタカナとひらがな。中文（标点）！한국어 텍스트?",
    "مرحبا بالعالم שלום עולם नमस्ते दुनिया สวัสดีชาวโลก",
    "👩‍👩‍👧‍👦👍🏽🇩🇪🇫🇷 ☃️ ✈︎ 🏴\U000e0067\U000e0062\U000e007f",
    "\ud7ff\ue000\uf8ff\ufffd\uffff\U00010000\U0010ffff\U0010fffd",
    "ǅ Ǆ ʰa ªº ºC ſt İ ı ẞ ß ΣΑΣ σας ﷺ ﹰ",
    "HTTPServer camelCaseWord XMLHttpRequest iPhone's ÉCOLEs éCOLE Ñandú'S",
    "x=1;y=[2,3]{4}//comment\n/path/to/file.txt\n\n/*block*/ \"q\" 'q' `q`\n//\n/\n",
    "!!!??? ...,,, -- ___ ### $$$ %%% &&& *** +++ <<< >>> ^^^ ||| ~~~ @@@\n\n",
    "a" * 300 + " " * 300 + "\n" * 40 + "1" * 100 + "!" * 200,
    "ab" * 400, "é" * 150 + "船" * 150, "'" * 50 + "s" * 3,
    "before" + END + "after " + END + "  " + END + END + "<|endoftext", "<|end",
    " <mask> x<mask>y <mask>  \n z<word>s <word> <word>! a<word>",
    "<raw> <RAW> <NORM> \ufb01n fin ﬁn <ﬁn> <fin>",
    "\u0301combining first", "a\u0300\u0301\u0302\u0303", "\u200d\u200d",
    "\U0001e061 \u32ff \u0bd7 q\u0323\u0897\u0301 \u1df6\u0323",
    "\U00011935\U00011930 \U000105d2\u0307 \u0897\u0323",
    "\u0378\u0379 \u1c89\u1c8a \U00010d40 \ua7cb",
]

LETTERS = r"[^\r\n\p{L}\p{N}]?"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
OTHER = r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
LLAMA3 = ENDINGS + "|" + LETTERS + r"\p{L}+|\p{N}{1,3}" + OTHER + TAIL
QWEN2 = ENDINGS + "|" + LETTERS + r"\p{L}+|\p{N}" + OTHER + TAIL
UPPER, LOWER = (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]")
O200K = (LETTERS + UPPER + "*" + LOWER + "+" + ENDINGS + "?|" + LETTERS +
         UPPER + "+" + LOWER + "*" + ENDINGS + r"?|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(prefix=False, regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


def added(content, **options):
    options = dict(dict(special=True, normalized=False), **options)
    return AddedToken(content, **options)


MARKS = [added("<mask>", lstrip=True, special=False),
         added("<word>", single_word=True, rstrip=True, special=False),
         added("<raw>", special=False),
         added("<NORM>", special=False, normalized=True),
         added("<ﬁn>", special=False, normalized=True)]

class Library:
    """A library's tokenizer: called, it gives the ids of a text; places gives
    the ids and of each its characters (start, stop), or, from tiktoken, only
    the starts."""

    def __init__(self, ids, places):
        self.ids, self.places = ids, places

    def __call__(self, text):
        return self.ids(text)


def of_tokenizers(tokenizer):
    def places(text):
        encoding = tokenizer.encode(text)
        return encoding.ids, encoding.offsets
    return Library(lambda text: tokenizer.encode(text).ids, places)


def of_sentencepiece(model):
    def places(text):
        found = model.encode(text, return_type="proto").pieces
        number, at = {}, 0  # of the character that begins at a byte
        for i, character in enumerate(text):
            number[at] = i
            at += len(character.encode())
        number[at] = len(text)
        return ([p.id for p in found],
                [(number[p.begin], number[p.end]) for p in found])
    return Library(model.encode, places)


def of_tiktoken(encoding, shift=0, **options):
    """shift: of the ids in the file."""
    def ids(text):
        return [i + shift for i in encoding.encode(text, **options)]

    def places(text):
        found = encoding.encode(text, **options)
        return ([i + shift for i in found],
                encoding.decode_with_offsets(found)[1])
    return Library(ids, places)


KINDS = {
    # name: (normalizer, pre-tokenizer, ignore_merges, template, added tokens)
    "gpt2": (None, byte_level(regex=True), False, False, []),
    "llama3": (None, sequence(split(LLAMA3), byte_level()), True, True, []),
    "qwen2": (normalizers.NFC(), sequence(split(QWEN2), byte_level()), False,
              False, MARKS),
    "smollm": (None, sequence(pre_tokenizers.Digits(individual_digits=True),
                              byte_level(regex=True)), False, False, []),
    "o200k": (None, sequence(split(O200K), byte_level()), True, False, []),
    "deepseek": (None, sequence(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
                                split(r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                                      r"| ?[\p{P}\p{S}]+[\r\n]*" + TAIL),
                                byte_level()), False, False, []),
    "nfkc": (normalizers.NFKC(), sequence(
        pre_tokenizers.Digits(individual_digits=False),
        byte_level(prefix=True, regex=True)), False, False, MARKS),
    "previous": (None, sequence(split("[aeiou]", "merged_with_previous"),
                                byte_level()), False, False, []),
    "next": (normalizers.NFD(), sequence(split("[.!? ]", "merged_with_next"),
                                         byte_level()), False, False, []),
    "contiguous": (None, sequence(split(r"\s", "contiguous"), byte_level()),
                   False, False, []),
    "removed": (None, sequence(split(r"[a-m]+", "removed", True),
                               byte_level()), False, False, []),
    # Steps after ByteLevel see the characters of the byte alphabet.
    "falcon": (None, sequence(pre_tokenizers.Punctuation("contiguous"),
                              byte_level(regex=True),
                              pre_tokenizers.Digits(individual_digits=False),
                              split("[0-9][0-9][0-9]")), False, False, []),
}


def train(kind, vocab):
    normalizer, pre_tokenizer, ignore, template, extra = KINDS[kind]
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TRAINING], trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[added(END)], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if extra:
        tokenizer.add_tokens(extra)
    if template:
        tokenizer.add_special_tokens([added("<|begin|>")])
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B",
                special_tokens=[("<|begin|>",
                                 tokenizer.token_to_id("<|begin|>"))])])
    return tokenizer


def check_classes():
    """Our Unicode tables against the library's regular expressions."""
    sys.path.insert(0, os.path.dirname(HERE))
    import make_unicode as ours
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    text = "".join(map(chr, codes))
    for name, wanted in (("L", "L"), ("N", "N"), ("M", "M"), ("Lu", "Lu"),
                         ("Ll", "Ll"), ("Lt", "Lt"), ("Lm", "Lm"), ("Lo", "Lo")):
        left = set(range(len(codes)))
        for _, (a, b) in split(r"\p{%s}" % name, "removed").pre_tokenize_str(
                text):
            left.difference_update(range(a, b))
        theirs = {codes[i] for i in left}
        known = {c for c in codes
                 if ours.data.category(chr(c)).startswith(wanted)}
        assert theirs == known, (name, len(theirs ^ known))
        print("%-2s %6d code points: equal" % (name, len(known)))


def check_forms(program):
    """The normal form of every code point, alone and between marks, through
    `program TOKENIZER.json FILE`, which prints ids (lockstep tokenize --ids).
    """
    for kind in ("qwen2", "next", "nfkc", "smollm", "llama3", "o200k"):
        tokenizer = os.path.join(HERE, kind + ".json")
        library = Tokenizer.from_file(tokenizer)
        codes = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
        text = "".join("%s,q\u0323%s\u0301\u0323 " % (chr(c), chr(c))
                       for c in codes)
        with tempfile.NamedTemporaryFile("w", suffix=".txt", newline="",
                                         encoding="utf-8") as file:
            file.write(text)
            file.flush()
            ids = json.loads(subprocess.check_output(
                [program, "tokenize", tokenizer, file.name, "--ids"]))
        expected = library.encode(text).ids
        print(kind, len(expected), "ids:",
              "equal" if ids == expected else "DIFFERENT")
        assert ids == expected


def main():
    if "--check" in sys.argv:
        check_classes()
        check_forms("build/lockstep")
        return
    os.makedirs(HERE, exist_ok=True)
    ids, plain = {}, {}
    for kind in KINDS:
        tokenizer = train(kind, 420)
        tokenizer.save(os.path.join(HERE, kind + ".json"), pretty=False)
        ids[kind] = [tokenizer.encode(t).ids for t in NASTY]
        plain[kind] = [tokenizer.encode(t, add_special_tokens=False).ids
                       for t in NASTY]
    train("gpt2", 700).save(os.path.join(HERE, "learned.json"), pretty=False)
    expected = {"training": TRAINING, "texts": NASTY, "with": ids,
                "without": {"llama3": plain["llama3"]}}
    with open(os.path.join(HERE, "expected.json"), "w") as file:
        json.dump(expected, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
