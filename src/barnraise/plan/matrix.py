"""The runs of a matrix of attacks; invalid ones are found before anything starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path as FilePath
from typing import Any

from barnraise import aggregation
from barnraise.config.aliases import canonical
from barnraise.config.document import Document, read
from barnraise.config.load import build, located, nested
from barnraise.config.matrix import OWN, MatrixFile, for_rule, matrix_of
from barnraise.config.policy_sections import AggregationSection, TrustSection
from barnraise.config.problems import Problem, refusal
from barnraise.config.schema import RunFile
from barnraise.config.section import Section
from barnraise.core.errors import InputError, OptionError, RunFileError
from barnraise.emulation.attacks.catalog import KIND
from barnraise.emulation.attacks.catalog import resolve as resolve_attack
from barnraise.plan.attacks import attack_problems
from barnraise.plan.automatic import defended
from barnraise.plan.choices import AUTO
from barnraise.plan.purpose import SIMULATE
from barnraise.plan.resolve import examine

NONE = "no attack"
"""The attack of cells without liars: the cost of a rule where there is nothing to withstand."""

_LIAR = "liar-"

RULE, CODEC = "aggregation.rule", "exchange.compression"
"""The keys of a run file for a rule's name, and a codec's."""

HONEST_ONLY = "honest only"
"""The rule of runs without the liars, by the mean: the reference for all others."""


@dataclass(frozen=True)
class Setting:
    """The setting in which rules are compared: number of liars, equal or skewed data, codec and mode."""

    liars: int
    nodes: int
    data: str
    codec: str
    mode: str

    def __str__(self) -> str:
        return f"{self.liars} of {self.nodes} lie, {self.data} data, codec {self.codec}, {self.mode}"


@dataclass(frozen=True)
class Cell:
    """One run of the matrix.

    `content` is its run file, `skew` the Dirichlet concentration of its nodes' data (None: alike).
    """

    setting: Setting
    rule: str
    attack: str
    seed: int
    content: Mapping[str, Any]
    skew: float | None

    @property
    def looks(self) -> bool:
        """Return whether audits or scores look for liars in it."""
        trust = self.content.get("trust", {})
        return bool(trust.get("audits") or trust.get("scores"))

    @property
    def key(self) -> str:
        """Return the identity of a run."""
        text = json.dumps([self.content, self.skew], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Matrix:
    """All runs, the references first, and the sections of all attacks by their labels."""

    cells: tuple[Cell, ...]
    attacks: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class _Entry:
    """An entry of a list, with its place."""

    label: str
    keys: dict[str, Any]  # keys of the run file by section and name, or of an attack
    index: int


@dataclass(frozen=True)
class _Rule(_Entry):
    """A rule with the matrix's lists that count for it, and the names of those that are its `own`."""

    file: MatrixFile
    own: frozenset[str]

    @property
    def members(self) -> list[tuple[int, int]]:
        """Return the (liars, nodes) that it is tried with."""
        pairs = [text.split(" of ") for text in self.file.liars]
        return [(int(liars), int(nodes)) for liars, nodes in pairs]

    @property
    def codecs(self) -> list[_Entry]:
        return [_settings(given, CODEC, index) for index, given in enumerate(self.file.codecs)]

    @property
    def attacks(self) -> list[_Entry]:
        return [_entry(given, KIND, index) for index, given in enumerate(self.file.attacks)]


def planned(document: Document) -> Matrix:
    """Return the runs of a matrix file; RunFileError lists its problems, and every invalid cell."""
    file = matrix_of(document)
    base, problems = _base(file, FilePath(document.name).parent)
    attacks = [_entry(given, KIND, index) for index, given in enumerate(file.attacks)]
    problems += [Problem(("attacks", index), text) for index, text in _attack_problems(base, attacks)]
    rules = []
    for index, given in enumerate(file.rules):
        try:
            rule = _rule(file, given, index)
            wrong = list(_rule_problems(rule))
            if "attacks" in rule.own:
                wrong += [Problem(("rules", index), text) for _, text in _attack_problems(base, rule.attacks)]
            if not wrong:
                wrong += _run_problems(base, rule)
            rules.append(rule)
        except InputError as error:
            wrong = [Problem(("rules", index), str(error))]
        problems += wrong
    if problems:
        raise refusal(document.name, located(list(dict.fromkeys(problems)), document))
    cells = {(cell.setting, cell.rule, cell.attack, cell.seed): cell for cell in _cells(file, base, rules)}
    played = [*attacks, *(attack for rule in rules for attack in rule.attacks)]
    return Matrix(tuple(cells.values()), {entry.label: entry.keys for entry in played})


def _base(file: MatrixFile, folder: FilePath) -> tuple[dict[str, Any], list[Problem]]:
    """Return the run file's content without workers, and its problems."""
    given = canonical(file.run if isinstance(file.run, dict) else read(folder / file.run).content)
    inline = isinstance(file.run, dict)
    problems = [Problem(("run", *some.path) if inline else ("run",), some.message) for some in given.problems]
    if given.content.pop("workers", None):
        where = "" if inline else f" of {folder / str(file.run)}"
        text = f"a matrix makes its workers itself; leave the workers{where} out"
        problems.append(Problem(("run", "workers") if inline else ("run",), text))
    return given.content, problems


