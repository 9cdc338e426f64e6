"""A signal is raised at once, except in the middle of a delivery."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from common import signals
from common.errors import Interrupted


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signals.install()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_raises_at_once(number: signal.Signals) -> None:
    with pytest.raises(Interrupted) as caught:
        os.kill(os.getpid(), number)
    assert caught.value.signal_number == number


def test_a_signal_waits_for_the_outermost_shield() -> None:
    done: list[str] = []

    def work() -> None:
        with signals.shielded():
            with signals.shielded():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("inner")
            done.append("outer")
        done.append("never")

    with pytest.raises(Interrupted):
        work()
    assert done == ["inner", "outer"]


def test_only_the_first_signal_counts() -> None:
    with pytest.raises(Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    with signals.shielded():
        pass


def test_what_is_ignored_does_not_interrupt() -> None:
    signals.ignore()
    os.kill(os.getpid(), signal.SIGTERM)
