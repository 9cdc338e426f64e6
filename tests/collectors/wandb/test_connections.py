"""What connections keep to together, and what becomes of a request that fails in its thread."""

from __future__ import annotations

import threading

import pytest

from collectors.wandb import connections
from collectors.wandb.api import Answer, Ask
from collectors.wandb.connections import Gate, Lines
from collectors.wandb.pages import Page
from collectors.wandb.settings import Project
from common.errors import SourceError
from common.net.retry import TransientError

ASK = Ask(Project("acme", "ants"), "{}", 0, 5)
PAGE = Page(0, 5, 4, None, [])


class TestGate:
    def test_the_next_request_starts_a_pause_later_and_nobody_is_to_blame_then(self) -> None:
        gate = Gate(4, 2)
        gate.hold(5, SourceError("slow down"))
        gate.start(10)
        assert (gate.opens, gate.reason) == (12, None)

    def test_the_longest_wait_holds_with_its_reason(self) -> None:
        gate, first = Gate(4, 0), SourceError("first")
        for until, why in ((5, first), (5, SourceError("again")), (4, SourceError("sooner"))):
            gate.hold(until, why)
        assert (gate.opens, gate.reason) == (5, first)
        gate.hold(5.5, second := SourceError("second"))
        assert (gate.opens, gate.reason) == (5.5, second)

    def test_half_as_many_go_on_and_always_one(self) -> None:
        gate = Gate(9, 0)
        allowed = []
        for _ in range(4):
            gate.halve()
            allowed.append(gate.allowed)
        assert allowed == [4, 2, 1, 1]

    @pytest.mark.parametrize(
        ("left", "reset", "opens"), [(3, 5, 0), (2, 5, 15), (0, 5, 15), (None, 5, 0), (0, None, 0)]
    )
    def test_what_the_server_still_takes_is_not_used_up_by_those_under_way(
        self, left: int | None, reset: float | None, opens: float
    ) -> None:
        gate = Gate(4, 0)
        gate.heard(10, Answer(PAGE, left, reset), 2)
        assert gate.opens == opens
        assert str(gate.reason) == ("it takes no request for 5 s" if opens else "None")


class TestLines:
    @pytest.mark.parametrize(
        ("error", "said"), [(ZeroDivisionError("a defect"), True), (TransientError("slow down"), False)]
    )
    def test_what_a_request_raises_is_its_result_and_logged_only_where_nobody_expects_it(
        self, error: Exception, said: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        def work(_: Ask) -> Answer:
            raise error

        lines: Lines[str] = Lines(1, work)
        lines.send("owner", ASK)
        assert lines.receive(9) == ("owner", ASK, error)
        assert ("unexpected error while reading acme/ants" in caplog.messages) is said
        assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)
        lines.end(lambda: None)

    def test_what_fails_because_its_connection_is_cut_is_no_surprise(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        cut, begun = threading.Event(), threading.Event()

        def work(_: Ask) -> Answer:
            begun.set()
            cut.wait(9)
            raise ZeroDivisionError("the connection is gone")

        lines: Lines[str] = Lines(1, work)
        lines.send("owner", ASK)
        begun.wait(9)
        lines.end(cut.set)
        done = lines.receive(9)
        assert done is not None
        assert isinstance(done[2], ZeroDivisionError)
        assert caplog.messages == []

    def test_a_request_that_does_not_end_keeps_neither_the_run_nor_the_process(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "JOIN", 0.01)
        released, others = threading.Event(), {*threading.enumerate()}

        def work(_: Ask) -> Answer:
            released.wait(9)
            return Answer(PAGE, None, None)

        lines: Lines[str] = Lines(2, work)
        started = {*threading.enumerate()} - others
        assert {(thread.name, thread.daemon) for thread in started} == {("wandb-0", True), ("wandb-1", True)}
        lines.send("owner", ASK)
        lines.end(lambda: None)
        assert lines.receive(-1) is None
        released.set()
        done = lines.receive(9)
        assert done == ("owner", ASK, Answer(PAGE, None, None))
        for thread in started:
            thread.join(9)
        assert not any(thread.is_alive() for thread in started)
