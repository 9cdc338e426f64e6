"""What is said of work that takes long, on a terminal and elsewhere."""

from __future__ import annotations

import io
import logging
import re

import pytest

from common.process.console import Console
from common.process.progress import Lines, Terminal, watcher
from common.process.protocol import Progress, Question, encode, message


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


def test_without_a_terminal_there_is_one_line_per_tenth(caplog: pytest.LogCaptureFixture) -> None:
    lines = watcher(io.StringIO())
    with caplog.at_level(logging.INFO, "common.process.progress"):
        for done in range(0, 1001, 20):
            lines.progress("wandb", Progress("sending", done, 1000))
        lines.progress("wandb", Progress("listing", 7, None))
        lines.progress("xenna", Progress("sending", 500, 1000))
    said = [record.getMessage() for record in caplog.records]
    assert said[:3] == [
        "wandb: sending, 0 of 1000",
        "wandb: sending, 100 of 1000",
        "wandb: sending, 200 of 1000",
    ]
    assert said[10:] == ["wandb: sending, 1000 of 1000", "xenna: sending, 500 of 1000"]


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


def test_on_a_terminal_there_is_a_bar_per_collector() -> None:
    screen = Screen()
    terminal = Terminal(screen)
    terminal.progress("wandb", Progress("sending", 5, 10))
    terminal.progress("xenna", Progress("listing", 3, 4))
    terminal.progress("xenna", Progress("computing", 7, None))
    terminal.close()
    *_, wandb, xenna = re.sub(r"\x1b\[[0-9;?]*\w|[━╸╺]", "", screen.getvalue()).split("\r")[-2].splitlines()
    assert " ".join(wandb.split()[:-1]) == "wandb: sending 5/10"
    assert " ".join(xenna.split()[:-1]) == "xenna: computing 7/?"


def test_whoever_looks_on_gets_bars() -> None:
    assert isinstance(watcher(Screen()), Terminal)
