"""Logging: lines for a person on a terminal, JSON lines otherwise, and without secrets in either.

Only our own loggers are below WARNING: botocore's debug log contains the responses of Secrets Manager.
`common/config/settings.py` remembers each secret as it is read.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus

from common.text import visible

OURS = ("fleetgauge", "common", "collectors")
# Replacing anything shorter would garble every line and protect nothing.
_MIN_SECRET = 4
_REDACTED = "[redacted]"
_CREDENTIALS = ("_API_KEY", "_APP_KEY", "_HASH_KEY", "_ACCESS_KEY", "_TOKEN")  # ends of variables
_MIN_CREDENTIAL = 16  # of a variable that may be another program's switch, such as ..._IMPLICIT_TOKEN=true

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
    """Return a text with every remembered secret replaced, as it is and as JSON, repr, URL or base64."""
    return _pattern(frozenset(remembered)).sub(_REDACTED, text) if remembered else text


@lru_cache(maxsize=4)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern of all forms of all secrets; longer ones first, which may contain a shorter one."""
    forms = {form for secret in secrets for form in _forms(secret)}
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it is, and as programs write it."""
    raw = secret.encode(errors="surrogatepass")
    texts = {secret}
    for _ in range(2):  # JSON in JSON, or in a repr
        texts |= {json.dumps(text, ensure_ascii=plain)[1:-1] for text in texts for plain in (True, False)}
        # A repr escapes an apostrophe only where there is a quotation mark too.
        texts |= {repr(text + beside)[1 : -1 - len(beside)] for text in texts for beside in ("", '"')}
    yield from texts
    yield repr(raw)[2:-1]
    for quoted in (quote(raw), quote(raw, safe=""), quote_plus(raw)):
        yield from (quoted, re.sub("%..", lambda found: found[0].lower(), quoted))
    # Base64 encodes three bytes at a time, so that there are three forms, by what is before the secret. The
    # characters at their edges depend on what is beside it.
    for before in range(3):
        inner = slice(-(-4 * before // 3), 4 * (before + len(raw)) // 3)
        yield from (write(bytes(before) + raw).decode()[inner] for write in (b64encode, urlsafe_b64encode))


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


def guard_streams(environ: Mapping[str, str]) -> None:
    """Redact all that this process prints from now on; warnings of Python become log records.

    Credentials of the environment are redacted before any setting is read: one may be pasted into an
    argument. What C code writes to a descriptor is not redacted.
    """
    for name, value in environ.items():
        if name.endswith(_CREDENTIALS) and len(value) >= _MIN_CREDENTIAL:
            remember_secret(value)
    sys.stdout = cast("TextIO", _Redacting(sys.stdout))
    sys.stderr = cast("TextIO", _Redacting(sys.stderr))
    logging.captureWarnings(capture=True)


class _Formatter(logging.Formatter):
    """One line per record, with the name of the collector.

    For a person it is safe to print. Otherwise it is a JSON object with the names that Datadog's log pipeline
    knows, and with `labels`.
    """

    def __init__(self, name: str, labels: Mapping[str, str], *, for_person: bool) -> None:
        super().__init__()
        self._name, self._labels, self._for_person = name, labels, for_person

    def format(self, record: logging.LogRecord) -> str:
        message = redact(record.getMessage())
        stack = redact(self.formatException(record.exc_info)) if record.exc_info else ""
        if self._for_person:
            head = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname:<7} {self._name}"
            return "\n".join(map(visible, [f"{head}: {message}", *stack.splitlines()]))
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "status": record.levelname.lower(),
            "logger": record.name,
            "collector": self._name,
            "message": message,
            **self._labels,
        }
        return json.dumps(line | ({"error.stack": stack} if stack else {}), ensure_ascii=False)


def _is_wanted(record: logging.LogRecord) -> bool:
    """Return whether a record is ours, or a warning, even where a library lowered its own level."""
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] in OURS


def set_up(
    name: str, *, verbose: bool, labels: Mapping[str, str] | None = None, stream: TextIO | None = None
) -> None:
    """Send log records to `stream` (standard error by default); `labels` become `dd.*` in JSON lines.

    `name` is the collector, or the program. A later call replaces the handlers of an earlier one.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.addFilter(_is_wanted)
    tagged = {f"dd.{key}": value for key, value in (labels or {}).items() if value}
    handler.setFormatter(_Formatter(name, tagged, for_person=stream.isatty()))
    root = logging.getLogger()
    # A process that runs several collectors calls this for each: a second handler would repeat every line.
    root.handlers[:] = [handler]
    # Libraries inherit the level of the root, ours are set one by one.
    root.setLevel(logging.WARNING)
    for logger in OURS:
        logging.getLogger(logger).setLevel(logging.DEBUG if verbose else logging.INFO)
