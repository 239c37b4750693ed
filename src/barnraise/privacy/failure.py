"""Equation 8: the probability that the privacy of a run fails, as a sum of four probabilities (union bound).

    epsilon_total <= P(collusion) + P(ring wrap) + delta + P(forgery)

The terms need not be independent. Each is at most 1, and so is the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from barnraise.core.errors import InputError

FORGED_SIGNATURE = 2.0**-128
"""Chance of one attempt at an Ed25519 signature or a 256-bit seed: the security level, an assumption and no theorem."""

FORGED_BLOCK = 2.0**-103
"""Chance of one attempt at a Poly1305 tag, for each 16 bytes of the message (Bernstein 2005, theorem 3.3)."""


@dataclass(frozen=True)
class FailureTerms:
    """The four terms of equation 8, each a probability over the whole run."""

    collusion: float = 0.0
    ring_wrap: float = 0.0
    delta: float = 0.0
    forgery: float = 0.0

    def __post_init__(self) -> None:
        for name in ("collusion", "ring_wrap", "delta", "forgery"):
            _share(name, getattr(self, name))

    @property
    def total(self) -> float:
        """Return epsilon_total, at most 1."""
        return min(1.0, self.collusion + self.ring_wrap + self.delta + self.forgery)


def collusion(trustees: int, tolerated: int, probability: float) -> float:
    """Return the chance that more than `tolerated` of m trustees collude, each independently with `probability`.

    sum over k > t of C(m, k) p^k (1 - p)^(m - k). The independence is the run's assumption: trustees of one owner
    count as one trustee.

    >>> round(collusion(4, 1, 0.01), 6)
    0.000592
    """
    _share("probability", probability)
    if not 0 <= tolerated <= trustees:
        raise InputError(f"{tolerated} of {trustees} trustees may collude; give a number from 0 to {trustees}")
    more = range(tolerated + 1, trustees + 1)
    terms = (math.comb(trustees, k) * probability**k * (1.0 - probability) ** (trustees - k) for k in more)
    return min(1.0, math.fsum(terms))


def ring_wrap(bits: int, members: int, limit: int, *, deviation: float = 0.0, words: int = 1) -> float:
    """Return a bound on the chance that a word of a run's sums wraps around in a ring of 2^bits.

    `members` values of magnitude `limit` at most add up, with Gaussian noise of standard deviation `deviation` in the
    sum, in steps. The room above the values is h = 2^(bits - 1) - members * limit. Without noise a word wraps never if
    h > 0. With noise, `words` words of all versions wrap with a chance of at most words * erfc(h / (deviation sqrt 2)).

    >>> ring_wrap(14, 16, 511), ring_wrap(13, 16, 511)
    (0.0, 1.0)
    """
    if min(bits, members, limit, words) < 1 or deviation < 0:
        raise InputError(
            f"a ring of {bits} bits, {members} members, a limit of {limit}, {words} words and a deviation of "
            f"{deviation} are out of range; give 1 or more of each, and a deviation of 0 or more"
        )
    room = 2 ** (bits - 1) - members * limit
    if room <= 0:
        return 1.0
    return min(1.0, words * math.erfc(room / (deviation * math.sqrt(2.0)))) if deviation else 0.0


def forgery(signatures: float, tags: float = 0.0, tag_bytes: int = 0) -> float:
    """Return the chance that one of the attempts at signatures or seeds, or at tags of sealed messages, succeeds.

    The arguments count the attempts of all adversaries in the run's time; a sealed message has `tag_bytes`.
    """
    if min(signatures, tags, tag_bytes) < 0:
        raise InputError(f"{signatures} and {tags} attempts of {tag_bytes} bytes are impossible; give 0 or more")
    return min(1.0, signatures * FORGED_SIGNATURE + tags * math.ceil(tag_bytes / 16 + 1) * FORGED_BLOCK)


def _share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{name} is {value}, but a probability is from 0 to 1; give one")
