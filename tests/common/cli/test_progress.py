"""What is shown of work that takes long, on a terminal and elsewhere."""

from __future__ import annotations

import io
import logging

import pytest

from common.cli.progress import ProgressDisplay
from common.logs import ERASE
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
    lines = ProgressDisplay(io.StringIO(), clock=time)
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


def test_on_a_terminal_one_line_is_drawn_again_and_erased(screen: Screen) -> None:
    line = ProgressDisplay(screen)
    line.progress("wandb", "sending", 5, 10)
    line.progress("wandb", "a\x1b[2J\nb", 0, None)
    line.progress("host", "x" * 60, 0, None)
    line.close()
    drawn = ["", "wandb: sending, 5 of 10", r"wandb: a\x1b[2J\nb", f"host: {'x' * 33}", ""]
    assert screen.getvalue().split(ERASE) == drawn


def test_a_dumb_terminal_has_no_bar(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    ProgressDisplay(screen).progress("wandb", "sending", 5, 10)
    assert screen.getvalue() == ""
