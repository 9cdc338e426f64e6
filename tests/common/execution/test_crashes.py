"""Nothing lost and nothing doubled, proven by killing the job wherever it can be killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.crash_harness import AT_THE_INTAKE, AT_THE_STORE, CrashHarness, Kill
from support.growing_file import Writer, case, held, place, service, truth
from support.servers.datadog import Intake
from support.servers.faults import Fault

pytestmark = pytest.mark.slow


@pytest.fixture
def running(tmp_path: Path, intake: Intake) -> Iterator[tuple[CrashHarness, Path]]:
    with service(tmp_path, intake) as harness:
        harness.at(intake, **place(tmp_path))
        yield harness, tmp_path / "numbers.txt"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashHarness]:
    """One service for many generated cases; it keeps no state but what `case` gives it."""
    with Intake() as unused, service(tmp_path_factory.mktemp("shared"), unused) as harness:
        yield harness


KILLS = st.builds(Kill, st.sampled_from(AT_THE_INTAKE + AT_THE_STORE), st.integers(min_value=1, max_value=2))
ROUND = st.tuples(st.lists(st.integers(0, 99), min_size=24, max_size=40), KILLS, st.booleans())
EXAMPLES, ROUNDS = 26, 8  # 208 kills


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(ROUND, min_size=ROUNDS, max_size=ROUNDS))
def test_wherever_the_job_is_killed_the_intake_ends_with_the_truth(
    shared: CrashHarness, rounds: list[tuple[list[int], Kill, bool]]
) -> None:
    running = shared
    with case(running) as path:
        writer = Writer(path)
        for numbers, kill, torn in rounds:
            writer.append(numbers, torn=torn)
            assert running.run(kill) is None, f"{kill} did not happen"
            if torn:
                writer.mend()
        assert running.kills == ROUNDS
        writer.end()
        outcome = running.run()
        assert outcome is not None
        assert outcome["status"] == "ok", outcome
        assert held(running.intake) == truth(path)


@pytest.mark.parametrize("whom", ["child", "parent"])
@pytest.mark.parametrize("point", [*AT_THE_INTAKE, "before fsync", "after rename"])
def test_killing_the_child_or_the_parent_of_a_real_run_loses_and_doubles_nothing(
    running: tuple[CrashHarness, Path], point: str, whom: str
) -> None:
    harness, path = running
    writer = Writer(path)
    writer.append(list(range(30)))
    assert harness.run_whole(Kill(point, 1, whom)) != 0
    writer.append(list(range(30)))
    writer.end()
    while harness.run_whole() != 0:  # an orphan may hold the checkpoint for an instant
        pass
    assert held(harness.intake) == truth(path)


FAULTS = st.sampled_from(
    [
        Fault(status=429, headers={"Retry-After": "0"}),
        Fault(status=503),
        Fault(reset="before"),
        Fault(reset="after"),
        Fault(reset="after", applied=True),
        Fault(truncate=True),
        Fault(hang=True),
        Fault(hang=True, applied=True),
    ]
)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(st.tuples(FAULTS, st.integers(0, 3), KILLS | st.none()), min_size=3, max_size=3))
def test_faults_of_the_intake_lose_and_double_nothing(
    shared: CrashHarness, rounds: list[tuple[Fault, int, Kill | None]]
) -> None:
    running = shared
    with case(running) as path:
        writer = Writer(path)
        for fault, good, kill in rounds:
            writer.append(list(range(40)))
            if good:
                running.intake.faults.add(Fault(), times=good)
            running.intake.faults.add(fault, times=2)
            running.run(kill)
            running.intake.faults.clear()
        writer.end()
        outcome = running.run()
        assert outcome is not None
        assert outcome["status"] == "ok", outcome
        assert held(running.intake) == truth(path)


def test_an_intake_that_answers_503_for_the_whole_run_moves_nothing(
    running: tuple[CrashHarness, Path], tmp_path: Path
) -> None:
    harness, path = running
    harness.project.set_constant("net/retry.py", "MAX_ATTEMPTS", "2")
    writer = Writer(path)
    writer.append(list(range(30)))
    harness.intake.faults.add(Fault(status=503), times=None)
    outcome = harness.run()
    assert outcome is not None
    assert (outcome["status"], outcome["error"]["type"]) == ("failed", "DeliveryError")
    assert list((tmp_path / "checkpoints").glob("*.json")) == []
    harness.intake.faults.clear()
    writer.end()
    harness.run()
    assert held(harness.intake) == truth(path)


def test_what_was_accepted_before_the_intake_failed_is_not_sent_again(
    running: tuple[CrashHarness, Path],
) -> None:
    harness, path = running
    harness.project.set_constant("net/retry.py", "MAX_ATTEMPTS", "1")
    writer = Writer(path)
    writer.append(list(range(60)))
    harness.intake.faults.add(Fault(), times=2)
    harness.intake.faults.add(Fault(status=503), times=None)
    outcome = harness.run()
    assert outcome is not None
    assert outcome["status"] == "partial"
    harness.intake.faults.clear()
    writer.end()
    harness.run()
    assert held(harness.intake) == truth(path)
    sent = [write.key for write in harness.intake.write_log if write.key.metric == "numbers.total"]
    assert len(sent) == len(set(sent))


def test_a_clock_twenty_minutes_ahead_moves_nothing_until_it_is_right(
    running: tuple[CrashHarness, Path], tmp_path: Path
) -> None:
    harness, path = running
    now = int(time.time())
    path.write_text(f"{now - 20} a 1\n{now - 19} a 2\nend\n")
    harness.intake.clock = lambda: time.time() - 1200
    outcome = harness.run()
    assert outcome is not None
    assert outcome["status"] == "failed"
    assert "clock is +120" in outcome["error"]["message"]
    assert outcome["dropped"] == {"in_future": 2}
    assert held(harness.intake) == {}
    harness.intake.clock = time.time
    outcome = harness.run()
    assert outcome is not None
    assert outcome["status"] == "ok"
    assert held(harness.intake) == truth(path)


def test_a_thousand_marks_are_few_saves_and_few_payloads(running: tuple[CrashHarness, Path]) -> None:
    harness, path = running
    harness.project.set_constant("intake.py", "BATCH_SIZE", "10_000")
    writer = Writer(path)
    writer.append(list(range(1000)), per_second=1)
    writer.end()
    harness.run()
    pushes = [request for request in harness.intake.requests if request.points > 20]
    assert len(pushes) == 1
    assert held(harness.intake) == truth(path)


def test_a_second_that_may_still_grow_is_held_back(running: tuple[CrashHarness, Path]) -> None:
    harness, path = running
    now = int(time.time())
    path.write_text(f"{now - 60} a 1\n{now - 50} a 2\n")
    harness.run()
    assert held(harness.intake) == {("a", now - 60): 1}
    with path.open("a") as file:
        file.write(f"{now - 50} a 3\nend\n")
    harness.run()
    assert held(harness.intake) == {("a", now - 60): 1, ("a", now - 50): 5}
