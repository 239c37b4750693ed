"""From a plan to a controller that can run: data, model and first checkpoint made, or a run directory opened again."""

from __future__ import annotations

import shutil
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from barnraise import aggregation, compression, training
from barnraise.cli.engine_settings import engine_settings
from barnraise.cli.invites import open_book, recorded_uri
from barnraise.cli.links import LinkUse
from barnraise.config.load import dump, load
from barnraise.config.schema import TextData
from barnraise.controller.actions import Action
from barnraise.controller.blobs import BlobStore
from barnraise.controller.enrolment import Enrolment
from barnraise.controller.evaluator import Evaluator
from barnraise.controller.executor import Executor
from barnraise.controller.machine import Controller
from barnraise.controller.parameter_server import ParameterServer
from barnraise.controller.recovery import replay, restore
from barnraise.controller.server import Server
from barnraise.core.errors import RunDirectoryError
from barnraise.core.types import Blob
from barnraise.data.shards import Dataset
from barnraise.ledger import Checkpoints, Ledger, RunDirectory
from barnraise.models.vectors import digest
from barnraise.plan.purpose import Purpose
from barnraise.plan.resolve import Plan, resolve
from barnraise.transport import Keys
from barnraise.wire.manifest import Manifest

ADDRESS = "address.json"
"""Where a run listens, and in which mode: there once it has ever listened."""

RESUME_GRACE = 10.0
"""Seconds that workers have to find a controller that came back."""


def prepare(plan: Plan, run: RunDirectory, say: Callable[[str], None]) -> None:
    """Make everything a new run starts from: run file, dataset, initial model as checkpoint 0, keys."""
    run_file = plan.run_file
    run.run_file.write_text(dump(run_file), "utf-8")
    say("making the dataset")
    make_dataset(plan, run.data)
    dataset = Dataset.open(run.data)
    meta = dataset.meta
    say(f"dataset: {dataset.num_rows:,} rows of {meta.context} tokens, {meta.held_out.rows:,} held out")
    import torch

    from barnraise.models import build, config
    from barnraise.models.flat import FlatParameters

    section = run_file.model.model_dump(exclude_none=True)
    resolved = config.describe(
        section, meta.vocab_size, meta.context, bos_id=meta.bos_id, eos_id=meta.eos_id, pad_id=meta.pad_id
    )
    with torch.no_grad():
        parameters = FlatParameters(build.create(section, resolved, run_file.run.seed)).vector.clone()
    say(f"model: {resolved['model_type']} with {parameters.numel():,} parameters")
    info = dataset.files()[0]
    manifest = Manifest(resolved, Blob(info.sha256, info.bytes), parameters.numel())
    (run.path / "manifest.json").write_bytes(manifest.encode())
    outer = training.create(plan.outer.name, **plan.outer.options)
    tensors = {f"outer.{name}": tensor for name, tensor in outer.state().items()}
    tensors["parameters"] = parameters
    Checkpoints(run.checkpoints).save(
        0, ledger_id=0, parameters_digest=digest(parameters), state=b"{}", tensors={"parameters": tensors}
    )
    Keys.load_or_create(run.keys / "controller.json")


@contextmanager
def making(run: RunDirectory, say: Callable[[str], None]) -> Iterator[None]:
    """Should the body end before the new run has ever listened, nothing is left of it: there is nothing to resume."""
    try:
        yield
    except BaseException as error:
        if not (run.path / ADDRESS).exists():
            shutil.rmtree(run.path, ignore_errors=True)
            if isinstance(error, KeyboardInterrupt | CancelledError):
                say(f"interrupted before the run began; {run.path} is removed again")
        raise


def make_dataset(plan: Plan, folder: Path) -> None:
    """The dataset that the run file's data section describes."""
    run_file = plan.run_file
    data = run_file.data
    if isinstance(data, TextData):
        from barnraise.data import text

        text.build(
            folder,
            data.files,
            tokenizer=data.tokenizer,
            context=data.context,
            held_out=data.held_out,
            seed=run_file.run.seed,
        )
    else:
        from barnraise.data import sat
        from barnraise.plan.dataset import sat_options

        sat.build(folder, sat_options(run_file))


@dataclass
class Host:
    """A controller, ready to run. `first` are its machine's first actions; `links` tells what a lab's links carry."""

    run: RunDirectory
    plan: Plan
    server: Server
    first: list[Action]
    ledger: Ledger
    resumed: bool
    num_parameters: int
    links: Callable[[], Sequence[LinkUse]] = tuple

    @property
    def machine(self) -> Controller:
        return self.server.machine


