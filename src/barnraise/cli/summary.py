from __future__ import annotations

from barnraise.cli import console


def summarise(run, plan, *, json):
    console.say(str(run.path))
