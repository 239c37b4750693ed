"""The terms: sizes follow from them, and each field changes what members sign."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.maskings import MODEL, committee, terms

from barnraise.core.errors import InputError
from barnraise.privacy.masking.ring import Ring
from barnraise.privacy.masking.terms import MaskTerms
from barnraise.trust.signatures import RunId


def test_every_field_changes_the_digest() -> None:
    it = terms()
    others = [
        replace(it, run=RunId("barn", "j" * 40)),
        replace(it, ring=Ring(11, 32, 1.0)),
        replace(it, ring=Ring(10, 31, 1.0)),
        replace(it, ring=Ring(10, 32, 1.5)),
        replace(it, size=21),
        replace(it, support=1),
        replace(it, committee=committee(5, 1)),
        replace(it, committee=None),
    ]
    assert len({one.digest for one in [it, *others]}) == 1 + len(others)
    assert terms().digest == it.digest


def test_a_binding_is_of_one_update() -> None:
    it = terms()
    origins = [("n1", 1, 3, MODEL), ("n2", 1, 3, MODEL), ("n1", 2, 3, MODEL), ("n1", 1, 4, MODEL), ("n1", 1, 3, "")]
    assert len({it.binding(*one) for one in origins}) == len(origins)
    assert terms(21).binding(*origins[0]) != it.binding(*origins[0])


@pytest.mark.parametrize(("m", "t", "share"), [(4, 1, 672), (8, 1, 2272), (8, 2, 6496)])
def test_masks_add_a_fixed_number_of_bytes(m: int, t: int, share: int) -> None:
    it = terms(1000, m=m, t=t)
    assert it.share_bytes == share
    assert it.payload_bytes == 28 + share + it.word_bytes
    assert replace(it, committee=None).payload_bytes == 28 + it.word_bytes


@pytest.mark.parametrize("change", [{"size": 0}, {"size": 1 << 40}, {"support": -1}, {"support": (1 << 53) + 1}])
def test_numbers_that_cannot_be_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(InputError, match="must"):
        replace(terms(), **change)  # type: ignore[arg-type]


def test_terms_may_lack_a_committee() -> None:
    assert MaskTerms(terms().run, terms().ring, 3).share_bytes == 0
