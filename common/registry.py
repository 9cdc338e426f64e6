"""Finds collectors: every folder of `collectors/` that holds a `collector.py`.

Listing reads folder names and docstrings without importing anything, so that one collector's broken
dependency cannot take down the rest.
"""

from __future__ import annotations

import ast
import difflib
from pathlib import Path
from typing import NamedTuple

from common.errors import ConfigurationError

ROOT = Path(__file__).resolve().parent.parent


def names(root: Path = ROOT) -> list[str]:
    """The registered collectors, sorted."""
    return sorted(path.parent.name for path in root.glob("collectors/*/collector.py"))


class Declaration(NamedTuple):
    """What `collectors/<name>/__init__.py` says: a summary, and the variables its process needs.

    Variables that begin with the collector's own name, or with FLEETGAUGE_, need no mention.
    """

    summary: str
    secrets: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


def declaration(name: str, root: Path = ROOT) -> Declaration:
    """The declaration of one collector, read without importing it."""
    try:
        return _declared((root / "collectors" / name / "__init__.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:  # its own run says so; the list goes on
        return Declaration(f"(its __init__.py cannot be read: {type(error).__name__})")


def _declared(source: str) -> Declaration:
    tree = ast.parse(source)
    summary = (ast.get_docstring(tree) or "").partition("\n")[0]
    found: dict[str, tuple[str, ...]] = {"SECRETS": (), "ENVIRONMENT": ()}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and target.id in found:
                    found[target.id] = tuple(ast.literal_eval(node.value))
    return Declaration(summary, found["SECRETS"], found["ENVIRONMENT"])


def expand(asked: list[str], known: list[str]) -> list[str]:
    """Turn the names on the command line into collectors, each once, `all` meaning every one."""
    if asked == ["all"]:
        return known
    if "all" in asked:
        raise ConfigurationError("`all` stands alone: it already names every collector")
    for name in asked:
        if name not in known:
            hint = nearest(name, [*known, "all"])
            raise ConfigurationError(f"there is no collector {name!r}{hint}; there are: {', '.join(known)}")
    return list(dict.fromkeys(asked))


def nearest(word: str, known: list[str]) -> str:
    """A hint such as ` (did you mean 'wandb'?)`, or nothing when no known word is close."""
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
