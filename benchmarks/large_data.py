# SPDX-License-Identifier: Apache-2.0
"""large_data.py - a tokenizer from 1 GB of text, a token set of 100 GB.

    make build/lockstep
    python3 benchmarks/large_data.py [learning | opening]

learning: BPE from LEARNED bytes of text: source code, manuals and translations
that Debian packages brought to this machine (under /usr, by their endings, in
the order of their paths), each file once as it is; what then lacks is taken from
the first again, with the ends of long words exchanged, so that there are new
words. Peak memory, all that the process ever had at a time, must stay within
MEMORY.

opening: a sparse file of 100 GB in datatrove's layout, 5 million documents. From
the start of `lockstep data show` until it has printed the first batch, beside
the same of a set of 1 MB: processor time and time on the clock. The seal and
what a cache would keep are removed before each round, so that the set was never
seen; the table of documents was (40 MB, in the page cache). The difference must
stay below 50 ms of processor time.

Stores the figures in results/.
"""
import array
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import measure

PROGRAM = os.path.abspath(os.path.join(
    os.environ.get("BUILD") or os.path.join(measure.ROOT, "build"), "lockstep"))
LEARNED, MEMORY, VOCAB = 1_000_000_000, 2_000_000_000, 32000
ENDINGS = (".c", ".h", ".hpp", ".py", ".pl", ".pm", ".js", ".md", ".txt",
           ".rst", ".html", ".po", ".tex", ".el", ".xml", "copyright")
DOCUMENTS, EACH, ROUNDS = 5_000_000, 10_000, 9
CONFIG = """version: 1
model: {family: llama, vocab: 2048, layers: 2, width: 64, heads: 4,
        feed_forward: 128}
data: {train: [a.ds], valid_share: 0, sequence: 128, cache: cache}
train: {steps: 4, batch: 16}
run: {dir: run}
"""


def texts():
    """Of the files of packages, those that are UTF-8."""
    for folder, folders, names in os.walk("/usr"):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.endswith(ENDINGS) or os.path.islink(path):
                continue
            try:
                with open(path, encoding="utf-8") as file:
                    yield file.read()
            except (OSError, UnicodeDecodeError):
                continue


def varied(text):
    """The same with the ends of long words exchanged in a circle."""
    ends = re.findall(r"[^\W\d_]{5}([^\W\d_]{4,})", text)
    turned = iter(ends[1:] + ends[:1])
    return re.sub(r"([^\W\d_]{5})[^\W\d_]{4,}",
                  lambda m: m.group(1) + next(turned), text)


def write_text(path):
    size, files, plain = 0, 0, 0
    with open(path, "wb") as out:
        for change in (lambda text: text, varied, lambda t: varied(varied(t))):
            for text in texts():
                data = change(text).encode()[:LEARNED - size]
                out.write(data)
                size, files = size + len(data), files + 1
                if size >= LEARNED:
                    return {"bytes": size, "files": files,
                            "bytes_as_they_are": plain or size}
            plain = plain or size
    sys.exit("there is too little text under /usr")


def children():
    return resource.getrusage(resource.RUSAGE_CHILDREN)


def learning(folder):
    path = os.path.join(folder, "text.txt")
    facts = write_text(path)
    before, began = children(), time.time()
    subprocess.run([PROGRAM, "tokenizer", "train", path, "--vocab", str(VOCAB),
                    "--out", os.path.join(folder, "tokenizer.json")],
                   check=True, stdout=sys.stderr, stderr=sys.stderr)
    after = children()
    os.remove(path)
    peak = after.ru_maxrss * 1024  # of the largest child; it is the first
    return dict(facts, vocab=VOCAB, seconds=round(time.time() - began, 1),
                processor_s=round(after.ru_utime + after.ru_stime -
                                  before.ru_utime - before.ru_stime, 1),
                peak_bytes=peak, within=peak <= MEMORY)


def make_set(folder, documents):
    os.mkdir(folder)
    with open(os.path.join(folder, "a.ds"), "wb") as file:
        file.truncate(documents * EACH * 2)
    with open(os.path.join(folder, "a.ds.index"), "wb") as file:
        array.array("Q", range(EACH, EACH * (documents + 1), EACH)).tofile(file)
    with open(os.path.join(folder, "a.ds.metadata"), "w") as file:
        file.write("none|2\n%d\nsparse\n" % (documents * EACH))
    with open(os.path.join(folder, "config.yaml"), "w") as file:
        file.write(CONFIG)


def show(folder):
    """Milliseconds (processor, clock) until a batch was shown."""
    shutil.rmtree(os.path.join(folder, "cache"), ignore_errors=True)
    before, began = children(), time.perf_counter()
    subprocess.run([PROGRAM, "data", "show", "config.yaml", "--samples", "1"],
                   cwd=folder, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    clock, after = time.perf_counter() - began, children()
    return (1e3 * (after.ru_utime + after.ru_stime - before.ru_utime -
                   before.ru_stime), 1e3 * clock)


def opening(folder):
    large, small = (os.path.join(folder, n) for n in ("large", "small"))
    make_set(large, DOCUMENTS)
    make_set(small, 50)
    rounds = [(show(large), show(small)) for _ in range(ROUNDS)]
    row = {"bytes": os.path.getsize(os.path.join(large, "a.ds")),
           "sparse": True, "documents": DOCUMENTS, "rounds": ROUNDS}
    for i, unit in enumerate(("processor_ms", "clock_ms")):
        a = [x[i] for x, _ in rounds]
        b = [y[i] for _, y in rounds]
        row[unit] = {
            "first_batch": round(statistics.median(a), 1),
            "first_batch_of_1_mb": round(statistics.median(b), 1),
            "difference": round(statistics.median(
                x - y for x, y in zip(a, b)), 1)}
    row["within"] = row["processor_ms"]["difference"] < 50
    return row


def main():
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for part in (learning, opening):
            if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
                found[part.__name__] = part(folder)
    start, _ = measure.store(measure.RESULTS, "large-data",
                             "python3 benchmarks/large_data.py", found)
    print(start + ".json")
    sys.exit(not all(row["within"] for row in found.values()))


if __name__ == "__main__":
    main()
