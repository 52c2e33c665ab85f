#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""count_samples.py - which samples each step of a run must have consumed, by
docs/data.md and the headers of src/data, in another language.

    python3 tests/drills/count_samples.py RUN NAME=FILE.tokens...

`lockstep data audit` proves that a run consumed the places of its order once
each. This program also computes which tokens lie there, from the token files of
the sources (the name of one without data.mixture is "train"), and compares the
checksums of consumed.jsonl. It walks the mixture one place after the other and
packs with plain lists, so it shares no closed form with the program. Prints what
differs, then a line "N steps, N samples, N left out"; exit 1 where anything
does."""
import json
import re
import struct
import sys

WORD, HALF = (1 << 64) - 1, (1 << 32) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


def key_of(seed, name):
    """FNV-1a of the seed's bytes and the name."""
    x = 0xCBF29CE484222325
    for byte in (seed & WORD).to_bytes(8, "little") + name.encode():
        x = (x ^ byte) * 0x100000001B3 & WORD
    x = mix(x)
    return x & HALF, x >> 32


def draw(key, low, high):
    """64 bits of Philox4x32-10."""
    a, b, c, d = low & HALF, low >> 32, high & HALF, high >> 32
    k, m = key
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k, q & HALF, (p >> 32) ^ d ^ m, p & HALF
        k, m = (k + 0x9E3779B9) & HALF, (m + 0xBB67AE85) & HALF
    return b << 32 | a


def permute(key, count, index):
    """A Feistel network of eight rounds, walked until it falls inside."""
    half = ((count - 1).bit_length() + 1) // 2 if count > 1 else 1
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(8):
            left, right = right, left ^ (draw(key, right, 1 + turn) & mask)
        index = left << half | right
        if index < count:
            return index


def table():
    out = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        out.append(byte)
    return out


TABLE = table()


def crc32c(data):
    crc = HALF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ HALF


def read_config(path):
    """The options of a run: two levels, lists in brackets or in lines."""
    out, section, items = {}, "", None
    for line in open(path, encoding="utf-8"):
        line = re.sub(r'\s+#[^"]*$', "", line.rstrip("\n"))
        if re.match(r"\s*- ", line):
            items.append(line.strip()[2:].strip().strip('"'))
            continue
        found = re.match(r"( *)([a-z_0-9]+):\s*(.*)$", line)
        if not found:
            continue
        name, value = found[2], found[3].strip()
        if not found[1]:
            section = name
        else:
            name = section + "." + name
        if value.startswith("["):
            items = [x.strip().strip('"') for x in value[1:-1].split(",")]
            out[name] = [x for x in items if x]
        elif value == "":
            items = out[name] = []
        else:
            out[name] = value.strip('"')
    return out


class Source:
    def __init__(self, path, number, config):
        data = open(path, "rb").read()
        assert data[:8] == b"LSTOKEN1", path
        width, self.end = struct.unpack_from("<iI", data, 8)
        _, count, documents = struct.unpack_from("<QQQ", data, 16)
        tokens = struct.unpack_from("<%d%s" % (count, "H" if width == 2
                                               else "i"), data, 192)
        at = 192 + count * width
        starts = struct.unpack_from("<%dQ" % (documents + 1), data,
                                    at + -at % 8)
        self.seed, self.number = int(config["seed"]), number
        self.sequence = int(config["data.sequence"])
        share = float(config["data.valid_share"])
        coins = key_of(self.seed, "data.split")
        held = {i for i in range(1, documents)
                if (draw(coins, i, 0) >> 11) * 2.0 ** -53 < share}
        texts = [tokens[starts[i]:starts[i + 1]] for i in range(documents)
                 if i not in held]
        self.samples = (self.pack(texts)
                        if config["data.packing"] == "best_fit"
                        else self.cut(texts))
        self.sums = {}

    def cut(self, texts):
        flat = [token for text in texts for token in text]
        return [flat[at:at + self.sequence]
                for at in range(0, len(flat) - self.sequence, self.sequence)]

    def pack(self, texts):
        """Longest first, where the least room stays free; of bins with the same
        room the one that was filled last."""
        out, rests, bins, rooms = [], [], [], {}
        for i, text in enumerate(texts):
            at = 0
            while len(text) - at >= self.sequence:
                out.append(list(text[at:at + self.sequence]))
                at += self.sequence
            if at < len(text):
                rests.append((at - len(text), i, text[at:]))
        for _, _, rest in sorted(rests, key=lambda r: r[:2]):
            fits = [n for n in rooms if n >= len(rest) and rooms[n]]
            if fits:
                room = min(fits)
                one = rooms[room].pop()
            else:
                room, one = self.sequence, len(bins)
                bins.append([])
            bins[one] += rest
            if room > len(rest):
                rooms.setdefault(room - len(rest), []).append(one)
        return out + [b + [self.end] * (self.sequence - len(b)) for b in bins]

    def sum_of(self, index):
        epoch, place = divmod(index, len(self.samples))
        low, high = key_of(self.seed + self.number * GOLDEN, "data.order")
        place = permute((low, high ^ epoch), len(self.samples), place)
        if place not in self.sums:
            self.sums[place] = crc32c(struct.pack(
                "<%di" % self.sequence, *self.samples[place]))
        return self.sums[place]


