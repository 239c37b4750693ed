"""The transports by URI scheme; imports none of them."""

from __future__ import annotations

from barnraise.core.registry import Catalog, Entry, Option

CATALOG = Catalog(
    "transport",
    "barnraise.transport",
    [
        Entry(
            "zmq",
            "barnraise.transport.zmq.transport:ZmqTransport",
            "ZMQ over TCP, encrypted and authenticated with CURVE",
            options=(Option("io_threads", int, 1, "Threads that encrypt and move bytes.", minimum=1, maximum=64),),
        ),
        Entry(
            "xmlrpc",
            "barnraise.transport.http.transport:XmlRpcTransport",
            "XML-RPC over HTTP, sealed with the same keys, for networks that let nothing else out",
        ),
        Entry("inproc", "barnraise.transport.inproc:InprocTransport", "within one event loop, for tests"),
    ],
)
