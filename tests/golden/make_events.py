#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Event files against the `tensorboard` package.

    make_events.py                    writes tests/golden/data/events.tfevents
    make_events.py --check RUN        opens RUN/tensorboard with the package's
                                      EventAccumulator and holds it against
                                      RUN/metrics.jsonl
    make_events.py --serve RUN        the same for the curves that `tensorboard
                                      --logdir` serves to a browser

The file has one event of each kind that Lockstep writes, made by the package's
own messages and record writer; tests/unit/observe/test_events.c must write the
same bytes. Needs tensorboard (2.21 made the stored file).
"""
import glob
import json
import math
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request

USUAL = {"lr": "train/learning_rate", "val_loss": "eval/loss",
         "val_ms": "perf/eval_ms",
         "tokens_per_s": "perf/tokens_per_second"}
CLOCK = {"step_ms", "peak_fraction", "data_ms", "resident_bytes"}


def make(path):
    from tensorboard.compat.proto import (event_pb2, summary_pb2,
                                          tensor_pb2, tensor_shape_pb2)
    from tensorboard.summary.writer.record_writer import RecordWriter

    def event(step, value):
        return event_pb2.Event(wall_time=1.7e9, step=step,
                               summary=summary_pb2.Summary(value=value))

    def scalar(tag, value):
        return summary_pb2.Summary.Value(tag=tag, simple_value=value)

    shape = tensor_shape_pb2.TensorShapeProto(
        dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])
    text = summary_pb2.Summary.Value(
        tag="configuration",
        metadata=summary_pb2.SummaryMetadata(
            plugin_data=summary_pb2.SummaryMetadata.PluginData(
                plugin_name="text")),
        tensor=tensor_pb2.TensorProto(dtype="DT_STRING", tensor_shape=shape,
                                      string_val=[b"```yaml\nseed: 1\n```\n"]))
    histogram = summary_pb2.Summary.Value(
        tag="weights/embedding",
        histo=summary_pb2.HistogramProto(
            min=-1.5, max=3.0, num=7.0, sum=2.5, sum_squares=19.25,
            bucket_limit=[-1.0, 1.0, 4.0], bucket=[2.0, 1.0, 4.0]))
    events = [
        event_pb2.Event(wall_time=1.7e9, file_version="brain.Event:2"),
        event_pb2.Event(wall_time=1.7e9, step=6,
                        session_log=event_pb2.SessionLog(status="START")),
        event(300, [scalar("train/loss", 7.25), scalar("eval/loss", 0.1)]),
        event(300, [text]),
        event(2**40 + 1, [histogram]),
    ]
    with open(path, "wb") as out:
        writer = RecordWriter(out)
        for one in events:
            writer.write(one.SerializeToString())
        writer.flush()


def tag_of(name, kind):
    if name in USUAL:
        return USUAL[name]
    if "." in name:  # of a named set or task
        name = "eval." + name[4:] if name.startswith("val.") else name
        return name.replace(".", "/")
    name = name.removeprefix("val_")
    if name in CLOCK:
        return f"perf/{name}"
    return ("train/" if kind == "step" else "eval/") + name


def wanted_of(run):
    """The curves that RUN/metrics.jsonl tells: {tag: [(step, value)]}."""
    wanted = {}
    with open(os.path.join(run, "metrics.jsonl")) as lines:
        for line in map(json.loads, lines):
            for name, value in line.items():
                if name in ("kind", "step", "time_s") or value is None:
                    continue
                if line["kind"] == "validation" and name in ("tokens",
                                                             "epoch"):
                    continue
                wanted.setdefault(tag_of(name, line["kind"]), []).append(
                    (line["step"], value))
    return wanted


def compare(wanted, curves):
    for tag, points in wanted.items():
        got = curves.get(tag)
        assert got is not None, f"{tag} is missing"
        assert [s for s, _ in got] == [s for s, _ in points], f"{tag}: steps"
        for (_, a), (_, b) in zip(got, points):
            assert math.isclose(a, b, rel_tol=1e-6), f"{tag}: {a}, {b}"


def served(url, name, **words):
    with urllib.request.urlopen(f"{url}/data/plugin/{name}?"
                                + urllib.parse.urlencode(words)) as answer:
        return json.load(answer)


def tags_of(url, plugin):
    return set().union(*served(url, plugin + "/tags").values())


def ask(url, wanted, seconds):
    """What the server has read, as soon as it has read all, or by then."""
    until = time.monotonic() + seconds
    while True:
        try:
            run, = served(url, "scalars/tags")
            if set(wanted) <= tags_of(url, "scalars"):
                found = {tag: [(step, value) for _, step, value in
                               served(url, "scalars/scalars", run=run, tag=tag)]
                         for tag in wanted}
                if all(len(found[tag]) >= len(wanted[tag]) for tag in wanted) \
                        or time.monotonic() > until:
                    return found
        except (OSError, ValueError):
            pass  # it has not begun, or not read a run yet
        assert time.monotonic() < until, "the server does not show the run"
        time.sleep(0.2)


def serve(run):
    wanted = wanted_of(run)
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--host", "127.0.0.1",
         "--port", "0", "--logdir", os.path.join(run, "tensorboard")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = ""
        for line in server.stdout:
            said += line
            found = re.search(r"(TensorBoard [0-9.]+) at (http://\S+)/", line)
            if found:
                break
        else:
            raise AssertionError(f"tensorboard does not start: {said}")
        compare(wanted, ask(found[2], wanted, 60))
        texts = tags_of(found[2], "text")
        histograms = tags_of(found[2], "histograms")
    finally:
        server.terminate()
        server.wait()
    assert "configuration" in texts, f"texts: {texts}"
    assert any(tag.startswith("weights/") for tag in histograms)
    print(f"{found[1]}: {len(wanted)} metrics, {len(histograms)} histograms, "
          f"{len(texts)} texts: as in metrics.jsonl")


def check(run):
    from tensorboard.backend.event_processing.event_accumulator import (
        EventAccumulator)
    seen = EventAccumulator(os.path.join(run, "tensorboard"),
                            size_guidance={"scalars": 0, "histograms": 0,
                                           "tensors": 0})
    seen.Reload()
    tags = seen.Tags()
    curves = {tag: [(e.step, e.value) for e in seen.Scalars(tag)]
              for tag in tags["scalars"]}
    wanted = wanted_of(run)
    compare(wanted, curves)
    for tag in tags["histograms"]:
        steps = [h.step for h in seen.Histograms(tag)]
        assert steps == sorted(set(steps)), f"{tag}: steps {steps}"
        for h in seen.Histograms(tag):
            v = h.histogram_value
            assert sum(v.bucket) == v.num > 0, tag
            assert v.min <= v.max <= v.bucket_limit[-1], tag
    texts = [t.tensor_proto.string_val[0]
             for t in seen.Tensors("configuration")]
    assert texts and b"seed" in texts[0]
    samples = os.path.join(run, "samples.jsonl")
    if os.path.exists(samples):
        wanted_texts = {}
        with open(samples) as lines:
            for line in map(json.loads, lines):
                wanted_texts.setdefault(line["step"], []).append(line["text"])
        told = [(t.step, t.tensor_proto.string_val[0].decode())
                for t in seen.Tensors("prompts")]
        assert [s for s, _ in told] == sorted(wanted_texts), "samples: steps"
        for step, page in told:
            for text in wanted_texts[step]:
                assert text.strip() in page, f"samples: step {step}"
    files = len(glob.glob(os.path.join(run, "tensorboard", "*")))
    print(f"{len(wanted)} metrics, {len(curves)} curves, "
          f"{len(tags['histograms'])} histograms, {files} files: "
          "as in metrics.jsonl")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        check(sys.argv[2])
    elif sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        make(os.path.join(os.path.dirname(__file__), "data",
                          "events.tfevents"))
