"""The manifest, one JSON blob that a worker needs before its first task: model config and dataset description."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import WireError
from barnraise.core.types import Blob, Count
from barnraise.wire.messages import Name, Options

MANIFEST_LIMIT = 1 << 20
"""Largest manifest in bytes: decoding it takes less than a second, in which a process handles no signal."""


PartName = Annotated[str, msgspec.Meta(min_length=1, max_length=120, pattern=r"^frozen[A-Za-z0-9_.-]*\Z")]


URL_LIMIT = 2000

Url = Annotated[str, msgspec.Meta(max_length=URL_LIMIT, pattern=r"^(https?|s3)://[^/?#@\s]+/([^?#\s]*/)?\Z")]
"""The beginning of the addresses of a run's files, up to a slash: no user, no password, no query."""


class FrozenPart(msgspec.Struct, frozen=True):
    """A file of parameters that are not trained, by its name beside those of the dataset."""

    name: PartName
    blob: Blob


class ExchangeName(msgspec.Struct, frozen=True, omit_defaults=True):
    """The name of an exchange: its kind in a catalog, with options, and the frozen parts; the full model by default."""

    kind: Name = "full"
    options: Options = {}
    frozen: Annotated[tuple[FrozenPart, ...], msgspec.Meta(max_length=1000)] = ()


FULL_MODEL = ExchangeName()
"""The name of an exchange of every parameter: manifests from before there were kinds mean it."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`model` is a resolved config; `dataset` is the blob of the dataset's meta.json, which names the shards.

    `trained` is the number of parameters that the `exchange` trains. A worker from before there were kinds of exchange
    compares it with the model's parameters: it refuses a run that trains fewer. `urls` are prefixes under which copies
    of the files of dataset and base may be, by their names.
    """

    model: dict[str, Any]
    dataset: Blob
    trained: Count = msgspec.field(name="num_parameters")
    exchange: ExchangeName = FULL_MODEL
    urls: Annotated[tuple[Url, ...], msgspec.Meta(max_length=8)] = ()

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        """Decode a manifest; WireError when `content` is none."""
        try:
            return msgspec.json.decode(content, type=cls)
        except MALFORMED as error:
            raise WireError(f"the controller's manifest cannot be read: {error}") from None


def web_address(url: str) -> str:
    """Return the address at which a prefix is read: that of a public bucket of Amazon S3, or itself.

    >>> web_address("s3://bucket/run/"), web_address("https://example.org/run/")
    ('https://bucket.s3.amazonaws.com/run/', 'https://example.org/run/')
    """
    scheme, _, rest = url.partition("://")
    if scheme != "s3":
        return url
    bucket, _, path = rest.partition("/")
    return f"https://{bucket}.s3.amazonaws.com/{path}"
