"""Import of the training libraries at once: seconds of work that also block heartbeats."""

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
"""Environment in which the libraries of models fetch nothing: a worker connects to its controller alone."""


def import_all() -> None:
    """Import the training libraries; instant when that is done.

    Warnings of transformers, which are for authors of models, are suppressed.
    """
    os.environ.update(OFFLINE)
    for name in _MODULES:
        importlib.import_module(name)
    importlib.import_module("transformers.utils.logging").set_verbosity_error()
