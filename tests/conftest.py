"""Settings of every test: one thread each, no network, no display, and property tests that answer alike everywhere.

`HYPOTHESIS_PROFILE=explore` searches further, with new examples every time.
"""

from __future__ import annotations

import os
import signal

# Before torch and transformers are imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# A shell has what it runs in the background ignore Ctrl-C, and that would be inherited, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from hypothesis import HealthCheck, settings

# Deadlines and "too slow" verdicts measure the machine, not the code.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, **_COMMON)
settings.register_profile("explore", max_examples=2000, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
