"""The attacks that a run file gives to workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnraise.config.problems import Path, Problem
from barnraise.config.schema import RunFile
from barnraise.config.trial_sections import WorkerSection
from barnraise.core.errors import InputError
from barnraise.emulation.attacks.catalog import resolve, talks


def attacks_of(run_file: RunFile) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Where it stands, who attacks (those that join, too), and how."""
    places: list[tuple[Path, WorkerSection | None]] = []
    places += [(("workers", at), worker) for at, worker in enumerate(run_file.workers)]
    places += [(("faults", at, "join"), fault.join) for at, fault in enumerate(run_file.faults)]
    for path, worker in places:
        if worker is not None and worker.attack is not None:
            yield (*path, "attack"), worker.name, worker.attack.model_dump()


def attack_problems(run_file: RunFile) -> Iterator[Problem]:
    """Unknown attacks, and options that they do not have or cannot work with."""
    for path, _, attack in attacks_of(run_file):
        try:
            resolve(attack)
        except InputError as error:
            yield Problem(path, str(error))


def costed_warnings(run_file: RunFile) -> Iterator[Problem]:
    """What has no effect where work is costed and not done."""
    for path, _, attack in attacks_of(run_file):
        if talks(attack):
            continue
        yield Problem(path, "has no effect where work is only costed; simulate with --real, or leave it out")
