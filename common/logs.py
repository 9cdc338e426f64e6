"""Logging: lines for a person on a terminal, JSON lines otherwise, and without secrets in either.

Only our own loggers are below WARNING: botocore's debug log contains the responses of Secrets Manager.
`common/config/settings.py` remembers each secret as it is read.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from types import TracebackType
from typing import Any, TextIO, cast
from urllib.parse import quote

from common.text import visible

OURS = ("fleetgauge", "common", "collectors")
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
# Replacing anything shorter would garble every line and protect nothing.
_MIN_SECRET = 4
_REDACTED = "[redacted]"
# Erases what a line of a terminal shows: a progress bar, which is drawn again.
ERASE = "\r\x1b[K"
_BASE64 = "(?:(?i:%2[bf])|[A-Za-z0-9+/_=-])"
# The two characters that differ in the URL-safe alphabet, and are percent-encoded in a URL.
_IN_BASE64 = {"+": "(?:[+-]|(?i:%2b))", "/": "(?:[/_]|(?i:%2f))"}

# Of the process: a library's log line or a traceback is redacted without knowing of the settings.
remembered: set[str] = set()


def remember_secret(value: str) -> None:
    """Redact this value wherever it would be logged or reported from now on.

    Values of fewer than four characters are ignored.
    """
    value = value.strip()
    if len(value) >= _MIN_SECRET:
        remembered.add(value)


def redact(text: str) -> str:
    """Return a text with every remembered secret replaced, in any of its encodings.

    All matches are replaced at once: replacing a secret first could hide part of another that overlaps it.
    Encodings are those of repr, JSON, URLs and base64.
    """
    if not remembered:
        return text
    found, each = _patterns(frozenset(remembered))
    # Most texts have no secret: one search is enough for them.
    if not found.search(text):
        return text
    spans = sorted(match.span(1) for pattern in each for match in pattern.finditer(text))
    parts, end = [], 0
    for start, stop in spans:
        if start >= end:
            parts += [text[end:start], _REDACTED]
        end = max(end, stop)
    return "".join([*parts, text[end:]])


@lru_cache(maxsize=4)
def _patterns(secrets: frozenset[str]) -> tuple[re.Pattern[str], list[re.Pattern[str]]]:
    """Return a fast pattern that finds any secret, and one for each form that finds overlaps."""
    plain = [_escaped(secret) for secret in secrets]
    encoded = [core for secret in secrets for core in _encoded(secret)]
    # The characters at the edges of base64 share their bits with the bytes beside the secret.
    forms = [*plain, *(f"{_BASE64}?{core}{_BASE64}?" for core in encoded)]
    return re.compile("|".join([*plain, *encoded])), [re.compile(f"(?=({form}))") for form in forms]


def _escaped(secret: str) -> str:
    """Return a pattern of a secret as it is, in a repr, in JSON and in a URL."""
    return "".join(map(_written, re.findall(r"\\+|[^\\]", secret, re.DOTALL)))


def _encoded(secret: str) -> Iterator[str]:
    """Yield patterns of what the base64 of a text with the secret in it contains.

    Base64 encodes three bytes at a time, so there are three, by the offset of the secret.
    """
    raw = secret.encode(errors="surrogatepass")
    for before in range(3):
        first, last = -(-8 * before // 6), 8 * (before + len(raw)) // 6
        core = b64encode(bytes(before) + raw + bytes(2)).decode()[first:last]
        yield "".join(_IN_BASE64.get(character, character) for character in core)


def _written(run: str) -> str:
    """Return a pattern of one character, or of a run of backslashes, as it is and as it is escaped.

    Each escaping doubles a backslash and puts one before a quote; a run is matched at once, so that no text
    makes matching slow.
    """
    if run[0] == "\\":
        return rf"(?:\\{{{len(run)},}}+|(?i:%5c){{{len(run)}}})"
    raw = run.encode(errors="surrogatepass")
    escaped = {json.dumps(run)[1:-1], ascii(run)[1:-1], repr(run)[1:-1], repr(raw)[2:-1], quote(raw, safe="")}
    escaped |= {"+"} if run == " " else set()
    others = "|".join(re.escape(form).replace(r"\\", r"\\*+") for form in sorted(escaped - {run}))
    alone = rf"\\*+{run}" if run in "'\"" else re.escape(run)
    # Longer forms first: `%25` begins with the `%` that it encodes.
    return f"(?:(?i:{others})|{alone})" if others else alone


class _Redacting:
    """A stream that redacts all that is written to it: tracebacks, warnings, the output of libraries.

    A secret that is split over two calls of `write` is not recognised.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:  # Any: whatever else a stream has
        return getattr(self._stream, name)


def guard_streams() -> None:
    """Redact all that this process prints from now on. What C code writes to a descriptor is not redacted."""
    sys.stdout = cast("TextIO", _Redacting(sys.stdout))
    sys.stderr = cast("TextIO", _Redacting(sys.stderr))


def can_erase(stream: TextIO) -> bool:
    """Return whether a line can be erased: on a terminal, unless it is a dumb one."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class _Human(logging.Formatter):
    """One line per record for a person, with the name of the collector; unprintable characters are escaped.

    `before` erases the line of a terminal, where a progress bar may be drawn.
    """

    def __init__(self, name: str, before: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)-7s {name}: %(message)s", "%H:%M:%S")
        self._before = before

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's spelling
        return visible(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802
        return "\n".join(map(visible, super().formatException(ei).split("\n")))

    def format(self, record: logging.LogRecord) -> str:
        return self._before + redact(super().format(record))


class _Json(logging.Formatter):
    """One JSON object per line, with the names Datadog's log pipeline knows.

    `labels` are added to each line.
    """

    def __init__(self, name: str, labels: dict[str, str]) -> None:
        super().__init__()
        self._name = name
        self._labels = labels

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "status": record.levelname.lower(),
            "logger": record.name,
            "collector": self._name,
            "message": redact(record.getMessage()),
            **self._labels,
        }
        if record.exc_info:
            line["error.stack"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes our records, and others' only from WARNING up, even where a library lowered its own level."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or record.name.partition(".")[0] in OURS

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's spelling
        # The stock method prints the arguments as they are, and with them a secret.
        with suppress(OSError, ValueError):
            self.stream.write(f"a log line of {record.name}, line {record.lineno}, could not be written\n")


def set_up(
    name: str, *, verbose: bool, labels: dict[str, str] | None = None, stream: TextIO | None = None
) -> None:
    """Send log records to `stream` (standard error by default); `labels` become `dd.*` in JSON lines.

    `name` is the collector, or the program. A later call replaces the handlers of an earlier one.
    """
    stream = stream or sys.stderr
    handler = _Handler(stream)
    tagged = {f"dd.{key}": value for key, value in (labels or {}).items() if value}
    before = ERASE if can_erase(stream) else ""
    handler.setFormatter(_Human(name, before) if stream.isatty() else _Json(name, tagged))
    root = logging.getLogger()
    # A process that runs several collectors calls this for each: a second handler would repeat every line.
    root.handlers[:] = [handler]
    # Libraries inherit the level of the root, ours are set one by one.
    root.setLevel(logging.WARNING)
    for logger in OURS:
        logging.getLogger(logger).setLevel(logging.DEBUG if verbose else logging.INFO)
