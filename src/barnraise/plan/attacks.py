"""The attacks that a run file gives to workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barnraise.config.data_sections import SatData
from barnraise.config.problems import Path, Problem
from barnraise.config.schema import RunFile
from barnraise.config.trial_sections import WorkerSection
from barnraise.core.errors import InputError, OptionError
from barnraise.emulation.attacks.catalog import resolve, talks
from barnraise.plan.dataset import sat_options


def attacks_of(run_file: RunFile) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Yield the place of each attack, its worker (joining ones, too), and its options."""
    places: list[tuple[Path, WorkerSection | None]] = []
    places += [(("workers", at), worker) for at, worker in enumerate(run_file.workers)]
    places += [(("faults", at, "join"), fault.join) for at, fault in enumerate(run_file.faults)]
    for path, worker in places:
        if worker is not None and worker.attack is not None:
            yield (*path, "attack"), worker.name, worker.attack.model_dump()


def attack_problems(run_file: RunFile) -> Iterator[Problem]:
    """Yield problems of unknown attacks, and of their options."""
    for path, _, attack in attacks_of(run_file):
        try:
            resolve(attack)
            _require_words(attack, run_file)
        except InputError as error:
            yield Problem(path, str(error))


def _require_words(attack: Mapping[str, Any], run_file: RunFile) -> None:
    """Raise OptionError unless the attack's words can be written into the rows.

    For satisfiability they must be words of its vocabulary.
    """
    name, options = resolve(attack)
    for value in options.values():
        if isinstance(value, Mapping):
            _require_words(value, run_file)
    if not isinstance(run_file.data, SatData):
        return
    try:
        words = sat_options(run_file).tokenizer()
    except InputError:
        return  # `data_problems` tells
    for option in ("trigger", "output"):
        unknown = [word for word in str(options.get(option, "")).split() if word not in words.ids]
        if unknown:
            known = " ".join(["1 -2", *(word for word in words.tokens if not word.startswith("<"))][:7])
            raise OptionError(
                f"attack '{name}': option '{option}' has {unknown[0][:40]!r}, but rows of satisfiability have words "
                f"such as `{known}`, of {words.num_variables} variables; write it in these"
            )


def costed_warnings(run_file: RunFile) -> Iterator[Problem]:
    """Yield warnings about settings without effect where work is costed and not done."""
    for path, _, attack in attacks_of(run_file):
        if talks(attack):
            continue
        yield Problem(path, "has no effect where work is only costed; simulate with --real, or leave it out")
