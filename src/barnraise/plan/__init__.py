"""Validates and resolves a run file before anything starts, without torch.

>>> from barnraise.config import load
>>> data = {"kind": "text", "files": ["README.md"]}
>>> plan = resolve(load({"model": {"architecture": "gpt2"}, "data": data, "exchange": {"compression": "topk"}}))
>>> plan.compression.name, plan.compression.options["ratio"]
('topk', 0.01)
"""

from __future__ import annotations

from .choices import Aggregation, Choice
from .purpose import Purpose
from .resolve import Plan, payload_bytes, resolve

__all__ = ["Aggregation", "Choice", "Plan", "Purpose", "payload_bytes", "resolve"]
