#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does tools/export_run.py tell Weights & Biases and MLflow what a run did?

    check_run_export.py RUN

Exports RUN to both, offline, into a temporary directory, reads both back with
the packages' own readers and holds every value against RUN/metrics.jsonl. What
is not installed is left out, and said.
"""
import glob
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile

TOOL = os.path.join(os.path.dirname(__file__), "..", "..", "tools",
                    "export_run.py")


def load_tool():
    spec = importlib.util.spec_from_file_location("export_run", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def wanted_of(run):
    wanted = {}
    for step, _, values in load_tool().read_metrics(run):
        for tag, value in values.items():
            wanted.setdefault(tag, []).append((step, value))
    return wanted


def export(run, kind, room):
    subprocess.run([sys.executable, TOOL, run, "--to", kind, "--directory",
                    room], check=True, stdout=subprocess.DEVNULL)


def records_of(path):
    """The records of a .wandb file: LevelDB's log format behind seven bytes,
    in blocks of 32 KiB; a record of several pieces is put together."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:4] == b":W&B", "no .wandb file"
    at, whole = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # no head fits into the rest of a block
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack("<HB", data[at + 4:at + 7])
        whole += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the only piece, the last one
            yield whole
            whole = b""


def read_wandb(room):
    from wandb.proto import wandb_internal_pb2
    found, config = {}, {}
    path, = glob.glob(os.path.join(room, "wandb", "offline-run-*",
                                   "*.wandb"))
    for data in records_of(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            for item in record.run.config.update:
                config[item.key or "/".join(item.nested_key)] = \
                    item.value_json
        if kind != "history":
            continue
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            if not name.startswith("_"):
                found.setdefault(name, []).append(
                    (record.history.step.num, json.loads(item.value_json)))
    assert "optimizer" in config, f"no configuration: {sorted(config)}"
    return found


def read_mlflow(room, wanted):
    from mlflow.tracking import MlflowClient
    client = MlflowClient(
        tracking_uri=f"sqlite:///{os.path.abspath(room)}/mlflow.db")
    experiment = client.get_experiment_by_name("lockstep").experiment_id
    session, = client.search_runs([experiment])
    assert "optimizer.lr" in session.data.params
    return {tag: [(m.step, m.value) for m in
                  client.get_metric_history(session.info.run_id, tag)]
            for tag in wanted}


def compare(name, wanted, found):
    assert set(wanted) == set(found), \
        f"{name}: {set(wanted) ^ set(found)} is on one side only"
    points = 0
    for tag, values in wanted.items():
        assert values == found[tag], f"{name}: {tag} differs"
        points += len(values)
    print(f"{name}: {len(wanted)} metrics, {points} values, as in "
          "metrics.jsonl")


def main(run):
    wanted = wanted_of(run)
    for name in ("wandb", "mlflow"):
        try:
            if importlib.util.find_spec(name) is None:
                raise ModuleNotFoundError(name)
            if name == "mlflow":
                import sqlalchemy  # noqa: F401  (mlflow-skinny lacks it)
        except ModuleNotFoundError as missing:
            print(f"left out: {name} ({missing} is not installed)")
            continue
        with tempfile.TemporaryDirectory() as room:
            export(run, name, room)
            compare(name, wanted, read_wandb(room) if name == "wandb"
                    else read_mlflow(room, wanted))


if __name__ == "__main__":
    main(sys.argv[1])
