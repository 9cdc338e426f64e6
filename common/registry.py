"""Finds collectors: every folder of `collectors/` that holds a `collector.py`.

What must be known of a collector before it runs is read from its source without importing it, so that one
broken dependency cannot take down the rest.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from common.errors import ConfigurationError

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "FLEETGAUGE_"
_UNREADABLE = (OSError, SyntaxError, ValueError, TypeError, RecursionError)


def names(root: Path = ROOT) -> list[str]:
    """The registered collectors, sorted."""
    return sorted(path.parent.name for path in root.glob("collectors/*/collector.py"))


class Declaration(NamedTuple):
    """What a collector's folder says of it: a summary, and the variables that its process needs.

    Its secrets are those of its settings; ENVIRONMENT in its `__init__.py` names variables of other programs.
    Variables that belong to it by their name (`owner`) need no mention.
    """

    summary: str
    secrets: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


def declaration(name: str, root: Path = ROOT) -> Declaration:
    """The declaration of one collector, read without importing it."""
    folder = root / "collectors" / name
    secrets = tuple(_secrets(folder))
    environment: tuple[str, ...] = ()
    try:
        tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
        for node in tree.body:
            match node:
                case ast.Assign([ast.Name("ENVIRONMENT")], value):
                    environment = tuple(ast.literal_eval(value))
        return Declaration((ast.get_docstring(tree) or "").partition("\n")[0], secrets, environment)
    except _UNREADABLE as error:  # its own run says so; the list goes on
        return Declaration(f"(its __init__.py cannot be read: {type(error).__name__})", secrets)


def per_node(name: str, root: Path = ROOT) -> bool:
    """Whether a collector measures the node it runs on, as its source declares."""
    with suppress(*_UNREADABLE):
        tree = ast.parse((root / "collectors" / name / "collector.py").read_text(encoding="utf-8"))
        arguments = (node for node in ast.walk(tree) if isinstance(node, ast.keyword))
        return any(one.arg == "per_node" and ast.unparse(one.value) == "True" for one in arguments)
    return False


_SECRET = re.compile(r"\b(NonBlank)?Secret\b")


def _secrets(folder: Path) -> Iterator[str]:
    """The variables of the fields that a settings class of the folder declares as a secret."""
    for path in sorted(folder.glob("*.py")):
        with suppress(*_UNREADABLE):
            source = path.read_text(encoding="utf-8")
            for model in ast.walk(ast.parse(source)) if "Secret" in source else ():
                if isinstance(model, ast.ClassDef):
                    yield from _secret_fields(model)


def _secret_fields(model: ast.ClassDef) -> Iterator[str]:
    """As pydantic names them: by their alias, or else by the prefix of `named(...)` and their own name."""
    given = re.search(r"^    model_config = named\('(\w+)'\)$", ast.unparse(model), re.MULTILINE)
    for field in model.body:
        if isinstance(field, ast.AnnAssign) and _SECRET.search(ast.unparse(field.annotation)):
            alias = re.search(r"\bvalidation_alias='(\w+)'", ast.unparse(field))
            prefix = given[1] if given else PREFIX
            yield alias[1] if alias else prefix + ast.unparse(field.target).upper()


def owner(variable: str, known: list[str]) -> str | None:
    """Which collector a variable belongs to: the one with the longest name that it begins with.

    With `host` and `host_queue`, FLEETGAUGE_HOST_QUEUE_PATH and HOST_QUEUE_TOKEN belong to the latter.
    """
    rest = variable.removeprefix(PREFIX)
    return max((name for name in known if rest.startswith(f"{name.upper()}_")), key=len, default=None)


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
