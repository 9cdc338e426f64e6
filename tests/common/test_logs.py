"""Log lines for a person and for a program, and never a secret in either."""

from __future__ import annotations

import io
import json
import logging
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common import logs

CANARY = "canary-secret-value"
LABELS = {"service": "fleetgauge", "env": "test", "version": "1.2.3"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _the_loggers_as_they_were() -> Iterator[None]:
    names = (None, *logs.OURS, "botocore", "urllib3.connectionpool")
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = list(logging.getLogger().handlers)
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger().handlers[:] = handlers


def set_up(stream: io.StringIO, verbose: bool = False) -> logging.Logger:
    logs.set_up("host", verbose=verbose, labels=LABELS, stream=stream)
    return logging.getLogger("common.datadog.intake")


def leak(log: logging.Logger) -> None:
    """Put a secret everywhere a record can hold one."""
    logs.remember_secret(f"{CANARY}\n")
    log.warning("in the message %s and", CANARY)
    log.warning("in %(mapping)s", {"mapping": {"deep": [CANARY]}})
    try:
        try:
            raise ValueError(f"cause {CANARY}")
        except ValueError as cause:
            raise KeyError(CANARY) from cause
    except KeyError:
        log.exception("in a traceback: %r", CANARY)
    log.error("with a stack", stack_info=True, extra={"hidden": CANARY})


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["human", "json"])
def test_a_secret_is_replaced_in_messages_arguments_and_tracebacks(stream: io.StringIO) -> None:
    leak(set_up(stream))
    text = stream.getvalue()
    assert CANARY not in text
    assert "in the message [redacted] and" in text
    assert "ValueError: cause [redacted]" in text
    if not stream.isatty():
        plain, _, failed, _ = map(json.loads, text.splitlines())
        assert "error.stack" not in plain
        assert failed["error.stack"].endswith("KeyError: '[redacted]'")


def test_a_json_line_has_the_names_datadog_knows() -> None:
    stream = io.StringIO()
    log = set_up(stream)
    record = log.makeRecord(log.name, logging.WARNING, "f", 1, "%s is late", ("naïve",), None)
    record.created = 1_800_000_000.25
    log.handle(record)
    assert "naïve" in stream.getvalue()
    assert json.loads(stream.getvalue()) == {
        "timestamp": "2027-01-15T08:00:00.250+00:00",
        "status": "warning",
        "logger": "common.datadog.intake",
        "collector": "host",
        "message": "naïve is late",
        "dd.service": "fleetgauge",
        "dd.env": "test",
        "dd.version": "1.2.3",
    }


@pytest.mark.parametrize(
    ("name", "own_level", "verbose", "seen"),
    [
        *((name, None, False, "info warning") for name in ("fleetgauge", "common.x", "collectors.host")),
        *((name, None, True, "debug info warning") for name in ("fleetgauge", "common.x")),
        *((name, logging.DEBUG, True, "warning") for name in ("botocore", "urllib3.connectionpool")),
        *((name, logging.NOTSET, True, "warning") for name in ("botocore", "commonplace")),
    ],
)
def test_verbose_lines_are_ours_and_others_are_warnings_only(
    name: str, own_level: int | None, verbose: bool, seen: str
) -> None:
    stream = io.StringIO()
    set_up(stream, verbose)
    logger = logging.getLogger(name)
    if own_level is not None:
        logger.setLevel(own_level)
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logger.log(level, "x")
    assert [json.loads(line)["status"] for line in stream.getvalue().splitlines()] == seen.split()


def forms(secret: str) -> list[str]:
    """What libraries make of a secret that they quote."""
    raw = secret.encode(errors="surrogatepass")
    return [
        *(secret, repr(secret), repr(raw), repr({"headers": [secret]})),
        *(json.dumps(secret), json.dumps(secret, ensure_ascii=False), json.dumps(json.dumps(secret))),
        *(repr(json.dumps(secret)), json.dumps({"headers": json.dumps(secret, ensure_ascii=False)})),
        *(
            quote(raw),
            quote(raw, safe=""),
            quote_plus(raw),
            re.sub("%..", lambda found: found[0].lower(), quote(raw)),
        ),
        *(b64encode(raw).decode(), urlsafe_b64encode(raw).decode(), b64encode(raw + b"more").decode()),
        *(b64encode(b"api:" + raw).decode(), urlsafe_b64encode(b"proxy:::" + raw).decode()),
    ]


ASCII = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=4, max_size=60)
SECRETS = ASCII | st.text(min_size=4, max_size=30).filter(lambda text: len(text.strip()) >= 4)


@given(SECRETS, st.integers(0, 17), st.text(max_size=5), st.text(max_size=5))
@example("000%", 9, "", "")
@example("canary'\"\\+/\n", 6, "", "")
def test_no_way_to_write_a_secret_shows_it(secret: str, way: int, before: str, after: str) -> None:
    logs.remembered.clear()
    logs.remember_secret(secret)
    form = forms(secret.strip())[way]
    assert "[redacted]" in logs.redact(before + form + after)
    left = logs.redact(f"<{form}>").replace("[redacted]", "")
    # A last character of base64 has a few bits of the secret's last byte, and of what is beside it.
    assert re.fullmatch(r"<[\[\]{}: headersb'\"\\]*>" if way < 13 else r"<.{0,16}>", left)


def test_longest_of_several_secrets_is_replaced_and_no_short_text() -> None:
    for value in ("", "  ", "abc", " 12345\n", "wxyz", "wxyz12"):
        logs.remember_secret(value)
    assert logs.redact("abc 12345 <wxyz12> wxyz") == "abc [redacted] <[redacted]> [redacted]"


def test_untrusted_text_is_one_line_without_escape_sequences() -> None:
    stream = Terminal()
    log = set_up(stream)
    name = "a\x1b[2J\nERROR forged \x9b31m\u202e.jsonl"
    log.warning("cannot read %s", name)
    try:
        raise ValueError(name)
    except ValueError:
        log.exception("unexpected error")
    lines = stream.getvalue().splitlines()
    assert lines[0].endswith(r"cannot read a\x1b[2J\nERROR forged \x9b31m\u202e.jsonl")
    assert all(line.isprintable() for line in lines)
    assert len([line for line in lines if "unexpected error" in line]) == 1
