"""What training needs, imported at once: seconds of work that also block heartbeats."""

from __future__ import annotations

import importlib
import os

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


OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "USE_HUB_KERNELS": "NO", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""Environment in which the libraries of models fetch nothing: a worker speaks to its controller alone."""


def import_all() -> None:
    """Import them; instant when they are. What transformers warns of concerns those who write models: it is silent."""
    os.environ.update(OFFLINE)
    for name in _MODULES:
        importlib.import_module(name)
    importlib.import_module("transformers.utils.logging").set_verbosity_error()
