"""The name under which a person can run this program again: what advice in messages begins with."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NAME = "barnraise"


def program() -> str:
    """`barnraise` where a shell finds it, else the path of the script that runs now.

    A program started in another way, as by `import barnraise`, is told of `barnraise`.
    """
    script = Path(sys.argv[0])
    if script.name != NAME or not script.is_file():
        return NAME
    found = shutil.which(NAME)
    if found is not None and os.path.samefile(found, script):
        return NAME
    path, here = script.absolute(), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
