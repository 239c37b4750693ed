"""The options of a worker go from the run file, and from `join`, to its process without a list on the way."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch

from barnraise.assembly.engine_settings import worker_settings
from barnraise.assembly.forkserver import InvitedWorker, LocalWorker, Orders
from barnraise.assembly.local_workers import LocalWorkers
from barnraise.cli.join import join
from barnraise.config import load
from barnraise.config.trial_sections import WorkerSection
from barnraise.core.errors import RunFileError, UnknownNameError
from barnraise.plan import resolve
from barnraise.transport.links.presets import parse
from barnraise.worker.building import make_trainer
from barnraise.worker.options import Given, Means

MINIMAL = {"model": {"architecture": "gpt2"}, "data": {"kind": "text", "files": ["README.md"]}}
BFLOAT16 = {"precision": "bfloat16"}


def local(*workers: WorkerSection) -> LocalWorkers:
    run = SimpleNamespace(path=Path("run"))
    return LocalWorkers(run, workers, [], lambda index, worker: None, print)  # type: ignore[arg-type]


def test_the_run_files_keys_arrive_in_the_process() -> None:
    fast, slow = (
        WorkerSection(name="fast", speed=2.0),
        WorkerSection(name="slow", speed=0.5, device="cuda:1", threads=3, precision="float32"),
    )
    means = local(fast, slow).means(slow, parse("10mbit/50ms"))
    assert means == Means("cuda:1", 3, "float32", slowdown=3.0, link=parse("10mbit/50ms"))
    orders = (
        LocalWorker("slow", "log", means, "zmq://x:1", "key", "keys", "cache", "moments"),
        InvitedWorker("slow", "log", means, "namespace", "invite", "home"),
    )
    for order in orders:
        assert msgspec.json.decode(msgspec.json.encode(order), type=Orders) == order


def test_the_defaults_agree() -> None:
    worker = WorkerSection(name="a")
    assert local(worker).means(worker) == Means()


def test_every_key_of_a_worker_is_among_its_means_or_for_simulations() -> None:
    simulated = {"memory_bytes", "flops_per_second", "bandwidth_bytes_per_second", "latency_seconds"}
    beside = WorkerSection.model_fields.keys() - {field.name for field in fields(Means)}
    assert beside == {"name", "speed", "data", *simulated}  # `speed` becomes `slowdown`, `data` own files


@pytest.mark.parametrize("name", sorted(field.name for field in fields(Means) if field.name not in ("link", "attack")))
def test_join_has_the_option_too(name: str) -> None:
    assert name in Given.__annotations__
    assert name in inspect.signature(join).parameters


def test_join_has_no_option_for_an_attack() -> None:
    """A trial plans its attackers; who joins a run of others is given no word for it."""
    assert "attack" not in {*Given.__annotations__, *inspect.signature(join).parameters}


def test_an_attack_arrives_in_the_process() -> None:
    worker = WorkerSection.model_validate({"name": "eve", "attack": {"kind": "intermittent", "of": {"kind": "zero"}}})
    means = local(worker).means(worker)
    assert means.attack == {"kind": "intermittent", "of": {"kind": "zero"}}
    order = LocalWorker("eve", "log", means, "zmq://x:1", "key", "keys", "cache", "moments")
    assert msgspec.json.decode(msgspec.json.encode(order), type=Orders) == order


def test_a_worker_may_have_a_precision_of_its_own() -> None:
    module, settings = torch.nn.Linear(2, 2), worker_settings(resolve(load(MINIMAL | {"training": BFLOAT16})))
    assert make_trainer(module, settings).precision == "bfloat16"
    assert make_trainer(module, settings, Means()).precision == "bfloat16"
    assert make_trainer(module, settings, Means(precision="float32")).precision == "float32"


def test_an_unknown_precision_is_refused_on_both_ways() -> None:
    with pytest.raises(RunFileError, match=r"workers\[0\]\.precision: unknown precision 'float23'.*'float32'"):
        resolve(load(MINIMAL | {"workers": [{"name": "a", "precision": "float23"}]}))
    with pytest.raises(UnknownNameError, match="unknown precision 'float23'; did you mean 'float32'"):
        Means(precision="float23")
