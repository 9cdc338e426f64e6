"""What several files add up to is sent whole or not at all, however many ticks it takes to read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from collectors.data_plane.collector import COLLECTOR as DATA_PLANE
from collectors.gpu_memory.collector import COLLECTOR as GPU_MEMORY
from collectors.xenna.collector import COLLECTOR as XENNA
from common.collector import Collector
from support.data_plane_ticks import operations
from support.replay_writers import event
from support.replays import BEGIN, Held, Simulation, held, saved, split
from support.xenna_ticks import NOW, record

LONG = "x" * 120_000  # so that a share is a few lines
END = BEGIN + 1200


def line(collector: Collector[Any], writer: int, number: int, at: float) -> tuple[str, Mapping[str, Any]]:
    """One record of a writer, and the file it goes to."""
    name, ago = f"{writer}.jsonl", NOW - at
    if collector is XENNA:
        body = {"stage/a/queue_in": number, "stage/a/speed_tasks_per_s": number / 4, "padding": LONG}
        return name, record(number, ago, body, run_id=f"r{writer}", run_hash=f"h{writer}")
    if collector is DATA_PLANE:
        told = operations(number, ago, (1, number, 1.0), job="a", rank=writer, run_id=f"r{writer}")
        return name, {**told, "padding": LONG}
    told = {"session_id": f"s{writer}", "job_id": f"j{writer}", "device_id": writer, "metadata": {"x": LONG}}
    kind = "warning" if number % 3 == 0 else "sample"
    return f"{writer}/segment-000001.jsonl", event(at, number, kind, **told)


def added_up(points: Held) -> Held:
    names = ("xenna.stage.", "data_plane.", "gpu_memory.")
    return {
        key: value
        for key, value in points.items()
        if key[0].startswith(names)
        and ".ingest." not in key[0]
        and "sessions" not in key[0]
        and "oom" not in key[0]
    }


@pytest.mark.parametrize("kills", [0.0, 0.5])
@pytest.mark.parametrize(
    ("collector", "untagged"),
    [(XENNA, "stage_run_hash"), (GPU_MEMORY, "tag_job_id"), (DATA_PLANE, "tag_rank")],
    ids=lambda one: getattr(one, "name", ""),
)
def test_no_bucket_is_ever_sent_in_part(
    tmp_path: Path, collector: Collector[Any], untagged: str, kills: float
) -> None:
    chance, settings = Random(7), {untagged: "false", "settle": "0"}
    some = Simulation(collector, tmp_path, **settings, bytes_per_tick="1000000")
    whole = Simulation(collector, tmp_path, **settings)
    for number in range(12):
        for writer in range(3):
            some.now = BEGIN + 60 * number + 20 * writer
            some.write(*line(collector, writer, number, some.now))
    some.now = whole.now = END
    whole.tick()
    truth, sent, waited = added_up(whole.live), Held(), 0
    assert len({key[3] // 60 for key in truth}) == 12
    for _ in range(40):
        samples, marks = split(collector.collect(some.context(END, some.state)))
        points = held(samples)
        assert added_up(points).items() <= truth.items()
        if chance.random() < kills:  # with everything sent, and only some of it saved
            marks = marks[: chance.randrange(len(marks))]
        else:
            waited += not added_up(points)
        sent |= added_up(points)
        for mark in marks:
            some.state = saved(some.state, mark)
        [backlog] = [value for key, value in points.items() if key[0].endswith(".backlog_bytes")]
        if (not backlog and not kills) or sent == truth:
            break
    assert sent == truth
    assert waited > 2


def test_what_was_held_back_until_it_is_too_old_is_counted(tmp_path: Path) -> None:
    ticks = Simulation(DATA_PLANE, tmp_path, tag_rank="false", settle="0", bytes_per_tick="1000000")
    for number in range(10):
        for writer in range(2):
            ticks.now = BEGIN + 60 * number
            ticks.write(*line(DATA_PLANE, writer, number, ticks.now))
    ticks.now = END
    ticks.tick()
    assert added_up(ticks.live) == {}
    assert ticks.tally.dropped == {}
    ticks.now = BEGIN + 3600 + 185
    ticks.tick()
    # Four minutes of the writer that was read, and as much of what is read of the other.
    assert ticks.tally.dropped == {"too_old": 8}
    assert added_up(ticks.live) == {}
    ticks.tick()
    sent = {key[3]: value for key, value in ticks.live.items() if key[0] == "data_plane.ops"}
    assert sent == {BEGIN + 60 * number: 2 for number in range(4, 10)}
