"""Messages between controller and worker, their frames, and the blobs that are cut into them."""

from .blobs import IncomingPayload, IncomingPayloads, chunks
from .downloads import Download, SnapshotDownload
from .frames import Buffer, decode_from_controller, decode_from_worker, encode

__all__ = [
    "Buffer",
    "Download",
    "IncomingPayload",
    "IncomingPayloads",
    "SnapshotDownload",
    "chunks",
    "decode_from_controller",
    "decode_from_worker",
    "encode",
]
