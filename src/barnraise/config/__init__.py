"""The run file: read, checked against its schema, and written."""

from __future__ import annotations

from .document import Document, parse_value, read
from .load import build, dump, load
from .schema import RunFile

__all__ = ["Document", "RunFile", "build", "dump", "load", "parse_value", "read"]
