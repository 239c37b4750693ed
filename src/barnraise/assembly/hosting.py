"""A prepared run directory opened: a controller that can run, restored to where its ledger ends."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from barnraise import matching
from barnraise.account.account import MANIFEST
from barnraise.account.links import LinkUse
from barnraise.account.tracking.following import Tracking
from barnraise.assembly import parts
from barnraise.assembly.account_keeper import AccountKeeper
from barnraise.assembly.addresses import recorded_mode
from barnraise.assembly.base_model import named_exchange
from barnraise.assembly.engine_settings import engine_settings
from barnraise.assembly.fencing import standby_key
from barnraise.assembly.invites import BookReader, allowed, open_book
from barnraise.config.changes import changes, kept
from barnraise.config.load import load
from barnraise.controller.machine import RESUME_GRACE, Controller
from barnraise.controller.shell.enrolment import Enrolment
from barnraise.controller.shell.originals import Originals, Replication
from barnraise.controller.shell.server import Server
from barnraise.controller.state.actions import Action, Journal
from barnraise.controller.tensors.recovery import replay, restore
from barnraise.core.errors import DataError, WireError
from barnraise.core.types import Blob
from barnraise.core.units import bytes_text
from barnraise.data.meta import MAX_SHARD_BYTES
from barnraise.data.shards import Dataset
from barnraise.data.site_rows import form_digest
from barnraise.faults.host import HostResources
from barnraise.ledger import Ledger, Noted, RunDirectory, notes
from barnraise.ledger.checkpoints import StoredFile, describe
from barnraise.models.exchange.record import Exchange
from barnraise.plan.data_urls import urls_of
from barnraise.plan.purpose import Purpose
from barnraise.plan.resolve import Plan, resolve
from barnraise.transport import Keys
from barnraise.trust.signatures import RunId
from barnraise.wire.manifest import Manifest


@dataclass
class Host:
    """A controller, ready to run.

    `first` are its machine's first actions; `links` gives the traffic of a lab's links.
    """

    run: RunDirectory
    plan: Plan
    server: Server
    first: list[Action]
    ledger: Ledger
    resumed: bool
    exchange: Exchange
    account: AccountKeeper
    links: Callable[[], Sequence[LinkUse]] = tuple
    tracking: Tracking | None = None  # where the run file names trackers

    @property
    def machine(self) -> Controller:
        return self.server.machine

    async def close(self) -> None:
        """Close threads, ports and files."""
        try:
            await self.server.close()
            if self.tracking is not None:
                await asyncio.to_thread(self.tracking.finish, self.server.warn)
        finally:  # the ledger last: then no ledger.sqlite-wal stays beside it
            self.account.close()
            self.ledger.close()


def open_host(run: RunDirectory, plan: Plan, warn: Callable[[str], None], ground: HostResources | None = None) -> Host:
    """Open the controller of a prepared run, restored to where its ledger ends.

    Raises CorruptionError, StorageError; then the run directory is unchanged. `ground` is its machine's resources: this
    machine's, unless given.
    """
    ground = ground or HostResources()
    ledger = ground.ledger(run)
    try:
        return _open(run, plan, ledger, warn, ground)
    except BaseException:
        ledger.close()
        raise


def _open(run: RunDirectory, plan: Plan, ledger: Ledger, warn: Callable[[str], None], ground: HostResources) -> Host:
    checkpoints = ground.checkpoints(run)
    found, told_before = replay(ledger, checkpoints), ledger.newest(notes.RunFile)
    for damage in ledger.segments.damage:
        warn(f"{damage}; the run does not need those bytes, or makes them again")
    if orphans := ledger.segments.orphans:
        numbers = ", ".join(map(str, orphans[:10])) + (" ..." if len(orphans) > 10 else "")
        warn(
            f"{run.segments} holds payloads of a commit whose rows are not on the ledger (contributions {numbers}): a "
            "crash cut the commit short, or the ledger has lost its end. If it was copied without its "
            "ledger.sqlite-wal, stop now and put that back: the next contribution that arrives takes their place"
        )
    changed = changes(told_before.content, plan.run_file) if told_before is not None else []
    dataset = Dataset.open(run.data, verify=True)
    _require_rows_to_fetch(plan, dataset)
    torch.set_num_threads(plan.run_file.controller.threads)
    content = _recorded_manifest(run, plan, dataset, warn)
    manifest, blob = Manifest.decode(content), parts.blob_of(content)
    exchange = plan.exchange(manifest.model, manifest.exchange)
    _require_parts(exchange, run)
    server = parts.parameter_server(plan, torch.zeros(1), exchange)
    restore(server, found, checkpoints, ledger, warn)
    if dataset.files()[0].sha256 != manifest.dataset.digest:
        raise DataError(f"{run.data / 'meta.json'} is not that of this run; put it back from a copy")
    keep = plan.run_file.controller.keep_checkpoints
    oldest = checkpoints.prune(keep)[0].manifest.version
    contributions = ledger.merged(oldest)
    needed = [i for ids in contributions.values() for i in ids]
    ledger.segments.keep_all = plan.run_file.controller.keep_payloads
    ledger.segments.retain([*needed, *found.open_contributions()])
    enrolment = _enrolment(run, plan, warn)
    settings = engine_settings(
        plan,
        run=RunId(run.path.name, enrolment.keys.public),
        manifest=blob,
        model=manifest.model,
        exchange=exchange,
        rows=dataset.index,
        held_out=dataset.meta.held_out.rows,
        token_bytes=dataset.meta.token_bytes,
        secret=secrets.token_bytes(32),
        form=form_digest(dataset.meta),
    )
    machine = Controller(settings, found.state, ledger.epoch)
    blobs = parts.blob_store(dataset, content, server, exchange, warn, run.path)
    evaluator = parts.evaluator_of(plan, manifest.model, exchange, dataset, warn)
    clock = ground.clock(found.time)
    account = AccountKeeper(run, plan.run_file.training.tokens)
    shell = Server(
        machine,
        ledger,
        enrolment,
        make_executor=parts.executor_maker(
            server, blobs, evaluator, parts.measurer_of(plan, evaluator), ledger, checkpoints
        ),
        keep_checkpoints=keep,
        clock=clock,
        warn=warn,
        contributions=contributions,
        replication=_replication(run, plan, dataset, ledger, exchange),
        read_status=account.status,
    )
    resumed = bool(found.state.newest.digest)
    first = machine.resume(clock(), RESUME_GRACE) if resumed else machine.start(server.digest, clock())
    if changed or told_before is None:
        told = "; ".join(map(str, changed))
        first.append(Journal(Noted(clock(), notes.RunFile(told, kept(plan.run_file)))))
    rests_on = _rests_on(run)
    if ledger.newest(notes.RestsOn) != rests_on:
        first.append(Journal(Noted(clock(), rests_on)))
    run.seal.unlink(missing_ok=True)  # it seals the folder's earlier state
    names = plan.run_file.run.report_to
    tracking = Tracking(run, names) if names else None
    return Host(
        run, plan, shell, first, ledger=ledger, resumed=resumed, exchange=exchange, account=account, tracking=tracking
    )


def _rests_on(run: RunDirectory) -> notes.RestsOn:
    files = (run.run_file, run.path / MANIFEST)
    return notes.RestsOn({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files})


def _require_rows_to_fetch(plan: Plan, dataset: Dataset) -> None:
    """Raise DataError when workers are to measure on more held-out rows than they fetch."""
    size = dataset.meta.held_out.bytes
    if plan.run_file.evaluation.by == "workers" and size > MAX_SHARD_BYTES:
        raise DataError(
            f"the held-out rows are {bytes_text(size)}, but a worker fetches files of at most "
            f"{bytes_text(MAX_SHARD_BYTES)}: set evaluation.by to controller, or lower data.held_out"
        )


def _require_parts(exchange: Exchange, run: RunDirectory) -> None:
    """Raise DataError unless the frozen parts are whole in the folder of the dataset."""
    for part in exchange.name.frozen:
        path = run.data / part.name
        if not path.is_file() or describe(path) != StoredFile(part.blob.num_bytes, part.blob.digest):
            raise DataError(f"{path} is missing or damaged, and holds frozen parameters; put it back from a copy")


def _recorded_manifest(run: RunDirectory, plan: Plan, dataset: Dataset, warn: Callable[[str], None]) -> bytes:
    """Return the run's manifest.json, made again when it is lost."""
    path = run.path / MANIFEST
    try:
        content = path.read_bytes()
        Manifest.decode(content)
    except (OSError, WireError) as error:
        warn(f"{path} cannot be read ({error}): it is made again from run file and dataset")
        model = parts.model_config(plan, dataset)
        content = parts.manifest_of(
            model, dataset, plan.exchange(model, named_exchange(plan, model, run.data)), urls_of(plan.run_file)
        )
        run.write(path, content)
    return content


