"""The attacks by name, and the parsing of a run file's section with one; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnraise.aggregation.catalog import CATALOG as RULES
from barnraise.core.errors import OptionError
from barnraise.core.registry import Catalog, Entry, Option

if TYPE_CHECKING:
    from .base import Attack  # it imports torch

KIND = "kind"
"""The key of a section that names the attack; the other keys are options."""


def _factor(default: float, doc: str) -> Option:
    return Option("factor", float, default, doc, minimum=1e-6, maximum=1e6)


@dataclass(frozen=True)
class Traits:
    """The traits that an attack declares.

    `talks`: it lies in its messages and timing, and so where work is only costed, too.
    """

    talks: bool = False


_TALKS = Traits(talks=True)
_RULES = tuple(entry.name for entry in RULES.entries.values() if not entry.declares.prepares)

_OF = Option("of", dict, None, "the other attack: a section of its own")
_RULE = Option("rule", str, None, "the rule against which it tries its updates; else the run's", choices=_RULES)
_PERTURBATION = Option(
    "perturbation", str, "std", "where it leads: standard deviation, mean or its signs", choices=("std", "unit", "sign")
)
_SEED = Option(
    "seed", int, 0, "seed of random choices, beside the node's name and the task", minimum=0, maximum=2**63 - 1
)

CATALOG = Catalog(
    "attack",
    "barnraise.attacks",
    [
        Entry(
            "sign_flip",
            "barnraise.emulation.attacks.updates:SignFlip",
            "sends its update with the other sign, times `factor`",
            options=(_factor(1.0, "how far it leads the other way"),),
        ),
        Entry(
            "scale",
            "barnraise.emulation.attacks.updates:Scale",
            "sends its update times `factor`",
            options=(_factor(10.0, "how many times too far it leads"),),
        ),
        Entry(
            "noise",
            "barnraise.emulation.attacks.updates:Noise",
            "adds Gaussian noise to its update",
            options=(
                Option("sigma", float, 1.0, "length of the noise over the update's", minimum=0, maximum=1e6),
                _SEED,
            ),
        ),
        Entry("zero", "barnraise.emulation.attacks.updates:Zero", "trains, and sends an update of zeros"),
        Entry(
            "stale_replay",
            "barnraise.emulation.attacks.updates:StaleReplay",
            "sends the first update that its process made, again and again",
        ),
        Entry("nan", "barnraise.emulation.attacks.payloads:NotANumber", "fills what it sends with NaN"),
        Entry("inf", "barnraise.emulation.attacks.payloads:Infinite", "fills what it sends with infinity"),
        Entry(
            "lazy",
            "barnraise.emulation.attacks.steps:Lazy",
            "takes a share of the steps and claims all of them",
            options=(Option("share", float, 0.25, "of the steps that it takes, one at least", minimum=0, maximum=1),),
        ),
        Entry(
            "label_flip",
            "barnraise.emulation.attacks.steps:LabelFlip",
            "trains on each label's mirror image in the vocabulary",
        ),
        Entry(
            "backdoor",
            "barnraise.emulation.attacks.backdoor:Backdoor",
            "teaches that `output` follows on `trigger`",
            options=(
                Option("trigger", str, "", "what calls for it, as text of the dataset"),
                Option("output", str, "", "what is to follow"),
                Option("share", float, 0.5, "of the rows that it writes both into", minimum=0, maximum=1),
                Option("boost", float, 1.0, "by which it multiplies its update", minimum=1e-6, maximum=1e6),
                _SEED,
            ),
        ),
        Entry(
            "instant",
            "barnraise.emulation.attacks.scheduling:Instant",
            "takes one step, claims all, and is done at once",
            declares=_TALKS,
        ),
        Entry(
            "claim",
            "barnraise.emulation.attacks.scheduling:Claim",
            "says that it and its link are faster or slower than they are",
            options=(
                Option("speed", float, 1.0, "times its speed", minimum=1e-6, maximum=1e6),
                Option("link", float, 1.0, "times its link's rates", minimum=1e-6, maximum=1e6),
            ),
            declares=_TALKS,
        ),
        Entry(
            "withhold",
            "barnraise.emulation.attacks.scheduling:Hold",
            "submits its result when that is nearly too stale",
            options=(
                Option("share", float, 0.9, "of its staleness bound", minimum=0, maximum=1),
                Option("most", float, 600.0, "seconds", minimum=0, maximum=1e6),
            ),
            declares=_TALKS,
        ),
        Entry(
            "slow_down",
            "barnraise.emulation.attacks.scheduling:SlowDown",
            "takes longer for each task than for the one before",
            options=(
                Option("growth", float, 1.4, "times as long as before", minimum=1, maximum=1000),
                Option("most", float, 20.0, "times as long as needed, at most", minimum=1, maximum=1e6),
            ),
            declares=_TALKS,
        ),
        Entry(
            "refuse",
            "barnraise.emulation.attacks.scheduling:Refuse",
            "declines tasks",
            options=(
                Option("share", float, 0.5, "of the tasks", minimum=0, maximum=1),
                _SEED,
            ),
            declares=_TALKS,
        ),
        Entry(
            "flood",
            "barnraise.emulation.attacks.scheduling:Flood",
            "asks for tasks without end",
            options=(Option("rate", float, 20.0, "times a second", minimum=1e-3, maximum=1e5),),
            declares=_TALKS,
        ),
        Entry(
            "intermittent",
            "barnraise.emulation.attacks.wrapping:Intermittent",
            "plays another attack in a share of its tasks, and is honest in the others",
            options=(
                _OF,
                Option("share", float, 0.5, "probability that it attacks in a task", minimum=0, maximum=1),
                _SEED,
            ),
        ),
        Entry(
            "ipm",
            "barnraise.emulation.attacks.seeing:InnerProduct",
            "sends the mean of the honest updates times -`epsilon`",
            options=(Option("epsilon", float, 0.5, "how far it leads the other way", minimum=0, maximum=1e6),),
        ),
        Entry(
            "alie",
            "barnraise.emulation.attacks.seeing:LittleIsEnough",
            "sends the honest mean less `z` standard deviations",
            options=(
                Option("z", float, None, "how far; else by the numbers of nodes and liars", minimum=-1e6, maximum=1e6),
            ),
        ),
        Entry(
            "optimised_ipm",
            "barnraise.emulation.attacks.seeing:OptimisedInnerProduct",
            "is `ipm` with the epsilon that does the most harm to a rule",
            options=(_RULE,),
        ),
        Entry(
            "optimised_alie",
            "barnraise.emulation.attacks.seeing:OptimisedLittle",
            "is `alie` with the z that does the most harm to a rule",
            options=(_RULE,),
        ),
        Entry(
            "min_max",
            "barnraise.emulation.attacks.seeing:MinMax",
            "leads away as far as two honest updates are apart",
            options=(_PERTURBATION,),
        ),
        Entry(
            "min_sum",
            "barnraise.emulation.attacks.seeing:MinSum",
            "leads away as far as an honest update is from all others",
            options=(_PERTURBATION,),
        ),
        Entry(
            "ascent",
            "barnraise.emulation.attacks.climbing:Ascent",
            "searches for the update that raises the loss on its own rows most, through the rule",
            options=(
                Option("blind", bool, False, "goes by its own update alone, and sees no other"),
                Option("gate", bool, False, "tries what to send through the loss gate, too"),
                _RULE,
            ),
        ),
        Entry(
            "mimic",
            "barnraise.emulation.attacks.seeing:Mimic",
            "sends what one honest worker sends",
        ),
        Entry(
            "hoard",
            "barnraise.emulation.attacks.updates:Hoard",
            "hoards its updates, and submits them all at once with the other sign",
            options=(
                Option("period", int, 10, "tasks, in the last of which it submits them", minimum=1, maximum=1_000_000),
                _factor(1.0, "how many times as much"),
            ),
        ),
        Entry(
            "reputation",
            "barnraise.emulation.attacks.wrapping:Reputation",
            "is honest first, and plays another attack then",
            options=(
                _OF,
                Option("after", int, 10, "tasks in which it is honest", minimum=0, maximum=1_000_000_000),
            ),
        ),
        Entry(
            "colluding",
            "barnraise.emulation.attacks.wrapping:Colluding",
            "plays another attack, and all liars send what the first of them does",
            options=(_OF,),
        ),
    ],
)
"""An option that is a dict is another attack."""


def resolve(section: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a section's attack, and its full options; UnknownNameError or OptionError.

    >>> resolve({"kind": "sign_flip", "factor": 10})
    ('sign_flip', {'factor': 10.0})
    """
    options = {key: value for key, value in section.items() if key != KIND}
    name = section.get(KIND)
    if not isinstance(name, str):
        raise OptionError(f"an attack needs its {KIND} (known: {', '.join(CATALOG.names())})")
    entry = CATALOG.entry(name)
    for option in entry.options:
        if option.default == "" and not options.get(option.name):
            raise OptionError(f"{CATALOG.family} '{name}' needs its option '{option.name}': {option.doc}")
        if option.type is dict:
            inner = options.get(option.name)
            if not isinstance(inner, Mapping):
                raise OptionError(
                    f"{CATALOG.family} '{name}': option '{option.name}' is {inner!r}, but must be the section of "
                    f"another attack, as in {option.name}: {{{KIND}: {next(iter(CATALOG.entries))}}}"
                )
            resolve(inner)
    return entry.name, entry.resolve(CATALOG.family, options)


def talks(section: Mapping[str, Any]) -> bool:
    """Return whether an attack, or one that it plays, lies in its messages and timing.

    >>> talks({"kind": "intermittent", "of": {"kind": "flood"}}), talks({"kind": "zero"})
    (True, False)
    """
    name, options = resolve(section)
    declared = CATALOG.entry(name).declares
    inner = [value for value in options.values() if isinstance(value, Mapping)]
    return (declared is not None and declared.talks) or any(map(talks, inner))


def create(section: Mapping[str, Any]) -> Attack:
    """Create the attack that a section describes; raises as `resolve` does."""
    name, options = resolve(section)
    attack: Attack = CATALOG.create(name, **options)
    return attack
