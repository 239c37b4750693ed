"""Experiment trackers, each imported when it is opened; they need no network unless their owner says so."""

from __future__ import annotations

import contextvars
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from .base import Tracker, VersionFigures
from .measures import SAMPLES

PROJECT = "barnraise"


class TensorBoard(Tracker):
    """Event files for TensorBoard, in a folder of the run: `tensorboard --logdir RUN_DIR/tracking/tensorboard`."""

    def __init__(self, run: str, folder: Path) -> None:
        from tensorboardX import SummaryWriter

        suffix = f".{time.time_ns()}"  # the name has the second alone, and a file of the same name would be lost
        self._writer: Any = SummaryWriter(logdir=str(folder), filename_suffix=suffix, flush_secs=1)

    def log(self, point: VersionFigures) -> None:
        for name, value in point.figures.items():
            self._writer.add_scalar(name, value, point.version, walltime=point.seconds)
        if point.samples:
            self._writer.add_text(SAMPLES, point.samples, point.version, walltime=point.seconds)

    def close(self) -> None:
        self._writer.close()


class Wandb(Tracker):
    """Weights & Biases, offline unless WANDB_MODE says otherwise; `wandb sync` uploads the folder later."""

    def __init__(self, run: str, folder: Path) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        mode = os.environ.get("WANDB_MODE", "offline")
        settings = wandb.Settings(silent=True, console="off", disable_git=True, save_code=False)
        self._run: Any = wandb.init(
            project=PROJECT, name=run, id=run, resume="allow", dir=str(folder), mode=mode, settings=settings
        )
        self._run.define_metric("*", step_metric="version")
        self._html: Any = wandb.Html

    def log(self, point: VersionFigures) -> None:
        shown = {SAMPLES: self._html(f"<pre>{escape(point.samples)}</pre>", inject=False)} if point.samples else {}
        self._run.log({**point.figures, **shown, "version": point.version, "seconds": point.seconds})

    def close(self) -> None:
        self._run.finish()


class Mlflow(Tracker):
    """MLflow, with files of its own unless MLFLOW_TRACKING_URI names a server."""

    def __init__(self, run: str, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        folder.mkdir(parents=True, exist_ok=True)
        self._client: Any = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", folder.absolute().as_uri()))
        experiment = self._client.get_experiment_by_name(PROJECT)
        number = experiment.experiment_id if experiment else self._client.create_experiment(PROJECT)
        before = self._client.search_runs([number], f"attributes.run_name = '{run}'")
        self._id = (before[0] if before else self._client.create_run(number, run_name=run)).info.run_id

    def log(self, point: VersionFigures) -> None:
        for name, value in point.figures.items():
            self._client.log_metric(self._id, name, value, timestamp=int(1000 * point.seconds), step=point.version)
        if point.samples:
            self._client.log_text(self._id, point.samples, f"samples/version-{point.version:06}.md")

    def close(self) -> None:
        self._client.set_terminated(self._id)


class Trackio(Tracker):
    """trackio, in a folder of the run."""

    def __init__(self, run: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("TRACKIO_DIR", str(folder.absolute()))
        import trackio

        with hushed("trackio"):
            # trackio keeps the run it is at in a context, which another thread lacks
            context = contextvars.copy_context()
            self._run: Any = context.run(trackio.init, project=PROJECT, name=run, resume="allow")
        self._markdown: Any = trackio.Markdown

    def log(self, point: VersionFigures) -> None:
        shown = {SAMPLES: self._markdown(point.samples)} if point.samples else {}
        self._run.log({**point.figures, **shown, "version": point.version, "seconds": point.seconds})

    def close(self) -> None:
        with hushed("trackio"):
            self._run.finish()


@contextmanager
def hushed(package: str) -> Iterator[None]:
    """Keep the imported modules of `package` from printing in the body: standard output is for results.

    Other modules print as before, in any thread; `redirect_stdout` would take their lines too.
    """
    modules = [vars(module) for name, module in list(sys.modules.items()) if name.partition(".")[0] == package]
    for module in modules:
        module["print"] = lambda *values, **options: None
    try:
        yield
    finally:
        for module in modules:
            del module["print"]


CLASSES = {"mlflow": Mlflow, "tensorboard": TensorBoard, "trackio": Trackio, "wandb": Wandb}
"""The class of each tracker of `core.trackers`."""
