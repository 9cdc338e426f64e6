"""A signal is raised at once, except in the middle of a delivery, and is never lost."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from common import signals
from common.config.sources import Configuration
from common.errors import DeadlinePassed, Interrupted
from common.state import open_store


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_raises_at_once(number: signal.Signals) -> None:
    with (
        pytest.raises(Interrupted, match=f"^interrupted by {number.name}$") as caught,
        signals.interruptible(),
    ):
        os.kill(os.getpid(), number)
    assert caught.value.signal_number == number


def test_a_signal_waits_for_the_outermost_shield() -> None:
    done: list[str] = []

    def work() -> None:
        with signals.interruptible():
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
    with signals.interruptible():
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        with signals.shielded():
            pass


def test_behind_the_block_nothing_interrupts() -> None:
    with signals.interruptible():
        pass
    for number in signals.STOPPING:
        os.kill(os.getpid(), number)


class Finalised:
    """Asks this process to stop at the one moment at which Python drops whatever is raised."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_that_comes_while_an_object_is_finalised_is_not_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work() -> None:
        with signals.interruptible():
            Finalised()
            signal.sigtimedwait([signal.SIGUSR1], 30)

    with pytest.raises(Interrupted, match=r"^interrupted by SIGTERM$"):
        work()
    assert capsys.readouterr().err == ""


def test_an_import_is_finished_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that was left half imported would break whatever is still to be done."""
    monkeypatch.syspath_prepend(tmp_path)
    body = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nWHOLE = all(range(1, 100_000))\n"
    (tmp_path / "slow_to_import.py").write_text(body)

    def work() -> None:
        with signals.interruptible():
            importlib.import_module("slow_to_import")
            signal.sigtimedwait([signal.SIGUSR1], 30)

    with pytest.raises(Interrupted, match=r"^interrupted by SIGTERM$"):
        work()
    assert sys.modules["slow_to_import"].WHOLE


def test_a_signal_in_an_import_that_is_the_last_to_be_done_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "AGAIN", 60.0)  # so that it is over before that
    (tmp_path / "last_to_import.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Interrupted, match="interrupted by SIGTERM"), signals.interruptible():
        importlib.import_module("last_to_import")
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert "last_to_import" in sys.modules


class TestTheDeadline:
    def test_it_says_what_was_being_waited_for(self) -> None:
        with (
            pytest.raises(DeadlinePassed, match=r"^its deadline of 7 s passed while waiting for inner$"),
            signals.interruptible(7),
            signals.doing("waiting for outer"),
            signals.doing("waiting for inner"),
        ):
            os.kill(os.getpid(), signals.TIME_IS_OVER)

    def test_what_is_over_is_forgotten(self) -> None:
        def work(outer: str) -> None:
            with signals.interruptible(7), signals.doing(outer):
                with signals.doing("inner"):
                    pass
                os.kill(os.getpid(), signals.TIME_IS_OVER)

        with pytest.raises(DeadlinePassed, match=r"^its deadline of 7 s passed while outer$"):
            work("outer")
        with pytest.raises(DeadlinePassed, match=r"^its deadline of 7 s passed$"), signals.interruptible(7):
            os.kill(os.getpid(), signals.TIME_IS_OVER)

    def test_where_nothing_is_waited_for_it_says_where_our_own_code_is(self) -> None:
        ours = {"__name__": "collectors.toy"}
        exec("def work(step):\n    pass\n    step()", ours)  # noqa: S102
        work: Callable[[Callable[[], None]], None] = ours["work"]  # type: ignore[assignment]
        with (
            pytest.raises(DeadlinePassed, match=r"^its deadline of 7 s passed in collectors.toy, line 3$"),
            signals.interruptible(7),
        ):
            work(lambda: os.kill(os.getpid(), signals.TIME_IS_OVER))

    def test_it_is_what_was_under_way_when_it_passed_and_not_when_it_could_be_raised(self) -> None:
        with (
            pytest.raises(DeadlinePassed, match=r"while waiting for the intake$"),
            signals.interruptible(7),
            signals.shielded(),
            signals.doing("waiting for the intake"),
        ):
            os.kill(os.getpid(), signals.TIME_IS_OVER)

    def test_what_another_thread_waits_for_counts_too(self) -> None:
        begun, over = threading.Event(), threading.Event()

        def ask() -> None:
            with signals.doing("waiting for the other thread's answer"):
                begun.set()
                over.wait(30)

        thread = threading.Thread(target=ask)
        thread.start()
        begun.wait(30)
        with pytest.raises(DeadlinePassed, match="while waiting for the other"), signals.interruptible(7):
            os.kill(os.getpid(), signals.TIME_IS_OVER)
        over.set()
        thread.join()

    def test_an_aws_that_does_not_answer_is_named_by_its_address(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            environ = {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": url, "FLEETGAUGE_STATE": "s3://a"}
            found = Configuration(environ, None)

            def end_once_asked() -> None:
                asking, _ = silent.accept()
                with asking:
                    asking.recv(1)
                    os.kill(os.getpid(), signals.TIME_IS_OVER)
                    over.wait(30)

            over = threading.Event()
            thread = threading.Thread(target=end_once_asked)
            thread.start()
            store = open_store(found.core)
            assert store is not None
            with pytest.raises(DeadlinePassed, match=f"7 s passed while .*{url}"), signals.interruptible(7):
                store.read("key")
            over.set()
            thread.join()


def test_how_children_end_is_known_whatever_was_inherited() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with signals.interruptible():
            assert subprocess.run([sys.executable, "-c", "exit(7)"], check=False).returncode == 7
    finally:
        signal.signal(signal.SIGCHLD, before)
