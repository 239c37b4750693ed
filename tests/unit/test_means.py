"""What a worker works with goes from the run file, and from `join`, to its process without being listed on the way."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from barnraise.assembly.local_workers import LocalWorkers
from barnraise.cli.join import join
from barnraise.config.schema import Worker
from barnraise.transport.links.presets import parse
from barnraise.worker.nursery import Order
from barnraise.worker.options import Given, Means


def local(*workers: Worker) -> LocalWorkers:
    run = SimpleNamespace(path=Path("run"))
    return LocalWorkers(run, workers, [], lambda index, worker: None, print)  # type: ignore[arg-type]


def test_the_run_files_keys_arrive_in_the_process() -> None:
    fast, slow = Worker(name="fast", speed=2.0), Worker(name="slow", speed=0.5, device="cuda:1", threads=3)
    means = local(fast, slow).means(slow, parse("10mbit/50ms"))
    assert means == Means(device="cuda:1", threads=3, slowdown=3.0, link=parse("10mbit/50ms"))
    order = Order("slow", "zmq://x:1", "key", "keys", "cache", "moments", "log", means)
    assert msgspec.json.decode(msgspec.json.encode(order), type=Order) == order


def test_the_defaults_agree() -> None:
    worker = Worker(name="a")
    assert local(worker).means(worker) == Means()


@pytest.mark.parametrize("name", sorted(field.name for field in fields(Means) if field.name != "link"))
def test_one_who_joins_can_say_it_too(name: str) -> None:
    assert name in Given.__annotations__
    assert name in inspect.signature(join).parameters
