"""What a module of the user's own contains, read from its source.

For modules that are used as a whole, or imported inside functions, which need not have been imported yet.
"""

from __future__ import annotations

import ast
import importlib.util
from typing import TYPE_CHECKING

from headrace.plan.origins import file_of, origin_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def source_content(module: str) -> list[tuple[str, str]]:
    """Return (name, content) of a module and of all the user's modules that it imports, in order of name.

    Comments, docstrings and layout are left out. A module without Python source counts by its name.
    """
    contents: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in contents:
            continue
        file = file_of(name)
        if file is None or not file.endswith(".py"):
            contents[name] = ""
            continue
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
        package = name if file.endswith("__init__.py") else name.rpartition(".")[0]
        waiting += [found for found in _imports(tree, package) if origin_of(found) == "user" and file_of(found)]
        contents[name] = ast.dump(_without_docstrings(tree))
    return sorted(contents.items())


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:
                continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)  # names may be modules themselves


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
    return tree
