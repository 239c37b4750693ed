"""Measure how long a user waits before the first output: import, help, and the refusal of a bad run file.

    python benchmarks/startup.py

Medians of whole processes, beside a bare interpreter. Targets: import < 0.3 s, --help < 0.5 s, check < 0.6 s.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPEATS = 9


def seconds(arguments: tuple[str, ...], repeats: int) -> float:
    """Median wall seconds of a process."""
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    repeats = 1 if parser.parse_args().quick else REPEATS
    with tempfile.TemporaryDirectory() as folder:
        bad = Path(folder) / "bad.yaml"
        bad.write_text("model: {architecture: gpt_neo}\ndata: {kind: text, files: [x]}\ntraining: {tokenz: 5}\n")
        cases = {
            "bare interpreter": ("-c", "pass"),
            "import barnraise": ("-c", "import barnraise"),
            "barnraise --help": ("-m", "barnraise.cli.main", "--help"),
            "barnraise check of a bad file": ("-m", "barnraise.cli.main", "check", str(bad)),
            "import torch (for comparison)": ("-c", "import torch"),
        }
        for name, arguments in cases.items():
            print(f"{name:<32} {seconds(arguments, repeats):6.3f} s", flush=True)


if __name__ == "__main__":
    main()
