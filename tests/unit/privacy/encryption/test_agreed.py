"""The agreement of an encrypted run, from its key's name and its bounds."""

from __future__ import annotations

import pytest

from barnraise.core.errors import InputError
from barnraise.privacy.encryption.agreed import agreed


def test_the_host_and_a_worker_agree_from_the_same_terms() -> None:
    found = agreed("barn/" + "ab" * 16, 4096, 2.0, 5000)
    assert (found.run, found.key, found.values) == ("barn", "ab" * 16, 5000)
    assert found == agreed("barn/" + "ab" * 16, 4096, 2.0, 5000)
    assert found.budget.levels * found.budget.step == pytest.approx(2.0)


def test_a_key_without_an_id_is_refused() -> None:
    with pytest.raises(InputError, match="'barn' names no key; give it as NAME/ID"):
        agreed("barn", 4096, 1.0, 5000)


def test_more_updates_than_a_sum_holds_are_refused() -> None:
    with pytest.raises(InputError, match="2097152 ciphertexts in one sum"):
        agreed("barn/" + "ab" * 16, 1 << 21, 1.0, 5000)
