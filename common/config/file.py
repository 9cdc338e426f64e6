"""The configuration file, read within bounds: whatever stands at a path, an answer comes soon.

Standard library only, so that the parent reads a file as its children do.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from common.errors import ConfigurationError
from common.registry import nearest

DATADOG_TABLE = "datadog"
PROVISION_TABLE = "provision"
MAX_BYTES = 2**18
MAX_DEPTH = 8  # tables and lists inside each other; ours need three

# The time tomllib takes grows with the square of a key's parts: 8 s for 10,000 of them. A string may look
# like a key, so that twice the depth is let pass here and judged when it is parsed.
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"{_PART}(?:\.[ \t]*+{_PART}){{{2 * MAX_DEPTH}}}")
# The name of a setting, and not a credential pasted in its place.
NAME = re.compile(r"[A-Za-z]{1,12}(?:[_-][A-Za-z]{1,12}){0,4}")


@dataclass(frozen=True)
class ConfigurationFile:
    """The parsed configuration file, or an empty one."""

    path: str | None = None
    tables: Mapping[str, Any] = field(default_factory=dict)  # Any: TOML values

    @classmethod
    def read(cls, path: str | None) -> ConfigurationFile:
        """Parse a TOML file; every failure names the file and what to do."""
        return cls() if path is None else cls(path, read_tables(path))

    def refuse_unknown_tables(self, known: Iterable[str]) -> None:
        """Every table must be a collector's or one of two more; other keys are checked with the core."""
        names = [*known, DATADOG_TABLE, PROVISION_TABLE]
        wrong = [
            unknown("table", name, names)
            for name, value in self.tables.items()
            if isinstance(value, dict) and name not in names
        ]
        if wrong:
            raise ConfigurationError(f"{self.path}: {', '.join(wrong)}")


def read_tables(path: str) -> dict[str, Any]:  # Any: TOML values
    """What a TOML file holds."""
    try:
        text = _content(path).decode()
        if _LONG_KEY.search(text):
            raise ConfigurationError(f"the configuration file {path}: {_TOO_DEEP}")
        tables = tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(f"cannot read the configuration file {path}: {error.strerror}") from error
    except RecursionError:
        raise ConfigurationError(f"the configuration file {path}: {_TOO_DEEP}") from None
    except ValueError as error:  # from None: an error about its encoding holds the whole of it
        raise ConfigurationError(f"the configuration file {path} is not TOML: {_reason(error)}") from None
    if is_deeper(tables, MAX_DEPTH):
        raise ConfigurationError(f"the configuration file {path}: {_TOO_DEEP}")
    return tables


_TOO_DEEP = f"more than {MAX_DEPTH} tables and lists inside each other"


def _content(path: str) -> bytes:
    """The bytes of a regular file; opening a pipe could wait for ever, and a device has no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigurationError(f"the configuration file {path} is not a regular file")
        content = b""
        while (part := os.read(descriptor, MAX_BYTES + 1)) and len(content) <= MAX_BYTES:
            content += part
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"the configuration file {path} is larger than {MAX_BYTES:,} bytes")
    return content


def _reason(error: ValueError) -> str:
    """What is wrong, and where, without what the file holds: keys are quoted as a tuple."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    what, at, where = str(error).rpartition(" (at ")
    return re.sub(r"\(.*\)", "a key", what, flags=re.DOTALL) + at + where


def is_deeper(value: Mapping[str, object], limit: int) -> bool:
    """Whether mappings and lists are inside each other more than so many times; asked without recursion."""
    layer: list[Any] = [value]  # Any: mappings and lists
    containers = (dict, list)  # not `dict | list`, which would be made anew for each
    for _ in range(limit + 1):
        inside = chain.from_iterable(one if isinstance(one, list) else one.values() for one in layer)
        layer = [one for one in inside if isinstance(one, containers)]
    return bool(layer)


def unknown(kind: str, name: str, known: list[str], where: str = "") -> str:
    """What to say of a name that nobody has: not the name itself where it may be a credential."""
    hint = nearest(name, known)
    if not NAME.fullmatch(name):
        return f"an unknown {kind}{where} that is not shown, because it may be a credential{hint}"
    return f"unknown {kind} {f'[{name}]' if kind == 'table' else repr(name)}{where}{hint}"
