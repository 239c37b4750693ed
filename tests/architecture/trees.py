"""Syntax trees of files and their nodes: each file is parsed and walked once, however many rules read it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path


@cache
def parse(path: Path) -> ast.Module:
    """Return the file's tree, which no caller changes."""
    return ast.parse(path.read_text(), str(path))


def walk(tree: ast.AST) -> Sequence[ast.AST]:
    """Return the nodes of `tree` as `ast.walk` gives them; those of a module are kept with it."""
    if not isinstance(tree, ast.Module):
        return list(ast.walk(tree))
    nodes: list[ast.AST] | None = getattr(tree, "nodes", None)
    if nodes is None:
        nodes = list(ast.walk(tree))
        vars(tree)["nodes"] = nodes
    return nodes
