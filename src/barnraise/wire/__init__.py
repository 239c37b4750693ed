"""What travels between controller and worker: messages, their frames, and blobs cut into them."""

from .blobs import Download, Upload, Uploads, parts
from .frames import Buffer, decode_from_controller, decode_from_worker, encode

__all__ = [
    "Buffer",
    "Download",
    "Upload",
    "Uploads",
    "decode_from_controller",
    "decode_from_worker",
    "encode",
    "parts",
]
