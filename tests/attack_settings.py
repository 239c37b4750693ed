"""Settings of attacks on privacy: a tiny GPT-2, and rows whose tokens follow Zipf's law."""

from __future__ import annotations

from typing import Any

import numpy as np

from barnraise.models.config import describe
from barnraise.privacy.attacks.runner import make_protection
from barnraise.privacy.attacks.setting import AttackSetting, LocalTraining

VOCABULARY, LENGTH = 500, 12


def setting_of(protection: str = "none", training: LocalTraining | None = None, **config: Any) -> AttackSetting:
    """Make a setting with a protection, a local training, and changes of the model's config."""
    sizes = {"hidden_size": 48, "num_layers": 2, "num_heads": 2} | config
    rng = np.random.default_rng(5)
    shares = 1.0 / np.arange(1, VOCABULARY + 1)
    rows = rng.choice(VOCABULARY, (400, LENGTH), p=shares / shares.sum())
    resolved = describe({"architecture": "gpt2", "config": sizes}, VOCABULARY, LENGTH)
    return AttackSetting(resolved, rows, training or LocalTraining(), make_protection(protection))
