"""What a run needs of this machine: files, folders, a port, memory, devices. Looked at, never changed."""

from __future__ import annotations

import errno
import glob
import math
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from barnraise.config.data_sections import TextData
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.config.template import flow
from barnraise.core.errors import InputError, nearest
from barnraise.core.types import MOST_ROW_RANGES
from barnraise.core.units import bytes_text
from barnraise.data.lengths import named
from barnraise.emulation.fleet import USUAL_MEMORY
from barnraise.models import memory
from barnraise.models.architectures import is_dropout
from barnraise.plan.dataset import mean_row, row_lengths, tokenizer_of
from barnraise.plan.estimate import Estimate, described, estimate, row_needs
from barnraise.plan.purpose import SIMULATE, Purpose
from barnraise.plan.resolve import Plan

BYTES_A_TOKEN = 4
"""Of text, through a tokenizer that is not `bytes`."""

_ACCELERATORS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "/dev/nvmap")


def inspect(run_file: RunFile, purpose: Purpose) -> tuple[list[Problem], list[Problem]]:
    """(errors, warnings) that need no plan: files, folders, address, devices."""
    errors = [*_data(run_file), *_model_folder(run_file), *_run_folder(run_file)]
    if purpose is not SIMULATE:
        errors += _address(run_file)
    warnings = [*_few_rows(run_file), *(_devices(run_file) if purpose.local else ())]
    if run_file.model.path is not None and not errors:
        from barnraise.plan.pretrained import token_problems  # brings numpy, which other run files need not here

        wrong, doubtful = token_problems(run_file)
        errors, warnings = errors + wrong, warnings + doubtful
    return errors, warnings


def measure(plan: Plan, nodes: int | None = None) -> tuple[Estimate | None, list[Problem]]:
    """What the run will take, and whether this machine, and those of a simulation of so many `nodes` (None: the run
    file's workers), have it: (estimate, errors)."""
    try:
        result = estimate(plan)
    except InputError as error:
        return None, [Problem(_blamed(error), str(error))]
    return result, [*_memory(plan, result), *_disk(plan, result), *_room(plan, nodes), *_repeatable(plan)]


def _blamed(error: InputError) -> tuple[str, ...]:
    return ("data",) if type(error).__name__ == "DataError" else ("model",)


def _data(run_file: RunFile) -> Iterator[Problem]:
    data = run_file.data
    if not isinstance(data, TextData):
        return
    lengths = row_lengths(run_file)
    total, need = 0, sum(lengths) + lengths[-1]  # a row of each, and one held out; a token is at least a byte
    for index, pattern in enumerate(data.files):
        sizes = _sizes(pattern)
        first = next(sizes, None)
        if first is None:
            yield Problem(("data", "files", index), f"no file matches '{pattern}' in {Path.cwd()}{_near(pattern)}")
            need = 0
        total += first or 0
        while total < need and (size := next(sizes, None)) is not None:
            total += size
    if total < need:
        rows = f"two rows of {lengths[0]}" if len(lengths) == 1 else f"rows of {named((*lengths, lengths[-1]))}"
        text = f"hold {total} bytes, but {rows} tokens need {need}; give more text, or lower context"
        yield Problem(("data", "files"), text)
    if data.tokenizer not in (None, "bytes") and not Path(data.tokenizer).expanduser().exists():
        text = f"there is no tokenizer at '{data.tokenizer}'{_near(data.tokenizer)}; give `bytes`, or a folder or file"
        yield Problem(("data", "tokenizer"), text)


def training_rows(run_file: RunFile, enough: float = math.inf) -> int:
    """About how many rows there will be to train on, counted until there are `enough`; 0 where files say nothing."""
    data = run_file.data
    if not isinstance(data, TextData):
        return data.examples
    token_bytes = (1 if tokenizer_of(run_file) == "bytes" else BYTES_A_TOKEN) / (1 - data.held_out)
    size, row_bytes = 0, mean_row(run_file) * token_bytes
    sizes = (size for pattern in data.files for size in _sizes(pattern))
    while size < enough * row_bytes and (more := next(sizes, None)) is not None:
        size += more
    return int(size / row_bytes)


def _few_rows(run_file: RunFile) -> Iterator[Problem]:
    training = run_file.training
    wanted = training.local_steps * training.batch_size
    rows = training_rows(run_file, enough=wanted / MOST_ROW_RANGES + 1)
    most = MOST_ROW_RANGES * rows
    if 0 < most < wanted:
        text = (
            f"is {training.local_steps}, but the data has about {rows} rows, and a task goes around them at most "
            f"{MOST_ROW_RANGES} times: it will be of about {max(1, most // training.batch_size)} steps; "
            "give more data, or lower local_steps or batch_size"
        )
        yield Problem(("training", "local_steps"), text)


def _sizes(pattern: str) -> Iterator[int]:
    """The sizes of the files that a pattern names, found one by one."""
    path = Path(pattern).expanduser()
    if path.is_dir():
        for top, folders, names in os.walk(path):
            folders[:] = [name for name in folders if not name.startswith(".")]
            files = (Path(top) / name for name in names if not name.startswith("."))
            yield from (file.stat().st_size for file in files if file.is_file())
    else:
        found = iter([str(path)]) if path.is_file() else glob.iglob(str(path), recursive=True)
        yield from (os.path.getsize(name) for name in found if os.path.isfile(name))


