"""Compatibility rows about planned faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from barnraise.config.faults import KINDS, OPERANDS, SHORT, WHEN, KillController, Kind, given, kinds_of
from barnraise.config.trial_sections import FaultSection
from barnraise.plan.purpose import SERVE, SIMULATE
from barnraise.plan.table import Case, Found, Row, adding_to, either, rule_text

ROWS: list[Row] = []
_row = adding_to(ROWS)

SHOWN = 8
"""Names that a message lists."""


def _kinds(case: Case) -> Iterator[tuple[int, FaultSection, Kind]]:
    """Yield the faults that name their kind, with their places."""
    for index, section in enumerate(case.run_file.faults):
        names = kinds_of(section)
        if len(names) == 1 and names[0] in KINDS:
            yield index, section, KINDS[names[0]]


@_row(
    "a fault without exactly one time",
    "its time is a share of the tokens, seconds since the start, or a number of decisions",
    f"give one of {either(WHEN)}",
)
def _fault_times(case: Case) -> Found:
    for index, section in enumerate(case.run_file.faults):
        times = [key for key in WHEN if getattr(section, key) is not None]
        if len(times) != 1:
            yield ("faults", index), f"has {' and '.join(times)}" if times else f"has neither {' nor '.join(WHEN)}"


@_row(
    "a fault that does not do exactly one thing",
    "a fault is of one kind",
    "give one of them (`do` names a kind, as the list of faults does); two things are two faults",
)
def _fault_shape(case: Case) -> Found:
    for index, section in enumerate(case.run_file.faults):
        names = kinds_of(section)
        if len(names) != 1:
            said = ["do"] * (section.do is not None) + [key for key in SHORT if getattr(section, key) is not None]
            yield ("faults", index), f"has both {' and '.join(said)}" if said else f"has neither {_neither()}"


def _neither() -> str:
    return " nor ".join(["do", *SHORT])


@_row(
    "a fault without what its kind needs, or with what it does not take",
    "each kind has operands of its own",
    "see the list of faults",
)
def _fault_operands(case: Case) -> Found:
    for index, section, kind in _kinds(case):
        operands, found = kind.operands, given(section)
        (name,) = kinds_of(section)
        for key, needed in operands.items():
            if needed and key not in found:
                yield ("faults", index, "node" if key == "nodes" else key), f"is missing, and {name} needs it"
        takes = [key for key in OPERANDS if key in operands or (key == "node" and "nodes" in operands)]
        for key in (*OPERANDS, *SHORT):
            if key in OPERANDS and getattr(section, key) is not None and key not in takes:
                yield ("faults", index, key), f"is given, but {name} takes {', '.join(takes)} alone"
        if len([key for key in ("node", "nodes", "kill") if getattr(section, key) is not None]) > 1:
            yield ("faults", index, "nodes"), "is given beside another name"


@_row(
    "a fault that names a node twice",
    "it happens to each node once",
    "name each once",
)
def _fault_twice(case: Case) -> Found:
    for index, section, _ in _kinds(case):
        for name in sorted({name for name in section.nodes or () if (section.nodes or []).count(name) > 1}):
            yield ("faults", index, "nodes"), f"names '{name}' more than once"


@_row(
    "a number of decisions as the time of anything but the controller's death",
    "only the controller's death falls between two of its decisions",
    "give at or at_seconds",
)
def _fault_decisions(case: Case) -> Found:
    for index, section, kind in _kinds(case):
        if section.at_decisions is not None and kind.struct is not KillController:
            yield ("faults", index, "at_decisions"), f"is {section.at_decisions}"


@_row(
    "a fault that the command cannot play",
    "a fault of a link needs an emulated link, and a fault of a worker's clock a modelled machine",
    "leave it out here, or play it with one of those",
)
def _fault_mode(case: Case) -> Found:
    if case.purpose is SERVE:
        return
    for index, section, kind in _kinds(case):
        (name,) = kinds_of(section)
        if case.purpose.value not in kind.modes:
            path = ("faults", index, "do") if section.do is not None else ("faults", index)
            yield path, f"{name} cannot be played by `{case.purpose.value}`: {_commands(kind.modes)} can"
        elif case.purpose.value not in kind.on_nodes:
            for key, _ in _named(section):
                said = f"is given, but `{case.purpose.value}` cannot play {name} on a node"
                yield ("faults", index, key), f"{said}: {_commands(kind.on_nodes)} can"


def _commands(modes: Iterable[str]) -> str:
    return either(f"`{mode}`" for mode in modes)


@_row(
    "a fault of an absent node, or the joining of a present one",
    "faults act on nodes by name, in the order of their times",
    "name a node that runs by then, or let one join under a new name",
)
def _fault_names(case: Case) -> Found:
    """Check the nodes of faults.

    Those at a share of tokens and those at a time are checked separately, since both orders are unknown.
    """
    if case.purpose is SERVE:
        return
    known = _names(case)
    joining = {section.join.name for section in case.run_file.faults if section.join is not None}
    clocks: dict[str, list[tuple[float, int, FaultSection, Kind]]] = defaultdict(list)
    for index, section, kind in _kinds(case):
        times = [(key, getattr(section, key)) for key in WHEN if getattr(section, key) is not None]
        if len(times) == 1:
            clocks[times[0][0]].append((times[0][1], index, section, kind))
    single = len(clocks) == 1
    taken: set[str] = set()
    for faults in clocks.values():
        living = set(known) if single else known | joining
        for time, index, section, kind in sorted(faults, key=lambda fault: fault[:2]):
            if section.join is not None:
                if section.join.name in known | taken:
                    yield ("faults", index, "join"), f"'{section.join.name}' is taken"
                taken.add(section.join.name)
                living.add(section.join.name)
                continue
            dead = (known | taken) - living if case.purpose.local else set[str]()
            for key, name in _named(section):
                if name not in living:
                    what = f"is dead at {time}" if name in dead else f"is no worker at {time}"
                    listed = ", ".join(sorted(living)[:SHOWN]) + (", ..." if len(living) > SHOWN else "")
                    yield ("faults", index, key), f"'{name}' {what} (running: {listed or 'no node'})"
                elif case.purpose.local and kind.ends:
                    living.discard(name)


def _named(section: FaultSection) -> Iterator[tuple[str, str]]:
    for key in ("kill", "node"):
        if getattr(section, key) is not None:
            yield key, getattr(section, key)
    for name in section.nodes or ():
        yield "nodes", name


def _names(case: Case) -> set[str]:
    """Return the nodes at the start of the run; in a larger or smaller simulation, numbered ones."""
    workers = [worker.name for worker in case.run_file.workers]
    if case.purpose is not SIMULATE or case.num_nodes is None:
        return set(workers)
    from barnraise.emulation.fleet import numbered

    return {*workers[: case.num_nodes], *map(numbered, range(len(workers), case.num_nodes))}


@_row(
    "faults where no nodes are started",
    "faults act on nodes, which `train` and `lab` start and `simulate` plays",
    "leave faults out, or run with one of these",
    warning=True,
)
def _faults_unused(case: Case) -> Found:
    if case.purpose is SERVE and case.run_file.faults:
        yield ("faults",), "have no effect here"


@_row(
    "faults that leave fewer workers than the aggregation rule needs",
    "the run pauses until enough nodes live",
    "let another join first, or list more workers",
    warning=True,
)
def _fault_pause(case: Case) -> Found:
    need, living = case.rule.minimum_nodes, len(case.run_file.workers)
    if not case.purpose.local or living < need:
        return
    timed = [(section.at, index, section, kind) for index, section, kind in _kinds(case) if section.at is not None]
    for _, index, section, kind in sorted(timed, key=lambda fault: fault[:2]):
        gone = len(list(_named(section))) if kind.ends else 0
        living += (section.join is not None) - gone
        if living < need:
            yield ("faults", index), f"leaves {living} workers, but {rule_text(case)} needs {need}"
            return
