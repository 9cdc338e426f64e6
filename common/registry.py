"""Find collectors: every folder of `collectors/` that contains a `collector.py`.

What must be known of a collector before it runs is in the `__init__.py` of its folder, which imports nothing.
`common/collector.py` imports the collector itself.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from common.errors import ConfigurationError

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "FLEETGAUGE_"
PROVISION = "provision"  # the table of scripts/provision.py, whose variables are no collector's


def names(root: Path = ROOT) -> list[str]:
    """Return the names of the registered collectors, sorted. Nothing is imported."""
    return sorted(path.parent.name for path in root.glob("collectors/*/collector.py"))


class Declaration(NamedTuple):
    """What the package of a collector declares, in its `__init__.py`.

    Its docstring is the summary. SECRETS names the variables of its secrets, ENVIRONMENT variables of other
    programs that its process needs. With PER_NODE it measures the node it runs on. Variables that belong to
    it by their name (`owner`) need no mention.
    """

    summary: str
    secrets: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    per_node: bool = False


def declaration(name: str) -> Declaration:
    """Return the declaration of one collector; its package imports nothing else.

    One that cannot be imported has a summary with the error, and is not per node.
    """
    try:
        package = importlib.import_module(f"collectors.{name}")
    # A broken collector must not hide the others: the list is printed, and its own run reports the error.
    except Exception as error:
        return Declaration(f"(cannot be imported: {type(error).__name__})")
    return Declaration(
        (package.__doc__ or "").partition("\n")[0],
        getattr(package, "SECRETS", ()),
        getattr(package, "ENVIRONMENT", ()),
        getattr(package, "PER_NODE", False),
    )


def missing_library(error: ImportError) -> ConfigurationError:
    """Return the error for a library that this Python lacks, with the command that installs all of them."""
    return ConfigurationError(f"this Python ({sys.executable}): {error}: run {ROOT}/scripts/setup once")


def owner(variable: str, known: list[str]) -> str | None:
    """Return which collector a variable belongs to: that with the longest name it begins with, or None.

    With `host` and `host_queue`, FLEETGAUGE_HOST_QUEUE_PATH and HOST_QUEUE_TOKEN belong to the latter.
    `known` are the names of all collectors.
    """
    suffix = variable.removeprefix(PREFIX)
    return max((name for name in known if suffix.startswith(f"{name.upper()}_")), key=len, default=None)


def without_others(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that belong to other collectors than this one.

    Variables that belong to none of them stay.
    """
    known = [*names(), PROVISION]
    return {variable: value for variable, value in environ.items() if owner(variable, known) in (None, name)}


def expand(given: list[str], known: list[str]) -> list[str]:
    """Return the collectors that the command line names, each once; ConfigurationError for an unknown one."""
    if "all" in given:
        return known
    for name in given:
        if name not in known:
            hint = nearest(name, [*known, "all"])
            raise ConfigurationError(f"there is no collector {name!r}{hint}; there are: {', '.join(known)}")
    return list(dict.fromkeys(given))


def nearest(name: str, known: list[str]) -> str:
    """Return a hint such as ` (did you mean 'wandb'?)`; empty where no known name is close."""
    # Without what variables have in common: any two of them would be close.
    bare = {each.removeprefix(PREFIX): each for each in known}
    close = difflib.get_close_matches(name.removeprefix(PREFIX), bare, n=1, cutoff=0.65)
    return f" (did you mean {bare[close[0]]!r}?)" if close else ""