def _settings(given: object, key: str, index: int) -> _Entry:
    """Return the settings of a rule or a codec of the matrix: a name for `key`, or keys as `_dotted` reads them."""
    keys = _dotted(given) if isinstance(given, dict) else {key: given}
    return _Entry(_label(keys, key), keys, index)


def _dotted(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of the run file, each by its section and name. Those without a section are of `training`, or were once.
    OptionError where one is given twice.

    >>> _dotted({"aggregation.rule": "krum", "trust": {"scores": 0.2}, "local_steps": 5})
    {'aggregation.rule': 'krum', 'trust.scores': 0.2, 'training.local_steps': 5}
    >>> _dotted({"aggregation_rule": "krum"})
    {'aggregation.rule': 'krum'}
    """
    flat: dict[str, Any] = {}
    for name, value in given.items():
        if name in RunFile.model_fields and isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name if "." in name else f"training.{name}"] = value
    found = canonical(nested(flat))
    if found.problems:
        raise OptionError(str(found.problems[0]))
    return {f"{section}.{key}": value for section, keys in found.content.items() for key, value in keys.items()}


def _entry(given: object, key: str, index: int) -> _Entry:
    keys = dict(given) if isinstance(given, dict) else {key: given}
    return _Entry(_label(keys, key), keys, index)


def _rule(file: MatrixFile, given: object, index: int) -> _Rule:
    """Parse a rule; InputError where its own lists are malformed, or a rule of its chain is no name."""
    lists = {key: value for key, value in given.items() if key in OWN} if isinstance(given, dict) else {}
    keys = {key: value for key, value in given.items() if key not in OWN} if isinstance(given, dict) else given
    entry = _settings(keys, RULE, index)
    chain = _rule_of(entry.keys)
    for name in chain if isinstance(chain, list) else [chain]:
        if not isinstance(name, str):
            raise OptionError(f"{name} is no name of a rule; a rule's options go into aggregation.options beside it")
    return _settled(_Rule(entry.label, entry.keys, index, for_rule(file, lists), frozenset(lists)))


def _settled(rule: _Rule) -> _Rule:
    """Replace `auto` by the rule for untrusted nodes, so that it is the same in cells without liars."""
    if _rule_of(rule.keys) != AUTO:
        return rule
    keys = {key: value for key, value in rule.keys.items() if key != RULE}
    chosen = defended(
        AggregationSection.model_validate(_of(AggregationSection, "aggregation", keys)),
        TrustSection.model_validate(_of(TrustSection, "trust", keys)),
    )
    for heading, section in zip(("aggregation", "trust"), chosen, strict=True):
        keys |= {f"{heading}.{key}": value for key, value in section.model_dump(exclude_unset=True).items()}
    return replace(rule, keys=keys, label=rule.label if RULE in rule.keys else AUTO)


def _of(section: type[Section], heading: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the keys that a section of the run file has."""
    return {key: keys[f"{heading}.{key}"] for key in section.model_fields if f"{heading}.{key}" in keys}


def _label(keys: Mapping[str, Any], key: str) -> str:
    """
    >>> _label({"kind": "ipm", "epsilon": 2}, "kind")
    'ipm epsilon=2'
    >>> _label({"kind": "colluding", "of": {"kind": "zero"}}, "kind")
    'colluding of=(zero)'
    >>> _label({"aggregation.rule": "centered_clipping", "aggregation.options": {"tau": 1}}, "aggregation.rule")
    'centered_clipping options=(tau=1)'
    """
    name = keys.get(key)
    words = ["+".join(map(str, name)) if isinstance(name, list) else str(name)] if name is not None else []
    for option, value in keys.items():
        if option != key:
            words.append(
                f"{option.rpartition('.')[2]}={f'({_label(value, key)})' if isinstance(value, dict) else value}"
            )
    return " ".join(words)


def _attack_problems(base: dict[str, Any], attacks: list[_Entry]) -> Iterator[tuple[int, str]]:
    """Yield (place in the list, problem) of each invalid attack."""
    for entry in attacks:
        try:
            resolve_attack(entry.keys)
            content = _content(base, {}, "async", _names(1, 1), 1, entry.keys)
            for problem in attack_problems(build(Document("the run file of a cell", content))):
                yield entry.index, problem.message
        except RunFileError:
            continue  # a problem of the run file, which is reported with the rules
        except InputError as error:
            yield entry.index, str(error)


def _rule_problems(rule: _Rule) -> Iterator[Problem]:
    """Yield problems of too few nodes for the liars.

    InputError for an unknown rule.
    """
    for liars, nodes in rule.members:
        if not 0 < 2 * liars < nodes:
            near = f"{max(1, min(liars, (nodes - 1) // 2))} of {max(3, nodes)}"
            near += f" or {liars} of {2 * liars + 1}" if liars else ""
            text = f"{liars} of {nodes} lie, but it must be one at least, and less than half"
            yield Problem(("rules", rule.index), f"{text}; nearest: {near}")
        elif not rule.keys.get("trust.unguaranteed"):
            yield from _too_few(rule, liars, nodes)


def _too_few(rule: _Rule, liars: int, nodes: int) -> Iterator[Problem]:
    names = _rule_of(rule.keys)
    options = _with_f(rule, liars)
    given = {"f": options["aggregation.f"]} if "aggregation.f" in options else {}
    needed = aggregation.minimum(names, given)
    if needed > nodes:
        fewer = [f for f in range(1, liars) if aggregation.minimum(names, {"f": f}) <= nodes] if given else []
        forms = [f"{liars} of {needed}", *(f"{f} of {nodes}" for f in fewer[-1:])]
        yield Problem(
            ("rules", rule.index),
            f"{rule.label} needs {needed} nodes to withstand {liars}, but {liars} of {nodes} lie; nearest: "
            f"liars: {' or '.join(forms)}",
        )


def _rule_of(keys: dict[str, Any]) -> Any:
    return keys.get(RULE, AggregationSection.model_fields["rule"].default)


def _with_f(rule: _Rule, liars: int) -> dict[str, Any]:
    """The rule's keys, with f where it has one."""
    members = aggregation.resolve(_rule_of(rule.keys), {})
    knows_f = any("f" in entry.known_options for entry, _ in members)
    return ({"aggregation.f": liars} if knows_f and "aggregation.trim_ratio" not in rule.keys else {}) | rule.keys


_OWN_ROWS = (
    "where data are skewed a node has rows of its own, so no other node can repeat its work; nearest: trust.scores: 0.2"
)


def _run_problems(base: dict[str, Any], rule: _Rule) -> Iterator[Problem]:
    """Yield the problems of its cells' run files.

    Problems of a codec alone are reported at its place.
    """
    for codec, mode, (liars, nodes) in product(rule.codecs, rule.file.modes, rule.members):
        keys = _with_f(rule, liars) | codec.keys
        content = Document("the run file of a cell", _content(base, keys, mode, _names(liars, nodes)))
        try:
            run_file = build(content)
            _, problems = examine(run_file, purpose=SIMULATE, nodes=nodes)
            if run_file.trust.audits and "skewed" in rule.file.data:
                problems = [*problems, Problem(("trust", "audits"), _OWN_ROWS)]
        except RunFileError as error:
            problems = [found for found in error.problems if isinstance(found, Problem)]
        for problem in problems:
            if problem.path[-1:] == ("compression",) and "codecs" not in rule.own:
                yield Problem(("codecs", codec.index), problem.message)
                continue
            text = f"{rule.label} with codec {codec.label}, {mode}, {nodes} nodes: {problem}"
            yield Problem(("rules", rule.index), text)


def _cells(file: MatrixFile, base: dict[str, Any], rules: list[_Rule]) -> Iterator[Cell]:
    """Yield the cells seed by seed, the runs without liars first."""
    for seed in file.seeds:
        run = base | {"run": base.get("run", {}) | {"seed": seed}}
        cells = []
        for rule in rules:
            lists = rule.file
            for codec, mode, data, (liars, nodes) in product(rule.codecs, lists.modes, lists.data, rule.members):
                skew = lists.skew if data == "skewed" else None
                setting = Setting(liars, nodes, data, codec.label, mode)
                names, keys = _names(liars, nodes), _with_f(rule, liars) | codec.keys
                honest = _content(_shortened(run, liars, nodes), codec.keys, mode, names[: nodes - liars])
                yield Cell(setting, HONEST_ONLY, NONE, seed, honest, skew)
                cells.append(Cell(setting, rule.label, NONE, seed, _content(run, keys, mode, names), skew))
                for attack in rule.attacks:
                    content = _content(run, keys, mode, names, liars, attack.keys)
                    cells.append(Cell(setting, rule.label, attack.label, seed, content, skew))
        yield from cells


def _names(liars: int, nodes: int) -> list[str]:
    honest = nodes - liars
    return [*(f"honest-{number}" for number in range(honest)), *(f"{_LIAR}{number}" for number in range(liars))]


def is_liar(name: str) -> bool:
    """Return whether a worker of a cell with liars is one of them."""
    return name.startswith(_LIAR)


def _shortened(run: dict[str, Any], liars: int, nodes: int) -> dict[str, Any]:
    """Return a run of as many rounds without the liars: their share of the tokens is left out."""
    training = run.get("training", {})
    tokens = int(training.get("tokens", 0) * (nodes - liars) / nodes)
    return dict(run) | ({"training": training | {"tokens": tokens}} if tokens else {})


def _content(
    base: dict[str, Any],
    keys: dict[str, Any],
    mode: str,
    names: list[str],
    liars: int = 0,
    attack: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the run file of a cell, whose last `liars` workers attack."""
    last = len(names) - liars
    workers = [{"name": name} | ({"attack": dict(attack or {})} if at >= last else {}) for at, name in enumerate(names)]
    content = dict(base) | {"workers": workers}
    for section, given in nested(keys | {"controller.use_async_training": mode == "async"}).items():
        content[section] = base.get(section, {}) | given
    return content
