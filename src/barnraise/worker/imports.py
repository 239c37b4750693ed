"""What training needs, imported at once: seconds of work that also block heartbeats."""

from __future__ import annotations

import importlib

_MODULES = (
    "torch._dynamo",
    "transformers.modeling_utils",
    "transformers.generation.utils",
    "transformers.modeling_layers",
    "transformers.models.auto.modeling_auto",
    "barnraise.models.build",
    "barnraise.transport.zmq.connection",
    "barnraise.training.local",
    "barnraise.worker.executor",
    "barnraise.worker.moments",
)


def import_all() -> None:
    """Import them; instant when they are. What transformers warns of concerns those who write models: it is silent."""
    for name in _MODULES:
        importlib.import_module(name)
    importlib.import_module("transformers.utils.logging").set_verbosity_error()
