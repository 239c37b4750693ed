"""Transports of messages by URI scheme, the keys that both ends prove, and invites.

    network = transport.create("zmq")
    listener, connection = network.listener(), network.connection()

Names are loaded when first used: importing this package does not import ZMQ.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .catalog import CATALOG

if TYPE_CHECKING:
    from .base import Connection, Delivery, Listener, Peer, Transport
    from .identity import Keys
    from .invite import Invite, TokenBook, proof

__all__ = [
    "CATALOG",
    "Connection",
    "Delivery",
    "Invite",
    "Keys",
    "Listener",
    "Peer",
    "TokenBook",
    "Transport",
    "create",
    "proof",
]

_HOMES = {
    "Connection": "base",
    "Invite": "invite",
    "Keys": "identity",
    "Listener": "base",
    "Peer": "base",
    "Delivery": "base",
    "TokenBook": "invite",
    "Transport": "base",
    "proof": "invite",
}


def create(scheme: str, **options: Any) -> Transport:
    """Create the transport for URIs of `scheme`; UnknownNameError or OptionError name the invalid argument."""
    transport: Transport = CATALOG.create(scheme, **options)
    return transport


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
