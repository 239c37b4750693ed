"""The command that messages tell a user to run."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NAME = "barnraise"


def program() -> str:
    """Return `barnraise` if a shell finds it, else the path of the running script.

    In a program that was started in another way, such as by `import barnraise`, it is `barnraise`.
    """
    script = Path(sys.argv[0])
    if script.name != NAME or not script.is_file():
        return NAME
    found = shutil.which(NAME)
    if found is not None and os.path.samefile(found, script):
        return NAME
    path, here = script.absolute(), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
