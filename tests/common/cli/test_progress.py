"""What is shown of work that takes long, on a terminal and elsewhere."""

from __future__ import annotations

import io
import logging

import pytest

from common.cli.console import Console
from common.cli.progress import Lines, Terminal, watcher
from support.standins import Time


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("common.cli.progress.REDRAW", -1.0)
    return Screen()


def test_without_a_terminal_there_is_a_line_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    time = Time(0)
    lines = Lines(clock=time)
    with caplog.at_level(logging.INFO, "common.cli.progress"):
        for done in range(0, 2500, 100):
            lines.progress("wandb", "sending", done, 2400)
            time.sleep(1)
        time.sleep(10)
        lines.progress("xenna", "collecting points", 1234, None)
        lines.progress("xenna", "collecting points", 1235, None)
        time.sleep(10)
        lines.progress("xenna", "listing", 0, None)
    assert [record.getMessage() for record in caplog.records] == [
        "wandb: sending, 1,000 of 2,400",
        "wandb: sending, 2,000 of 2,400",
        "xenna: collecting points, 1,234 so far",
        "xenna: listing",
    ]


@pytest.mark.parametrize(
    ("answer", "agreed"),
    [("y\n", True), (" YES \n", True), ("n\n", False), ("\n", False), ("", False), ("yeah\n", False)],
)
def test_only_yes_is_agreement(screen: Screen, answer: str, agreed: bool) -> None:
    for shown in (Lines(), Terminal(Screen())):
        assert shown.ask("wandb", "7 points", Console(screen, io.StringIO(answer))) is agreed
    assert screen.getvalue() == 2 * "wandb: 7 points\nSend it? [y/N] "


def test_where_nobody_can_be_asked_nothing_is_agreed() -> None:
    assert Lines().ask("wandb", "7 points", None) is False


def test_on_a_terminal_one_line_changes_and_is_removed(screen: Screen) -> None:
    terminal = Terminal(screen)
    terminal.progress("wandb", "sending", 5, 10)
    terminal.progress("wandb", "a\x1b[2J\nb", 0, None)
    terminal.progress("host", "x" * 60, 0, None)
    terminal.progress("wandb", "蟻" * 30, 0, None)
    terminal.close()
    terminal.close()
    first, *drawn = screen.getvalue().split("\r\x1b[K")
    assert first == ""
    assert drawn == [
        "wandb: sending, 5 of 10",
        r"wandb: a\x1b[2J\nb",
        "host: " + "x" * 33,
        "wandb: " + "蟻" * 16,
        "",
    ]


def test_only_a_terminal_that_can_erase_has_that_line(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(watcher(screen), Terminal)
    assert not isinstance(watcher(io.StringIO()), Terminal)
    monkeypatch.setenv("TERM", "dumb")
    assert not isinstance(watcher(screen), Terminal)
