"""The manifest names what travels, and one without that name is the full model's."""

from __future__ import annotations

import pytest

from barnraise.core.errors import WireError
from barnraise.core.types import Blob
from barnraise.wire.manifest import FULL_MODEL, ExchangeName, FrozenPart, Manifest

OLD = b'{"model":{"model_type":"gpt2"},"dataset":{"digest":"' + b"a" * 64 + b'","num_bytes":7},"num_parameters":10}'
"""A manifest of a run from before there were kinds of exchange."""


def test_the_full_model_has_the_bytes_that_it_had() -> None:
    manifest = Manifest({"model_type": "gpt2"}, Blob("a" * 64, 7), 10)
    assert manifest.encode() == OLD
    assert Manifest.decode(OLD) == manifest
    assert manifest.exchange == FULL_MODEL


def test_another_kind_is_named_with_its_options_and_its_frozen_parts() -> None:
    name = ExchangeName("some", {"prefix": "a."}, (FrozenPart("frozen.safetensors", Blob("b" * 64, 9)),))
    manifest = Manifest({"model_type": "gpt2"}, Blob("a" * 64, 7), 3, name)
    assert Manifest.decode(manifest.encode()) == manifest


@pytest.mark.parametrize("name", ["meta.json", "../frozen", "frozen/x", "", "frozen" + "x" * 200])
def test_a_part_has_a_name_that_no_other_file_has(name: str) -> None:
    part = b'[{"name":"%s","blob":{"digest":"%s","num_bytes":1}}]' % (name.encode(), b"b" * 64)
    with pytest.raises(WireError, match="cannot be read"):
        Manifest.decode(OLD[:-1] + b',"exchange":{"kind":"some","frozen":' + part + b"}}")
