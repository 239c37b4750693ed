"""What travels between controller and worker: messages, their frames, and blobs cut into them."""

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
