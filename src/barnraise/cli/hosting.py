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

from barnraise import aggregation, compression, training
from barnraise.cli import addresses
from barnraise.cli.addresses import recorded_mode
from barnraise.cli.engine_settings import engine_settings
from barnraise.cli.invites import open_book
from barnraise.cli.links import LinkUse
from barnraise.config.changes import changes, kept
from barnraise.config.load import dump, load
from barnraise.config.schema import TextData
from barnraise.controller.actions import Action, Journal
from barnraise.controller.blobs import BlobStore
from barnraise.controller.enrolment import Enrolment
from barnraise.controller.evaluator import Evaluator
from barnraise.controller.executor import Executor
from barnraise.controller.machine import Controller
from barnraise.controller.parameter_server import ParameterServer
from barnraise.controller.recovery import replay, restore
from barnraise.controller.server import Server
from barnraise.core.errors import DataError, WireError
from barnraise.core.types import Blob
from barnraise.data.shards import Dataset
from barnraise.ledger import Checkpoints, Ledger, Noted, RunDirectory
from barnraise.models.vectors import digest
from barnraise.plan.purpose import Purpose
from barnraise.plan.resolve import Plan, resolve
from barnraise.transport import Keys
from barnraise.wire.manifest import Manifest

MANIFEST = "manifest.json"

RESUME_GRACE = 10.0
"""Seconds that workers have to find a controller that came back."""


def prepare(plan: Plan, run: RunDirectory, say: Callable[[str], None]) -> None:
    """Make everything a new run starts from: run file, dataset, initial model as checkpoint 0, keys."""
    run_file = plan.run_file
    run.write(run.run_file, dump(run_file).encode())
    say("making the dataset")
    make_dataset(plan, run.data)
    dataset = Dataset.open(run.data)
    meta = dataset.meta
    say(f"dataset: {dataset.num_rows:,} rows of {meta.context} tokens, {meta.held_out.rows:,} held out")
    import torch

    from barnraise.models import build
    from barnraise.models.flat import FlatParameters

    section, resolved = run_file.model.model_dump(exclude_none=True), _model(plan, dataset)
    with torch.no_grad():
        parameters = FlatParameters(build.create(section, resolved, run_file.run.seed)).vector.clone()
    say(f"model: {resolved['model_type']} with {parameters.numel():,} parameters")
    run.write(run.path / MANIFEST, _manifest(plan, dataset, parameters.numel()))
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
        if not (run.path / addresses.FILE).exists():
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


def _model(plan: Plan, dataset: Dataset) -> dict[str, Any]:
    """The model's config, with what the run file leaves out."""
    from barnraise.models import config

    section, meta = plan.run_file.model.model_dump(exclude_none=True), dataset.meta
    return config.describe(
        section, meta.vocab_size, meta.context, bos_id=meta.bos_id, eos_id=meta.eos_id, pad_id=meta.pad_id
    )


def _manifest(plan: Plan, dataset: Dataset, num_parameters: int) -> bytes:
    """What workers fetch first; it follows from run file and dataset."""
    info = dataset.files()[0]
    return Manifest(_model(plan, dataset), Blob(info.sha256, info.bytes), num_parameters).encode()


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
    """The controller of a prepared run, gone back to where its ledger ends. Raises CorruptionError, StorageError; then
    the run directory is as it was."""
    ledger = Ledger(run.ledger, run.segments, run=run.path.name)
    try:
        return _open(run, plan, ledger, warn)
    except BaseException:
        ledger.close()
        raise


def _open(run: RunDirectory, plan: Plan, ledger: Ledger, warn: Callable[[str], None]) -> Host:
    found = replay(ledger)
    for damage in ledger.segments.damage:
        warn(f"{damage}; what was there can be done without, or is done again")
    changed = changes(found.run_file, plan.run_file) if found.run_file else []
    dataset, checkpoints = Dataset.open(run.data, verify=True), Checkpoints(run.checkpoints)
    server = _parameter_server(plan)
    restore(server, found, checkpoints, ledger, warn)
    content = _recorded_manifest(run, plan, dataset, server.parameters.numel(), warn)
    manifest, blob = Manifest.decode(content), _blob(content)
    if dataset.files()[0].sha256 != manifest.dataset.digest:
        raise DataError(f"{run.data / 'meta.json'} is not that of this run; put it back from a copy")
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
    blobs = BlobStore(dataset, blob.digest, content, warn)
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
    if changed or not found.run_file:
        told = "; ".join(map(str, changed))
        first.append(Journal(Noted(clock(), "run_file", detail={"changed": told, "content": kept(plan.run_file)})))
    return Host(run, plan, shell, first, ledger, resumed, manifest.num_parameters)


def _recorded_manifest(
    run: RunDirectory, plan: Plan, dataset: Dataset, num_parameters: int, warn: Callable[[str], None]
) -> bytes:
    """The run's manifest.json; made again when it is lost."""
    path = run.path / MANIFEST
    try:
        content = path.read_bytes()
        Manifest.decode(content)
    except (OSError, WireError) as error:
        warn(f"{path} cannot be read ({error}): it is made again from run file and dataset")
        content = _manifest(plan, dataset, num_parameters)
        run.write(path, content)
    return content


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
        alike=plan.run_file.training.normalize_steps,
        average=plan.run_file.training.average,
        threads=plan.run_file.controller.threads,
    )


def _enrolment(run: RunDirectory) -> Enrolment:
    return Enrolment(Keys.load_or_create(run.keys / "controller.json"), lambda: open_book(run))


def _run_clock(start: float) -> Callable[[], float]:
    began = time.monotonic()
    return lambda: start + time.monotonic() - began


def _blob(content: bytes) -> Blob:
    import hashlib

    return Blob(hashlib.sha256(content).hexdigest(), len(content))


def recorded_plan(run: RunDirectory) -> Plan:
    """What the run was started with."""
    return resolve(load(run.run_file), purpose=Purpose.SERVE if recorded_mode(run) == "serve" else Purpose.TRAIN)
