"""Checks of this machine before a run: files, folders, a port, memory, devices.

Nothing is changed.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.config.template import flow
from barnraise.core.devices import lacking
from barnraise.core.errors import InputError
from barnraise.core.trackers import why_missing
from barnraise.core.units import bytes_text
from barnraise.emulation.fleet import USUAL_MEMORY
from barnraise.models import memory
from barnraise.models.architectures import is_dropout
from barnraise.models.config import architecture_of, usual_problem
from barnraise.models.problems import MASKED, PROBLEM
from barnraise.models.weights import check_weights
from barnraise.plan.alerts import alert_problems
from barnraise.plan.chats import example_problems
from barnraise.plan.data_files import empty_files, few_rows, file_problems, near
from barnraise.plan.data_urls import url_problems
from barnraise.plan.estimate import Estimate, described, estimate, row_needs
from barnraise.plan.exchange import part_problems
from barnraise.plan.metrics import measured_problems, metric_problems
from barnraise.plan.overhead import overhead_doubts, overhead_problems
from barnraise.plan.problem import pair_problems, problem_problems
from barnraise.plan.purpose import SIMULATE, Purpose
from barnraise.plan.resolve import Plan
from barnraise.plan.sat import sat_problems
from barnraise.trust.repeats import LONGEST

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def inspect(run_file: RunFile, purpose: Purpose) -> tuple[list[Problem], list[Problem]]:
    """Return (errors, warnings) that need no plan: files, folders, address, devices."""
    errors = [*problem_problems(run_file), *file_problems(run_file), *url_problems(run_file)]
    errors += [*_model_folder(run_file), *_run_folder(run_file), *metric_problems(run_file)]
    unfit, left_out = sat_problems(run_file)
    errors += unfit
    if purpose is not SIMULATE:
        errors += [*_address(run_file), *_trackers(run_file), *alert_problems(run_file)]
    if purpose.local:
        errors += _devices(run_file)
    warnings = [*empty_files(run_file), *few_rows(run_file), *left_out]
    if run_file.model.path is not None and not errors:
        from barnraise.plan.pretrained import token_problems  # brings numpy, which other run files do not need here

        wrong, doubtful = token_problems(run_file)
        errors, warnings = errors + wrong, warnings + doubtful
    return errors, warnings


def measure(plan: Plan, nodes: int | None = None) -> tuple[Estimate | None, list[Problem]]:
    """Return the run's estimate, and errors where this machine or a simulation's lacks the resources.

    `nodes` is the number of simulated nodes (None: the run file's workers).
    """
    try:
        model = described(plan)
        run_file = plan.run_file
        problems = [*pair_problems(run_file, model), *part_problems(run_file, model)]
        problems += measured_problems(run_file, model)
        if problems := [*problems, *example_problems(run_file, model)]:
            return None, problems
        result = estimate(plan)
    except InputError as error:
        return None, [Problem(_blamed(error), str(error))]
    problems = [*_weights(plan), *_memory(plan, result), *_disk(plan, result), *_room(plan, nodes)]
    problems += overhead_problems(plan, result)
    return result, [*problems, *_repeatable(plan)]


def _blamed(error: InputError) -> tuple[str, ...]:
    return ("data",) if type(error).__name__ == "DataError" else ("model",)


def _model_folder(run_file: RunFile) -> Iterator[Problem]:
    path = run_file.model.path
    if path is None:
        return
    folder = Path(path).expanduser()
    if not folder.is_dir():
        yield Problem(("model", "path"), f"there is no folder '{folder}'{_from_hub(path) or near(str(folder))}")


def _from_hub(name: str) -> str:
    """Return how to get a hub's model of that name, as the end of a sentence; empty for other names."""
    if not _HUB_NAME.fullmatch(name):
        return ""
    folder = name.rpartition("/")[2]
    return (
        "; if that is a model of the Hugging Face hub: barnraise downloads nothing. On a machine with a network run "
        f"`hf download {name} --local-dir {folder}` (pip install huggingface_hub), copy the folder here, give its path"
    )


def _weights(plan: Plan) -> Iterator[Problem]:
    """Yield problems of weight files that are not whole, or do not match the config."""
    if plan.run_file.model.path is None:
        return
    try:
        check_weights(Path(plan.run_file.model.path).expanduser(), described(plan))
    except InputError as error:
        yield Problem(("model", "path"), str(error))


def _run_folder(run_file: RunFile) -> Iterator[Problem]:
    folder = Path(run_file.run.dir).expanduser().absolute()
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        yield Problem(("run", "dir"), f"'{run_file.run.dir}' cannot be a folder: {folder} is a file; name another")
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Problem(("run", "dir"), f"{folder} cannot be written to; name another folder, or change its permissions")


def _trackers(run_file: RunFile) -> Iterator[Problem]:
    for name in run_file.run.report_to:
        if why := why_missing(name):
            yield Problem(("run", "report_to"), why)


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
    for index, worker in enumerate(run_file.workers):
        if why := lacking(worker.device):
            yield Problem(("workers", index, "device"), f"is {worker.device}, but {why}; use cpu")


def _memory(plan: Plan, result: Estimate) -> Iterator[Problem]:
    devices = [worker.device for worker in plan.run_file.workers] if plan.purpose.local else []
    number, accelerated = len(devices), sum(device != "cpu" for device in devices)
    forked = memory.FORKED_BYTES - memory.PROCESS_BYTES
    needed = result.controller_memory_bytes + (memory.PROCESS_BYTES if devices else 0)
    needed += (number - accelerated) * (result.worker_memory_bytes + forked)
    needed += accelerated * (result.accelerated.accelerator_host_bytes + forked)
    who = f"the controller and {number} local worker{'s' * (number > 1)}" if devices else "the controller itself would"
    try:
        memory.require(needed, memory.available_bytes(), who)
    except InputError as error:
        yield Problem(("model",), str(error))


def _room(plan: Plan, nodes: int | None) -> Iterator[Problem]:
    """Yield problems of rows that no machine of the run file has the memory for.

    Those that a simulation draws are larger.
    """
    workers = plan.run_file.workers
    if plan.purpose is not SIMULATE or not workers or nodes not in (None, len(workers)):
        return
    try:
        memory.require_room(row_needs(plan), {worker.name: worker.memory_bytes or USUAL_MEMORY for worker in workers})
    except InputError as error:
        yield Problem(("data", "context"), str(error))


def _repeatable(plan: Plan) -> Iterator[Problem]:
    """Yield problems of audits with dropout, whose randomness depends on device and micro-batches."""
    if not (plan.stateless and plan.run_file.trust.audits):
        return
    dropped = {key: 0.0 for key, share in described(plan).items() if is_dropout(key) and share}
    if dropped:
        text = (
            "is given, but the model has dropout, and another node does not draw the same: honest nodes would be found "
            f"guilty. Set model.config: {flow(dropped)}, or leave audits out"
        )
        yield Problem(("trust", "audits"), text)


def _disk(plan: Plan, result: Estimate) -> Iterator[Problem]:
    folder = _existing(Path(plan.run_file.run.dir))
    free, least = shutil.disk_usage(folder).free, result.disk_bytes - result.disk_growth_bytes
    if least > free:
        text = (
            f"the run takes about {bytes_text(least)} before long, but {folder} has {bytes_text(free)} free; name "
            "another folder, or lower controller.keep_checkpoints"
        )
        yield Problem(("run", "dir"), text)


def doubts(plan: Plan, result: Estimate) -> Iterator[Problem]:
    """Yield warnings of resources that may run out, of audits that may settle nothing, and of masked models."""
    yield from _unsettled(plan)
    yield from _masked(plan)
    yield from overhead_doubts(plan, result)
    yield from _full(plan, result)


def _unsettled(plan: Plan) -> Iterator[Problem]:
    """Yield a warning where local steps amplify rounding too much for audits, as in deep models."""
    training = plan.run_file.training
    if not (plan.stateless and plan.run_file.trust.audits):
        return
    model = described(plan)
    layers = architecture_of(model).get(model, "num_layers") or 1
    if training.local_steps * layers > LONGEST:
        text = (
            f"is {training.local_steps}, in a model of {layers} layers: local steps amplify rounding, so that audits "
            "of such tasks may settle nothing, and a liar may go unnoticed (docs/research/benchmarks.md has figures, "
            f"up to {LONGEST} layers times steps); set local_steps to {max(1, LONGEST // layers)} at most, or give "
            "scores besides"
        )
        yield Problem(("training", "local_steps"), text)


def _masked(plan: Plan) -> Iterator[Problem]:
    """Yield a warning for a model that is usually trained to fill in masked tokens, and here on the next token."""
    model = described(plan)
    if PROBLEM not in model and usual_problem(str(model["model_type"])) == MASKED:
        text = (
            f"makes a {model['model_type']} predict the next token, as a decoder that sees earlier tokens alone; it is "
            "usually trained to fill in masked tokens. Leave problem out unless that is what you want"
        )
        yield Problem(("model", "problem"), text)


def _full(plan: Plan, result: Estimate) -> Iterator[Problem]:
    folder = _existing(Path(plan.run_file.run.dir))
    free, least = shutil.disk_usage(folder).free, result.disk_bytes - result.disk_growth_bytes
    if least <= free < result.disk_bytes:
        share = (free - least) / result.disk_growth_bytes
        text = (
            f"the run takes up to about {bytes_text(result.disk_bytes)} by its end, but {folder} has "
            f"{bytes_text(free)} free: the disk is full after about {share:.0%} of the tokens; free some of it "
            "meanwhile, or name another folder"
        )
        yield Problem(("run", "dir"), text)


def _existing(folder: Path) -> Path:
    """Return `folder`, or its nearest existing parent."""
    folder = folder.expanduser().absolute()
    while not folder.is_dir():
        folder = folder.parent
    return folder
