"""What travels between controller and worker: messages, their frames, and blobs cut into them."""

from .blobs import Download, Reassembler, Upload, parts
from .frames import Buffer, decode_from_controller, decode_from_worker, encode

__all__ = [
    "Buffer",
    "Download",
    "Reassembler",
    "Upload",
    "decode_from_controller",
    "decode_from_worker",
    "encode",
    "parts",
]
