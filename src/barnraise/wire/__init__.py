"""What travels between controller and worker: messages, their frames, and blobs cut into them."""

from .blobs import Upload, Uploads, chunks
from .downloads import Download, SnapshotDownload
from .frames import Buffer, decode_from_controller, decode_from_worker, encode

__all__ = [
    "Buffer",
    "Download",
    "SnapshotDownload",
    "Upload",
    "Uploads",
    "chunks",
    "decode_from_controller",
    "decode_from_worker",
    "encode",
]