def open_host(run: RunDirectory, plan: Plan, warn: Callable[[str], None]) -> Host:
    """The controller of a prepared run, gone back to where its ledger ends. Raises CorruptionError, StorageError."""
    content = (run.path / "manifest.json").read_bytes()
    manifest, blob = Manifest.decode(content), _blob(content)
    ledger = Ledger(run.ledger, run.segments, run=run.path.name)
    found = replay(ledger)
    dataset, checkpoints = Dataset.open(run.data), Checkpoints(run.checkpoints)
    server = _parameter_server(plan)
    restore(server, found, checkpoints, ledger, warn)
    keep = plan.run_file.controller.keep_checkpoints
    oldest = checkpoints.prune(keep)[0].manifest.version
    contributions = {version: ids for version, ids in found.contributions.items() if version > oldest}
    needed = [i for ids in contributions.values() for i in ids]
    ledger.segments.retain([*needed, *found.open_contributions()])
    settings = engine_settings(
        plan,
        run_name=run.path.name,
        manifest=blob,
        num_parameters=manifest.num_parameters,
        rows=dataset.index,
    )
    machine = Controller(settings, found.state, ledger.epoch)
    blobs = BlobStore(dataset, blob.digest, content)
    blobs.publish(server.parameters, server.digest)
    evaluator = Evaluator(manifest.model, dataset, plan.run_file.controller.evaluation_rows)
    clock = _run_clock(found.time)

    def make_executor(report: Any, failed: Any) -> Executor:
        return Executor(server, blobs, evaluator, ledger, checkpoints, report=report, failed=failed)

    shell = Server(
        machine,
        ledger,
        _enrolment(run),
        make_executor=make_executor,
        keep_checkpoints=keep,
        clock=clock,
        warn=warn,
        contributions=contributions,
    )
    resumed = bool(found.state.digest)
    first = machine.resume(clock(), RESUME_GRACE) if resumed else machine.start(server.digest, clock())
    return Host(run, plan, shell, first, ledger, resumed, manifest.num_parameters)


def _parameter_server(plan: Plan) -> ParameterServer:
    import torch

    torch.set_num_threads(plan.run_file.controller.threads)
    codecs = [*plan.contributions, *([plan.last_compression] if plan.last_compression else [])]
    return ParameterServer(
        torch.zeros(1),
        0,
        rule=aggregation.create(plan.aggregation.names, **plan.aggregation.options),
        codecs=[compression.create(choice.name, **choice.options) for choice in codecs],
        downlink=compression.create(plan.downlink.name, **plan.downlink.options),
        outer=training.create(plan.outer.name, **plan.outer.options),
    )


def _enrolment(run: RunDirectory) -> Enrolment:
    return Enrolment(Keys.load_or_create(run.keys / "controller.json"), lambda: open_book(run))


def _run_clock(start: float) -> Callable[[], float]:
    began = time.monotonic()
    return lambda: start + time.monotonic() - began


def _blob(content: bytes) -> Blob:
    import hashlib

    return Blob(hashlib.sha256(content).hexdigest(), len(content))


def address(run: RunDirectory, plan: Plan) -> str:
    """Where the controller listens: on the recorded port when the run has run before. Two addresses have a space
    between."""
    controller = plan.run_file.controller
    first = f"{'zmq' if controller.use_zmq else 'xmlrpc'}://{controller.host}:{controller.port}"
    second = "" if controller.http_port is None else f" xmlrpc://{controller.host}:{controller.http_port}"
    return recorded_uri(run) or first + second


def record_address(run: RunDirectory, uri: str, mode: str) -> None:
    """Remember port and mode for `resume`."""
    (run.path / ADDRESS).write_bytes(msgspec.json.encode({"uri": uri, "mode": mode}))


def recorded_mode(run: RunDirectory) -> str:
    """`train`, `serve` or `lab`: how the run was started."""
    path = run.path / ADDRESS
    if not path.exists():
        raise RunDirectoryError(f"{run.path} was never started: start it again with `barnraise train RUN.yaml`")
    return str(msgspec.json.decode(path.read_bytes())["mode"])


def recorded_plan(run: RunDirectory) -> Plan:
    """What the run was started with."""
    return resolve(load(run.run_file), purpose=Purpose.SERVE if recorded_mode(run) == "serve" else Purpose.TRAIN)