class Order:
    """Which sample of which source lies at each place."""

    def __init__(self, config, files, places):
        mixture = [row.split()[:2] for row in config.get("data.mixture", [])]
        mixture = mixture or [["train", "1"]]
        self.names = [name for name, _ in mixture]
        self.sources = [Source(files[name], i, config)
                        for i, name in enumerate(self.names)]
        self.ramp = [tuple(map(int, row.split("=")))
                     for row in config.get("train.batch_ramp", [])]
        self.ramp = self.ramp or [(0, int(config["train.batch"]))]
        weights = {name: float(weight) for name, weight in mixture}
        phases = [(0, weights)]
        for row in config.get("data.phases", []):
            step, *changes = row.split()
            weights = dict(weights)
            for change in changes:
                name, weight = change.split("=")
                weights[name] = float(weight)
            phases.append((sum(map(self.batch, range(int(step)))), weights))
        circle, self.at = 1 << 62, []
        offset = (draw(key_of(int(config["seed"]), "data.mixture"), 0, 0)
                  * circle >> 64)
        taken = [0] * len(mixture)
        for place in range(places):
            begins, weights = [p for p in phases if p[0] <= place][-1]
            point = ((GOLDEN >> 2) * (place - begins) + offset) % circle
            one = self.find(point, weights, circle)
            self.at.append((one, taken[one]))
            taken[one] += 1

    def batch(self, step):
        return [batch for first, batch in self.ramp if first <= step][-1]

    def find(self, point, weights, circle):
        values = [weights[name] for name in self.names]
        last = max(i for i, value in enumerate(values) if value > 0)
        found, part = 0, 0.0
        for i, value in enumerate(values):
            edge = circle if i > last else int(part / sum(values) * circle)
            if edge <= point:
                found = i
            part += value
        return found

    def tokens(self, place):
        one, index = self.at[place]
        return self.sources[one].sum_of(index)


def left_out(run, config):
    gone = set()
    rows = [tuple(map(int, row.split()))
            for row in config.get("data.skip", [])]
    try:
        events = [json.loads(line) for line in open(run + "/ledger.jsonl")]
    except FileNotFoundError:
        events = []
    rows += [(e["first"], e["samples"]) for e in events
             if e["action"] in ("skip", "rewind")]
    for first, count in rows:
        gone.update(range(first, first + count))
    return gone


def main(run, files):
    config = read_config(run + "/config.yaml")
    lines = [json.loads(line) for line in open(run + "/consumed.jsonl")]
    order = Order(config, files, lines[-1]["to"])
    gone, place, wrong = left_out(run, config), 0, []
    for number, line in enumerate(lines):
        want = []
        while len(want) < order.batch(number):
            want += [place] if place not in gone else []
            place += 1
        sums = (sum(mix((p + GOLDEN) & WORD) for p in want) & WORD,
                sum(map(order.tokens, want)) & WORD)
        found = (line["step"], line["from"], line["to"], line["samples"],
                 line["order"], line["tokens"])
        must = (number + 1, want[0], place, len(want), "%016x" % sums[0],
                "%016x" % sums[1])
        if found != must:
            wrong.append("step %d: %s, must be %s" % (number + 1, found, must))
            break
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print("%d steps, %d samples, %d left out" % (
        len(lines), sum(line["samples"] for line in lines),
        sum(p < place for p in gone)))
    return bool(wrong)


sys.exit(main(sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:])))
