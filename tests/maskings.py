"""Committees, terms and masked updates for the tests of masks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from barnraise.privacy.masking.committee import Committee, TrusteeKeys
from barnraise.privacy.masking.lists import MemberList, entry_of
from barnraise.privacy.masking.payload import MaskedUpdate, UpdateOrigin, mask, parse
from barnraise.privacy.masking.ring import Ring
from barnraise.privacy.masking.sealing import SealingKey
from barnraise.privacy.masking.terms import MaskTerms
from barnraise.privacy.masking.trustee import TrusteeMachine, TrusteeSettings
from barnraise.trust.signatures import RunId, Signer, endorsed

RUN = RunId("barn", "k" * 40)
MODEL = "ab" * 32
"""The digest of the base version of all updates."""


@cache
def trustee_signer(number: int) -> Signer:
    return Signer(bytes([1, *[number] * 31]))


def trustee_sealing(number: int) -> SealingKey:
    return SealingKey(bytes([2, *[number] * 31]))


@cache
def member_signer(number: int) -> Signer:
    return Signer(bytes([3, *number.to_bytes(31, "big")]))


def committee(m: int = 4, t: int = 1) -> Committee:
    """Return a committee of m trustees of whom t may collude."""
    return Committee(
        tuple(TrusteeKeys(f"t{n}", trustee_signer(n).public, trustee_sealing(n).public) for n in range(m)), t
    )


def terms(size: int = 20, *, m: int = 4, t: int = 1, value_bits: int = 10, members: int = 32) -> MaskTerms:
    """Return the terms of a masked run."""
    return MaskTerms(RUN, Ring(value_bits, members, 1.0), size, committee(m, t))


def origin(number: int, assignment: int | None = None) -> UpdateOrigin:
    """Return the origin of an update of node `number`."""
    return UpdateOrigin(f"n{number}", number if assignment is None else assignment, 3, MODEL)


def update(of: MaskTerms, number: int, words: Any) -> MaskedUpdate:
    """Return the masked update of node `number`, as the controller parses it; `words` keep their values."""
    return parse(mask(of, origin(number), np.array(words), member_signer(number)), of)


def listed(of: MaskTerms, updates: list[MaskedUpdate], **changes: Any) -> MemberList:
    """Return the list of these updates, whose places are their nodes' numbers."""
    fields = {
        "run": of.run,
        "version": 4,
        "model": MODEL,
        "nonce": "00" * 32,
        "terms": of.digest,
        "support": of.support,
        "group": 0,
        "entries": tuple(entry_of(one, origin(number)) for number, one in enumerate(updates)),
    }
    return MemberList(**(fields | changes))


def signatures(of: MemberList, trustees: Iterable[int]) -> dict[str, str]:
    """Return these trustees' signatures of a list, by name."""
    return {f"t{one}": trustee_signer(one).sign(endorsed(of.run, f"t{one}", of.digest)) for one in trustees}


def trustee(
    number: int, of: MaskTerms, record: Any, decisions: Any = (), *, members: int = 40, least: int = 2
) -> TrusteeMachine:
    """Return a trustee's machine, whose roster has `members` nodes."""
    roster = {f"n{one}": member_signer(one).public for one in range(members)}
    settings = TrusteeSettings(
        number=number,
        signer=trustee_signer(number),
        sealing=trustee_sealing(number),
        terms=of,
        roster=roster,
        least_members=least,
    )
    return TrusteeMachine(settings, record, decisions)
