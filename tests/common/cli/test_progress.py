"""What is shown of work that takes long, on a terminal and elsewhere."""

from __future__ import annotations

import io
import logging

import pytest

from common.cli.console import Console, ask
from common.cli.progress import Bar, Lines, watcher
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
def test_only_yes_is_agreement(answer: str, agreed: bool) -> None:
    screen = io.StringIO()
    assert ask("wandb: 7 [points]", Console(screen, io.StringIO(answer))) is agreed
    assert screen.getvalue() == "wandb: 7 [points]\nSend it? [y/N] "


def test_nothing_is_agreed_without_a_terminal() -> None:
    assert ask("wandb: 7 points", None) is False


def test_on_a_terminal_one_line_is_drawn_again_and_erased(screen: Screen) -> None:
    bar = Bar(screen)
    bar.progress("wandb", "sending", 5, 10)
    bar.progress("wandb", "a\x1b[2J\nb", 0, None)
    bar.progress("host", "x" * 60, 0, None)
    bar.progress("wandb", "蟻" * 30, 0, None)
    bar.close()
    bar.close()
    drawn = screen.getvalue()
    assert "wandb: sending, 5 of 10" in drawn
    assert r"wandb: a\x1b[2J\nb" in drawn
    assert drawn.count("\n") == 1  # of the end, which is erased
    assert drawn.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")


def test_only_a_terminal_that_can_erase_has_a_bar(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(watcher(screen), Bar)
    assert isinstance(watcher(io.StringIO()), Lines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(watcher(screen), Lines)