def _near(pattern: str) -> str:
    path = Path(pattern).expanduser()
    if not path.parent.is_dir():
        if glob.has_magic(pattern):
            return "; put text files there, or name others"
        return f" (there is no folder {path.parent})"
    close = nearest(path.name, os.listdir(path.parent))
    return f"; did you mean '{path.with_name(close)}'?" if close else ""


def _model_folder(run_file: RunFile) -> Iterator[Problem]:
    if run_file.model.path is None:
        return
    folder = Path(run_file.model.path).expanduser()
    if not folder.is_dir():
        yield Problem(("model", "path"), f"there is no folder '{folder}'{_near(str(folder))}")
    elif not any(folder.glob("*.safetensors")):
        yield Problem(("model", "path"), f"'{folder}' holds no *.safetensors; give what `save_pretrained` wrote")


def _run_folder(run_file: RunFile) -> Iterator[Problem]:
    folder = Path(run_file.run.dir).expanduser().absolute()
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        yield Problem(("run", "dir"), f"'{run_file.run.dir}' cannot be a folder: {folder} is a file; name another")
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Problem(("run", "dir"), f"{folder} cannot be written to; name another folder, or change its permissions")


def _address(run_file: RunFile) -> Iterator[Problem]:
    controller = run_file.controller
    yield from _listenable(controller.host, controller.port, "port")
    if controller.http_port:
        yield from _listenable(controller.host, controller.http_port, "http_port")


def _listenable(host: str, port: int, key: str) -> Iterator[Problem]:
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = infos[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except (socket.gaierror, UnicodeError):
        yield Problem(("controller", "host"), f"'{host}' is no address or host name that this machine knows")
    except OSError as error:
        yield _unbindable(host, port, key, error)


def _unbindable(host: str, port: int, key: str, error: OSError) -> Problem:
    if error.errno == errno.EADDRINUSE:
        text = f"{port} is taken by another program on {host}; choose another port, or 0 for a free one"
        return Problem(("controller", key), text)
    if error.errno == errno.EACCES:
        return Problem(("controller", key), f"{port} needs more rights; choose a port from 1024 on, or 0")
    if error.errno == errno.EADDRNOTAVAIL:
        text = f"'{host}' is not an address of this machine; use 127.0.0.1, 0.0.0.0 or one of its own"
        return Problem(("controller", "host"), text)
    return Problem(("controller", "host"), f"{host}:{port} cannot be listened on ({error.strerror})")


def _devices(run_file: RunFile) -> Iterator[Problem]:
    if any(Path(file).exists() for file in _ACCELERATORS):
        return
    for index, worker in enumerate(run_file.workers):
        if worker.device.startswith("cuda"):
            text = f"is {worker.device}, but this machine shows no GPU driver; use cpu, or see `barnraise doctor`"
            yield Problem(("workers", index, "device"), text)


def _memory(plan: Plan, result: Estimate) -> Iterator[Problem]:
    workers = [worker for worker in plan.run_file.workers if worker.device == "cpu"] if plan.purpose.local else []
    own = result.worker_memory_bytes - memory.PROCESS_BYTES + memory.FORKED_BYTES
    nursery = memory.PROCESS_BYTES if workers else 0
    needed = result.controller_memory_bytes + nursery + len(workers) * own
    number = len(workers)
    who = f"the controller and {number} local worker{'s' * (number > 1)}" if workers else "the controller itself would"
    try:
        memory.require(needed, memory.available_bytes(), who)
    except InputError as error:
        yield Problem(("model",), str(error))


def _room(plan: Plan, nodes: int | None) -> Iterator[Problem]:
    """Rows that none of the run file's machines has the memory for. Those that a simulation draws are larger."""
    workers = plan.run_file.workers
    if plan.purpose is not SIMULATE or not workers or nodes not in (None, len(workers)):
        return
    try:
        memory.require_room(row_needs(plan), {worker.name: worker.memory_bytes or USUAL_MEMORY for worker in workers})
    except InputError as error:
        yield Problem(("data", "context"), str(error))


def _repeatable(plan: Plan) -> Iterator[Problem]:
    """Audits of stateless tasks judge nodes, and which elements dropout drops hangs on device and micro-batches."""
    if not (plan.stateless and plan.run_file.training.audits):
        return
    dropped = {key: 0.0 for key, share in described(plan).items() if is_dropout(key) and share}
    if dropped:
        text = (
            "is given, but the model has dropout, and another node does not draw the same: honest nodes would be found "
            f"guilty. Set model.config: {flow(dropped)}, or leave audits out"
        )
        yield Problem(("training", "audits"), text)


def _disk(plan: Plan, result: Estimate) -> Iterator[Problem]:
    folder = Path(plan.run_file.run.dir).expanduser().absolute()
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if result.disk_bytes > free:
        text = (
            f"checkpoints and contributions take about {bytes_text(result.disk_bytes)}, but {folder} has "
            f"{bytes_text(free)} free; name another folder, or lower controller.keep_checkpoints"
        )
        yield Problem(("run", "dir"), text)
