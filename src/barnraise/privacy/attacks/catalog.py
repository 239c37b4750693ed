"""The attacks on privacy and the protections by name, with their traits; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnraise.core.errors import OptionError
from barnraise.core.registry import Catalog, Entry, Option

UPDATE, SUM, SESSION, MODEL, PROTOCOL = "update", "sum", "session", "model", "protocol"
"""The things that an adversary sees: an update (or the sum that hides it), a sum, messages, a model, the protocol."""

_UPDATES = "barnraise.privacy.attacks.updates"
_INFERENCE = "barnraise.privacy.attacks.inference"
_PROTOCOL = "barnraise.privacy.attacks.protocol"
_PROTECTIONS = "barnraise.privacy.attacks.protections"


@dataclass(frozen=True)
class Traits:
    """The traits that an attack on privacy declares.

    `sees`: what the adversary sees. `threshold`: the score from which on a trial is a success. `seconds`: the
    approximate time of a trial on a model of 0.2 million parameters, on one core.
    """

    sees: str = UPDATE
    threshold: float = 0.9
    seconds: float = 0.05


ATTACKS = Catalog(
    "attack on privacy",
    "barnraise.privacy_attacks",
    [
        Entry(
            "tokens",
            f"{_UPDATES}.tokens:EmbeddingTokens",
            "the set of a victim's tokens, from the rows of the embedding and of the output layer that moved",
            declares=Traits(),
        ),
        Entry(
            "query_tokens",
            f"{_UPDATES}.tokens:QueryTokens",
            "the set of a victim's tokens, from the first layer's query gradient alone",
            declares=Traits(),
        ),
        Entry(
            "union_tokens",
            f"{_UPDATES}.tokens:UnionTokens",
            "the set of all tokens of a group, from its sum",
            declares=Traits(sees=SUM),
        ),
        Entry(
            "labels",
            f"{_UPDATES}.labels:LabelCounts",
            "how often each token is a label, from the lengths of the output layer's rows",
            declares=Traits(),
        ),
        Entry(
            "exact_text",
            f"{_UPDATES}.exact_text:ExactText",
            "the rows themselves, by spans of the first two attentions' gradients (as DAGER)",
            declares=Traits(seconds=0.5),
        ),
        Entry(
            "subspace",
            f"{_UPDATES}.subspace:Subspace",
            "the rows, by embeddings that are moved towards the gradients' subspaces (as TIGER)",
            declares=Traits(seconds=1.0),
        ),
        Entry(
            "inversion",
            f"{_UPDATES}.inversion:Inversion",
            "the rows, by inputs whose gradient is made to match (as DLG)",
            declares=Traits(seconds=3.0),
        ),
        Entry(
            "averaging",
            f"{_UPDATES}.averaging:Averaging",
            "the set of a victim's tokens, from the mean of 32 messages about the same rows",
            declares=Traits(sees=SESSION, seconds=0.2),
        ),
        Entry(
            "buffer_difference",
            f"{_UPDATES}.buffer_difference:BufferDifference",
            "the set of a victim's tokens, from the sums of a list with it and of one without it",
            declares=Traits(sees=SESSION),
        ),
        Entry(
            "membership",
            f"{_INFERENCE}.membership:RowMembership",
            "whether a row was trained on, by likelihood ratios of shadow models (LiRA)",
            declares=Traits(sees=MODEL, seconds=0.2),
        ),
        Entry(
            "membership_offline",
            f"{_INFERENCE}.membership:OfflineMembership",
            "whether a row was trained on, by shadow models that were not (LiRA, offline)",
            declares=Traits(sees=MODEL, seconds=0.2),
        ),
        Entry(
            "membership_loss",
            f"{_INFERENCE}.membership:LossThreshold",
            "whether a row was trained on, by a threshold of its loss: the weak baseline",
            declares=Traits(sees=MODEL, seconds=0.2),
        ),
        Entry(
            "property",
            f"{_INFERENCE}.properties:SiteProperty",
            "the side of the main topic axis on which most rows of a site lie, by a classifier of shadow updates",
            declares=Traits(seconds=0.05),
        ),
        Entry(
            "malicious_host",
            f"{_PROTOCOL}.malicious_host:MaliciousHost",
            "a member's masked update, by lists, nonces, models and members that a host chooses, with one trustee",
            declares=Traits(sees=PROTOCOL, seconds=0.1),
        ),
    ],
)

_MULTIPLIER = Option("multiplier", float, 0.01, "Noise of an element in clipping bounds.", minimum=0, maximum=1e6)
_MEMBERS = Option("members", int, 8, "Workers whose updates are added.", minimum=2, maximum=1024)

PROTECTIONS = Catalog(
    "protection",
    "barnraise.privacy_protections",
    [
        Entry("none", f"{_PROTECTIONS}:PlainUpdate", "shows each update as it is"),
        Entry(
            "codec",
            f"{_PROTECTIONS}:EncodedUpdate",
            "shows each update as a codec leaves it",
            options=(Option("codec", str, "int8", "The codec, with its defaults."),),
        ),
        Entry(
            "noise",
            f"{_PROTECTIONS}:NoisyUpdate",
            "clips each update and adds noise to it",
            options=(_MULTIPLIER,),
        ),
        Entry("masked", f"{_PROTECTIONS}:MaskedMessage", "shows one masked message"),
        Entry(
            "sum",
            f"{_PROTECTIONS}:GroupSum",
            "shows the sum of a group, for one list only, as masks leave it",
            options=(_MEMBERS,),
        ),
        Entry(
            "any_sum",
            f"{_PROTECTIONS}:AnyGroupSum",
            "shows the sum of any list that the adversary names",
            options=(_MEMBERS,),
        ),
        Entry(
            "noisy_sum",
            f"{_PROTECTIONS}:NoisyGroupSum",
            "shows the sum of a group of clipped updates, with noise once for the sum",
            options=(_MEMBERS, _MULTIPLIER),
        ),
    ],
)

USUAL_PROTECTIONS = (
    "none",
    "codec:topk",
    "codec:int8",
    "noise:0.001",
    "noise:0.01",
    "noise:0.1",
    "noise:1",
    "masked",
    "sum:8",
    "noisy_sum:8:0.01",
    "noisy_sum:8:0.1",
)
"""The protections that are compared unless others are named."""


def parse_protection(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the checked options of a protection, written as NAME or NAME:VALUE:VALUE.

    The values are those of the options in their order. UnknownNameError or OptionError for others.

    >>> parse_protection("noisy_sum:4:0.1")
    ('noisy_sum', {'members': 4, 'multiplier': 0.1})
    """
    name, *values = text.split(":")
    entry = PROTECTIONS.entry(name)
    if len(values) > len(entry.options):
        raise OptionError(
            f"protection '{text}' has {len(values)} values, but '{name}' takes {len(entry.options)} at most: "
            f"{', '.join(option.name for option in entry.options) or 'none'}"
        )
    given = {option.name: _typed(text, option, value) for option, value in zip(entry.options, values, strict=False)}
    return name, PROTECTIONS.resolve(name, given)


def _typed(text: str, option: Option, value: str) -> Any:
    try:
        return option.type(value)
    except ValueError:
        raise OptionError(
            f"protection '{text}': {option.name} is '{value}', but must be of type {option.type.__name__}; "
            f"write for example {option.default}"
        ) from None
