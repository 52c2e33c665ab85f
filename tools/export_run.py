#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run's metrics for Weights & Biases or MLflow.

    export_run.py RUN --to wandb  [--project NAME] [--directory DIR] [--online]
    export_run.py RUN --to mlflow [--project NAME] [--directory DIR]

Reads RUN/metrics.jsonl and RUN/config.yaml, which Lockstep writes by itself and
without Python. wandb: an offline run in DIR/wandb, which `wandb sync` uploads;
with --online it goes up at once, under the account that `wandb login` knows.
mlflow: a run in the SQLite file DIR/mlflow.db, which `mlflow ui
--backend-store-uri sqlite:///DIR/mlflow.db` shows. Nothing is sent anywhere
without --online. Names are those of the event files: train/loss, eval/loss,
perf/tokens_per_second (docs/observability.md).

Needs `pip install wandb` or `pip install mlflow`; both bring PyYAML.
"""
import argparse
import json
import math
import os
import sys

USUAL = {"lr": "train/learning_rate", "val_loss": "eval/loss",
         "val_ms": "perf/eval_ms",
         "tokens_per_s": "perf/tokens_per_second"}
PERFORMANCE = {"step_ms", "peak_fraction", "data_ms", "resident_bytes"}
NO_CURVE = {"kind", "step", "time_s"}


def tag_of(name, kind):
    """As src/observe/events.c names it."""
    if name in USUAL:
        return USUAL[name]
    if "." in name:
        name = "eval." + name[4:] if name.startswith("val.") else name
        return name.replace(".", "/")
    name = name.removeprefix("val_")
    if name in PERFORMANCE:
        return f"perf/{name}"
    return ("train/" if kind == "step" else "eval/") + name


def read_metrics(run):
    """Yields step, seconds since 1970, {tag: value}: one for each line, in the
    order of the file; a line that a kill has torn is left out."""
    with open(os.path.join(run, "metrics.jsonl")) as lines:
        for line in lines:
            if not line.endswith("\n"):
                return
            row = json.loads(line)
            values = {}
            for name, value in row.items():
                if name in NO_CURVE or value is None:
                    continue
                if row["kind"] == "validation" and name in ("tokens",
                                                            "epoch"):
                    continue
                values[tag_of(name, row["kind"])] = value
            yield row["step"], row["time_s"], values


def read_steps(run):
    """The same, what was told of one step in one: a validation with its
    step."""
    together = None
    for step, seconds, values in read_metrics(run):
        if together is not None and together[0] == step:
            together[2].update(values)
            continue
        if together is not None:
            yield together
        together = (step, seconds, values)
    if together is not None:
        yield together


def read_configuration(run):
    import yaml
    with open(os.path.join(run, "config.yaml")) as text:
        return yaml.safe_load(text)


def flatten(options, prefix=""):
    for name, value in options.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def to_wandb(run, arguments):
    import wandb
    os.makedirs(arguments.directory, exist_ok=True)
    session = wandb.init(
        project=arguments.project, dir=arguments.directory,
        name=os.path.basename(os.path.normpath(run)),
        config=read_configuration(run),
        mode="online" if arguments.online else "offline",
        settings=wandb.Settings(console="off", x_disable_stats=True,
                                x_disable_meta=True, silent=True))
    count = 0
    for step, seconds, values in read_steps(run):
        session.log({**values, "_timestamp": seconds}, step=step)
        count += 1
    place = os.path.dirname(session.dir)
    session.finish()
    print(f"{count} steps in {place}; wandb sync {place}")


def to_mlflow(run, arguments):
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient
    os.makedirs(arguments.directory, exist_ok=True)
    database = os.path.abspath(os.path.join(arguments.directory, "mlflow.db"))
    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    found = client.get_experiment_by_name(arguments.project)
    experiment = (found.experiment_id if found else
                  client.create_experiment(arguments.project))
    session = client.create_run(
        experiment, run_name=os.path.basename(os.path.normpath(run)))
    identity = session.info.run_id
    params = [Param(name, str(value)[:6000]) for name, value
              in flatten(read_configuration(run))]
    for i in range(0, len(params), 100):
        client.log_batch(identity, params=params[i:i + 100])
    batch, count = [], 0
    for step, seconds, values in read_steps(run):
        count += 1
        for tag, value in values.items():
            if math.isfinite(value):
                batch.append(Metric(tag, value, int(1000 * seconds), step))
        if len(batch) > 800:
            client.log_batch(identity, metrics=batch)
            batch = []
    client.log_batch(identity, metrics=batch)
    client.set_terminated(identity)
    print(f"{count} steps in {database}, run {identity}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run")
    parser.add_argument("--to", choices=("wandb", "mlflow"), required=True)
    parser.add_argument("--project", default="lockstep")
    parser.add_argument("--directory", default=".")
    parser.add_argument("--online", action="store_true")
    arguments = parser.parse_args()
    if not os.path.exists(os.path.join(arguments.run, "metrics.jsonl")):
        sys.exit(f"{arguments.run}: is no run: it has no metrics.jsonl")
    try:
        (to_wandb if arguments.to == "wandb" else to_mlflow)(arguments.run,
                                                             arguments)
    except ModuleNotFoundError as missing:
        sys.exit(f"{missing}; pip install {arguments.to}")


if __name__ == "__main__":
    main()
