"""Log lines for a person and for a program, and never a secret in either."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

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
    return logging.getLogger("common.datadog.sink")


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
    assert text.count("[redacted]") >= 5
    assert "in the message [redacted] and" in text
    assert "ValueError: cause [redacted]" in text


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["human", "json"])
def test_arguments_that_do_not_fit_their_message_show_no_secret(
    stream: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.remember_secret(CANARY)
    set_up(stream).warning("a number: %d", CANARY)
    assert stream.getvalue().startswith("a log line of common.datadog.sink, line ")
    assert CANARY not in stream.getvalue() + "".join(capsys.readouterr())


def test_a_stream_that_is_gone_is_no_failure() -> None:
    stream = io.StringIO()
    log = set_up(stream)
    stream.close()
    log.warning("lost")


def test_a_json_line_has_the_names_datadog_knows() -> None:
    stream = io.StringIO()
    log = set_up(stream)
    record = log.makeRecord(log.name, logging.WARNING, "f", 1, "%s is late", ("naïve",), None)
    record.created = 1_800_000_000.25
    log.handle(record)
    assert json.loads(stream.getvalue()) == {
        "timestamp": "2027-01-15T08:00:00.250+00:00",
        "status": "warning",
        "logger": "common.datadog.sink",
        "collector": "host",
        "message": "naïve is late",
        "dd.service": "fleetgauge",
        "dd.env": "test",
        "dd.version": "1.2.3",
    }


def test_every_json_line_is_one_line_and_only_an_exception_has_a_stack() -> None:
    stream = io.StringIO()
    log = set_up(stream)
    log.info("two\nlines")
    try:
        raise ValueError("odd")
    except ValueError:
        log.exception("failed")
    plain, failed = map(json.loads, stream.getvalue().splitlines())
    assert (plain["message"], plain["status"]) == ("two\nlines", "info")
    assert "error.stack" not in plain
    assert failed["status"] == "error"
    assert failed["error.stack"].startswith("Traceback")
    assert failed["error.stack"].endswith("ValueError: odd")


def test_labels_without_a_value_are_left_out() -> None:
    stream = io.StringIO()
    logs.set_up("host", verbose=False, labels={"service": "x", "env": ""}, stream=stream)
    logging.getLogger("common").warning("x")
    assert [key for key in json.loads(stream.getvalue()) if key.startswith("dd.")] == ["dd.service"]


def test_a_person_sees_the_time_the_level_and_the_collector() -> None:
    stream = Terminal()
    set_up(stream).info("hello %s", "there")
    assert stream.getvalue()[8:] == " INFO    host: hello there\n"


@pytest.mark.parametrize(("verbose", "seen"), [(False, ["info"]), (True, ["debug", "info"])])
@pytest.mark.parametrize("name", ["fleetgauge", "common.x", "collectors.host"])
def test_our_own_debug_lines_come_with_verbose_only(name: str, verbose: bool, seen: list[str]) -> None:
    stream = io.StringIO()
    set_up(stream, verbose)
    logging.getLogger(name).debug("d")
    logging.getLogger(name).info("i")
    assert [json.loads(line)["status"] for line in stream.getvalue().splitlines()] == seen


@pytest.mark.parametrize("own_level", [logging.NOTSET, logging.DEBUG])
@pytest.mark.parametrize("name", ["botocore", "urllib3.connectionpool", "commonplace"])
def test_others_are_never_heard_below_warning(name: str, own_level: int) -> None:
    stream = io.StringIO()
    set_up(stream, verbose=True)
    theirs = logging.getLogger(name)
    theirs.setLevel(own_level)
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        theirs.log(level, "x")
    theirs.setLevel(logging.NOTSET)
    assert [json.loads(line)["status"] for line in stream.getvalue().splitlines()] == ["warning"]


def test_setting_up_again_replaces_the_first(capsys: pytest.CaptureFixture[Any]) -> None:
    first, second = io.StringIO(), io.StringIO()
    set_up(first)
    set_up(second).warning("x")
    assert (first.getvalue(), len(second.getvalue().splitlines())) == ("", 1)
    logs.set_up("host", verbose=False)
    logging.getLogger("common").warning("to standard error")
    assert "to standard error" in capsys.readouterr().err


def test_a_longer_secret_is_replaced_before_one_it_contains() -> None:
    logs.remember_secret("abcd")
    logs.remember_secret("abcdefgh")
    assert logs.redact("abcdefgh abcd") == "[redacted] [redacted]"


def test_only_what_is_long_enough_to_be_a_secret_is_replaced() -> None:
    for value in ("", "  ", "abc", " 12345\n"):
        logs.remember_secret(value)
    logs.remember_secret("wxyz")
    assert logs.redact("abc 12345 wxyz") == "abc [redacted] [redacted]"
