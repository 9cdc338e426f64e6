"""What is said of work that takes long, on a terminal and elsewhere."""

from __future__ import annotations

import io
import logging

import pytest

from common.process.console import Console
from common.process.progress import Lines, Terminal, watcher
from common.process.protocol import Progress, Question, encode, message
from support.standins import Time


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_message_is_read_back_as_it_was_said() -> None:
    for said in (Progress("sending", 3, None), Progress("sending", 3, 9), Question("Send it?")):
        assert message(encode(said)) == said


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"7",
        b"[]",
        b"{}",
        b'{"progress": 7}',
        b'{"question": {}}',
        b"\xff",
        b'{"status": "ok"}',
        b"[" * 9999,
    ],
)
def test_anything_else_is_no_message(line: bytes) -> None:
    assert message(line) is None


def test_without_a_terminal_there_is_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    time = Time(0)
    lines = Lines(clock=time)
    with caplog.at_level(logging.INFO, "common.process.progress"):
        for done in range(0, 2500, 100):
            lines.progress("wandb", Progress("sending", done, 2400))
            time.sleep(1)
        lines.progress("xenna", Progress("collecting samples", 7, None))
        time.sleep(10)
        lines.progress("xenna", Progress("collecting samples", 1234, None))
        lines.ended("xenna")
        lines.progress("xenna", Progress("collecting samples", 8, None))
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "wandb: sending, 1,000 of 2,400",
        "wandb: sending, 2,000 of 2,400",
        "xenna: collecting samples, 1,234 so far",
    ]


def test_where_nobody_can_be_asked_the_answer_is_no() -> None:
    assert Lines().ask("wandb", Question("7 points")) is False


@pytest.mark.parametrize(
    ("answer", "agreed"),
    [("y\n", True), (" YES \n", True), ("n\n", False), ("\n", False), ("", False), ("yeah\n", False)],
)
def test_only_a_yes_is_a_yes(answer: str, agreed: bool) -> None:
    screen = Screen()
    for watching in (
        Lines(Console(screen, io.StringIO(answer))),
        Terminal(Screen(), Console(screen, io.StringIO(answer))),
    ):
        assert watching.ask("wandb", Question("7 points")) is None
        assert watching.answer() is agreed
    assert screen.getvalue() == 2 * "wandb: 7 points\nSend it? [y/N] "


def test_on_a_terminal_one_line_says_what_all_are_doing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    screen = Screen()
    terminal = Terminal(screen)
    terminal.progress("wandb", Progress("sending", 5, 10))
    terminal.progress("xenna", Progress("collecting samples", 3, None))
    terminal.progress("wandb", Progress("a\x1b[2J\nb", 0, None))
    terminal.progress("host", Progress("x" * 60, 0, None))
    terminal.ended("wandb")
    terminal.ended("nobody")
    terminal.close()
    terminal.close()
    first, *drawn = screen.getvalue().split("\r\x1b[K")
    assert first == ""
    assert drawn[:3] == [
        "wandb: sending, 5 of 10",
        "wandb: sending, 5 of 10 · xenna: collecting samples, 3 so f",
        r"wandb: a\x1b[2J\nb · xenna: collecting samples, 3 so far",
    ]
    assert all(len(line) < 60 for line in drawn)
    assert drawn[4].startswith("xenna: collecting samples, 3 so far · host: xxx")
    assert drawn[5:] == [""]


def test_characters_of_two_columns_keep_that_line_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    screen = Screen()
    Terminal(screen).progress("wandb", Progress("蟻" * 9, 0, None))
    assert screen.getvalue() == "\r\x1b[Kwandb: 蟻蟻蟻蟻蟻蟻"


@pytest.mark.parametrize(("kind", "seen"), [("xterm", True), ("dumb", False)])
def test_whoever_looks_on_gets_that_line(kind: str, seen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", kind)
    assert isinstance(watcher(Screen()), Terminal) is seen
    assert not isinstance(watcher(io.StringIO()), Terminal)
