"""What a backfill of telemetry sinks knows of sessions and their history."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain, repeat
from pathlib import Path

import pytest

from collectors.gpu_memory.collector import COLLECTOR
from collectors.gpu_memory.metrics import GAUGES, LIVE_ONLY, METRICS
from common.net.retry import Deadline
from common.records.replay import PASS
from support.replay_writers import event
from support.replays import BEGIN, Simulation, opens, split


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(COLLECTOR, tmp_path)


def of(simulation: Simulation, name: str, since: int, until: int) -> dict[tuple[str, int], float]:
    """One metric, by rank and second."""
    found = simulation.replay(BEGIN + since, BEGIN + until)
    return {
        (next(tag for tag in tags if tag.startswith("rank:")), second - BEGIN): value
        for (metric, tags, host, second), value in found.items()
        if metric == f"gpu_memory.{name}" and host == "node-1"
    }


def test_the_peak_of_a_session_is_known_from_segments_that_it_has_long_left(simulation: Simulation) -> None:
    simulation.pass_time(10)
    simulation.write("sink/segment-000001.jsonl", event(simulation.now, 77))
    simulation.pass_time(50_000)
    simulation.write("sink/segment-000002.jsonl", event(simulation.now, 5))
    simulation.pass_time(10_000)
    simulation.write("sink/segment-000003.jsonl", event(simulation.now, 99))
    simulation.pass_time(100)
    assert of(simulation, "peak_allocated_bytes", 50_000, 51_000) == {("rank:0", 50_010): 77}


def test_a_sink_that_nobody_wrote_to_since_is_not_opened(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation.pass_time(10)
    simulation.write("old/segment-000001.jsonl", event(simulation.now, 77))
    simulation.pass_time(50_000)
    simulation.write("new/segment-000001.jsonl", event(simulation.now, 5, rank=1))
    simulation.pass_time(100)
    opened = opens(monkeypatch)
    assert of(simulation, "allocated_bytes", 40_000, 60_000) == {("rank:1", 50_010): 5}
    assert {path.parent.name for path in opened} == {"new"}


def test_alerts_of_a_second_are_whole_however_the_passes_fall(simulation: Simulation) -> None:
    simulation.pass_time(12_000)
    for sink in ("a", "b"):
        warnings = (event(BEGIN + PASS - 1 + n / 10, 1, "warning", session_id=sink) for n in range(20))
        simulation.write(f"{sink}/segment-000001.jsonl", *warnings)
    before, after = {("rank:0", PASS - 1): 20}, {("rank:0", PASS): 20}
    assert of(simulation, "alerts", 0, 2 * PASS) == before | after
    assert of(simulation, "alerts", 0, PASS) == before
    assert of(simulation, "alerts", PASS, 2 * PASS) == after


@pytest.mark.parametrize(
    "seconds",
    [[*range(10, 20), *[30] * 7], [*range(10, 20), *[30] * 7, 97], [30] * 40],
    ids=["at the end of the file", "before a later event", "in a second larger than it"],
)
def test_a_pass_that_has_had_its_share_of_bytes_is_made_again(tmp_path: Path, seconds: list[int]) -> None:
    simulation = Simulation(COLLECTOR, tmp_path, bytes_per_tick="1000000")
    simulation.pass_time(100)
    warnings = (event(BEGIN + second, 1, "warning", context="x" * 60_000) for second in seconds)
    simulation.write("sink/segment-000001.jsonl", *warnings)
    expected = {("rank:0", second): count for second, count in Counter(seconds).items() if second < 90}
    assert of(simulation, "alerts", 0, PASS) == expected
    assert simulation.tally.dropped == {}


def test_an_alert_is_counted_once_though_the_files_are_looked_at_for_weeks_of_passes(tmp_path: Path) -> None:
    simulation = Simulation(COLLECTOR, tmp_path, forget_after="86400")
    simulation.write("sink/segment-000001.jsonl", event(BEGIN, 1, "warning"))
    simulation.now += 14 * 86400
    simulation.write("sink/segment-000001.jsonl", event(simulation.now, 1, "warning"))
    simulation.now += 100
    assert of(simulation, "alerts", 0, 15 * 86400) == {("rank:0", 0): 1, ("rank:0", 14 * 86400): 1}


def test_without_job_id_each_bucket_is_sent_once_and_whole(tmp_path: Path) -> None:
    simulation = Simulation(COLLECTOR, tmp_path, tag_job_id="false", aggregate_interval="7")
    simulation.pass_time(12_000)
    for session in ("a", "b"):
        events = (event(BEGIN + second, 3, session_id=session) for second in range(0, 9000, 5))
        simulation.write(f"{session}/segment-000001.jsonl", *events)
    since, until = BEGIN + 100, BEGIN + 8000
    samples = [one for one in split(simulation.stream(since, until))[0] if one.metric is GAUGES["allocated"]]
    first, last = -(-since // 7) * 7, (until - 1) // 7 * 7
    assert [sample.timestamp for sample in samples] == list(range(first, last + 1, 7))
    assert {sample.value for sample in samples} == {6}


def test_a_pass_has_all_the_time_that_is_left(simulation: Simulation) -> None:
    simulation.pass_time(12_000)
    simulation.write("sink/segment-000001.jsonl", *(event(BEGIN + second, 3) for second in range(1000)))
    simulation.pass_time(10)
    times = chain([0.0], repeat(40.0))
    replay = simulation.past(BEGIN, BEGIN + PASS, deadline=Deadline(60, clock=lambda: next(times)))
    read = [mark for mark in split(replay())[1] if any("/file:" in key for key in mark.changes)]
    assert len(read) == 2  # to see when the first event is due, and for all that are


def test_a_manifest_tells_whose_the_events_are_and_nothing_else(simulation: Simulation) -> None:
    simulation.pass_time(4000)
    anonymous = [event(BEGIN + 10, 9, session_id=None), event(BEGIN + 20, 5, session_id=None)]
    for number, one in enumerate(anonymous, 1):
        simulation.write(f"sink/segment-{number:06d}.jsonl", one)
    segments = [{"filename": f"segment-{number:06d}.jsonl", "session_id": f"s{number}"} for number in (1, 2)]
    manifest = {"sessions": [{"session_id": 5}], "segments": segments}
    (simulation.folder / "sink" / "manifest.json").write_text(json.dumps(manifest))
    assert of(simulation, "peak_allocated_bytes", 0, 3600) == {("rank:0", 10): 9, ("rank:0", 20): 5}
    assert simulation.tally.dropped == {}


def test_a_backfill_knows_every_metric_but_those_of_the_tick_itself(simulation: Simulation) -> None:
    simulation.pass_time(4000)
    simulation.write("sink/segment-000001.jsonl", event(BEGIN + 10, 9, "warning", allocator_reserved_bytes=1))
    found = {name for name, _, _, _ in simulation.replay(BEGIN, BEGIN + 3600)}
    assert found == {metric.name for metric in METRICS if metric not in LIVE_ONLY}
    hidden = {metric.name.split(".")[1] for metric in LIVE_ONLY}
    assert hidden == {"sessions", "oom_dumps_24h", "ingest"}
    assert COLLECTOR.live_only == LIVE_ONLY