def _enrolment(run: RunDirectory, plan: Plan, warn: Callable[[str], None]) -> Enrolment:
    allowed(run)  # reports an unreadable list now
    keys = Keys.load_or_create(run.keys / "controller.json")
    return Enrolment(
        keys, lambda: open_book(run), lambda: allowed(run), warn, plan.run_file.trust.per_network, BookReader(run)
    )


def _replication(run: RunDirectory, plan: Plan, dataset: Dataset, ledger: Ledger, exchange: Exchange) -> Replication:
    """Return how a standby copies the run.

    A run with workers on the controller's machine ends with that: it has none.
    """
    controller = plan.run_file.controller
    data = [(info.name, Blob(info.sha256, info.bytes)) for info in dataset.files()]
    data += [(part.name, part.blob) for part in exchange.name.frozen]
    originals = Originals(run.path, data, ledger) if not plan.purpose.local else None
    wait, patience = controller.durability == "standby", controller.standby_patience
    return Replication(originals, controller.standby_lease, wait, standby_key(run), patience)


def warm_up(plan: Plan) -> None:
    """Import the modules of a controller of this plan, for one that may have to start at any moment."""
    parts.parameter_server(plan, torch.zeros(1))
    matching.create(plan.scheduler.name, **plan.scheduler.options)


def recorded_plan(run: RunDirectory) -> Plan:
    """Return the plan with which the run was started. Raises RunDirectoryError for a simulation."""
    run.require_real("resume")
    return resolve(load(run.run_file), purpose=Purpose(recorded_mode(run)))
