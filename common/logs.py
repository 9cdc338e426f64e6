"""Logging: lines for a person on a terminal, JSON lines otherwise, and never a secret in either.

Only our own loggers go below WARNING: botocore's debug log holds the answers of Secrets Manager.
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TextIO

OURS = ("fleetgauge", "common", "collectors")
_MIN_SECRET = 4  # replacing anything shorter would garble every line and protect nothing

_secrets: set[str] = set()


def remember_secret(value: str) -> None:
    """From now on, replace this value wherever it would be logged or reported."""
    value = value.strip()
    if len(value) >= _MIN_SECRET:
        _secrets.add(value)


def redact(text: str) -> str:
    """The text with every remembered secret replaced, longest first."""
    for secret in sorted(_secrets, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, "[redacted]")
    return text


class _Human(logging.Formatter):
    def __init__(self, name: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)-7s {name}: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _Json(logging.Formatter):
    """One JSON object per line, with the names Datadog's log pipeline knows."""

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
    """Send log records to `stream` (standard error by default); `labels` become `dd.*` in JSON lines."""
    stream = stream or sys.stderr
    handler = _Handler(stream)
    tagged = {f"dd.{key}": value for key, value in (labels or {}).items() if value}
    handler.setFormatter(_Human(name) if stream.isatty() else _Json(name, tagged))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for logger in OURS:
        logging.getLogger(logger).setLevel(logging.DEBUG if verbose else logging.INFO)
