"""The engine, whatever the grammar: isolation, paths, clocks, and what is said of other kinds."""

from __future__ import annotations

import gzip
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collectors.xenna.collector import XennaIngest, XennaSettings
from collectors.xenna.record import Record
from common.errors import SourceError
from common.metric import Mark, Sample
from common.records import engine
from common.records.collector import collector_over
from common.records.entry import Entry
from common.records.tail import NOT_THERE
from support.data_plane_ticks import DataPlaneTicks, operations
from support.project import Project
from support.servers.datadog import Intake
from support.xenna_ticks import NOW, Ticks, named, record

RUN = ("pipeline_kind:curate", "run_hash:abc")
KEY = "test-api-key"


class Defective(XennaIngest):
    """A grammar that fails over some records, in both of its functions."""

    def interpret(self, entry: Entry) -> Record | None:
        if entry.value.get("status") == "interpret":
            raise KeyError("a key that surprises")
        return super().interpret(entry)

    def samples(self, record: Record) -> Sequence[Sample]:
        if record.metrics.get("progress") == 13:
            raise ZeroDivisionError("a number that surprises")
        return super().samples(record)


class DefectiveTicks(Ticks):
    collector = collector_over(Defective, XennaSettings)


def test_whatever_a_grammar_raises_costs_that_entry_and_is_told_twenty_times(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = DefectiveTicks(tmp_path)
    for number in range(0, 60, 3):
        bad = (
            record(number, 900 - number, status="interpret"),
            record(number + 1, 899 - number, {"progress": 13}),
        )
        ticks.write(*bad, record(number + 2, 898 - number))
    points = ticks.tick()
    assert len(named(points, "xenna.pipeline.progress")) == 20
    assert ticks.tally.dropped == {"unusable_record": 40}
    assert points["xenna.ingest.bad_records", (), NOW] == 40
    assert points["xenna.ingest.records", (), NOW] == 20
    said = [one for one in caplog.messages if "unusable_record" in one]
    assert len(said) == 20
    assert said[0] == (
        f"dropped {tmp_path}/a.jsonl@0 (line 1): unusable_record: KeyError is \"'a key that surprises'\""
    )
    assert "(line 2): unusable_record: ZeroDivisionError is 'a number that surprises'" in said[1]
    assert named(ticks.tick(), "xenna.pipeline") == {}


# Paths


def test_where_no_path_is_there_nothing_is_said_of_runs_and_what_is_left_and_the_run_is_partial(
    tmp_path: Path,
) -> None:
    ticks = Ticks(tmp_path, paths=f"{tmp_path}/mistyped, {tmp_path}/typo.jsonl")
    assert {name for name, _, _ in ticks.tick()} == {
        f"xenna.ingest.{name}" for name in ("files", "records", "bad_records", "other_kind", "bytes")
    }
    assert ticks.tally.lost == [f"{tmp_path}/mistyped: {NOT_THERE}", f"{tmp_path}/typo.jsonl: {NOT_THERE}"]


def test_where_some_paths_are_missing_sums_are_absent_and_series_are_not(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path, paths=f"{tmp_path}/a.jsonl, {tmp_path}/gone")
    ticks.write(record(0, 100))
    points = ticks.tick()
    assert points["xenna.run.last_record_age_seconds", RUN, NOW] == 100
    assert points["xenna.pipeline.progress", RUN, NOW - 100] == 50.0
    assert named(points, "xenna.runs.") == {}


def test_while_files_wait_for_the_next_tick_nothing_is_said_of_how_runs_are(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path, bytes_per_tick="1000000")
    for name in "ab":
        long = {"progress": 1, "padding": "x" * 700_000}
        told = {"run_id": name, "run_hash": name}
        ticks.write(record(0, 900, long, **told), record(1, 10, long, **told), to=f"{name}.jsonl")
    points = ticks.tick()
    assert points["xenna.ingest.backlog_bytes", (), NOW] > 0
    assert named(points, "xenna.run") == {}  # neither stalled for a quarter of an hour, nor none active
    points = ticks.tick()
    assert points["xenna.runs.active", (), NOW] == 2
    assert {value for (name, *_), value in points.items() if name == "xenna.run.stalled"} == {0}


def test_of_a_run_whose_file_cannot_be_read_nothing_is_said_and_of_others_it_is(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path)
    for name in "ab":
        ticks.write(record(0, 900, run_id=name, run_hash=name), to=f"{name}.jsonl")
    ticks.tick()
    (tmp_path / "b.jsonl").unlink()
    (tmp_path / "b.jsonl").symlink_to("b.jsonl")
    ticks.write(record(1, 5.5, run_id="a", run_hash="a"), to="a.jsonl")
    points = ticks.tick()
    assert ticks.tally.lost == [f"{tmp_path}/b.jsonl: Too many levels of symbolic links"]
    assert named(points, "xenna.run.") == {
        ("xenna.run.last_record_age_seconds", ("pipeline_kind:curate", "run_hash:a"), NOW): 5.5,
        ("xenna.run.stalled", ("pipeline_kind:curate", "run_hash:a"), NOW): 0,
    }


def test_records_of_another_kind_take_no_numbers_of_the_same_run(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path)
    ticks.write(*(operations(seq, 100, (1, 1, 1.0), run_id="r1") for seq in range(5)))
    ticks.write(*(record(seq, 90 - seq, {"progress": seq}) for seq in range(8)))
    points = ticks.tick()
    assert [value for (name, *_), value in points.items() if name == "xenna.pipeline.progress"] == [*range(8)]
    assert points["xenna.ingest.other_kind", (), NOW] == 5


def test_what_a_run_with_a_fast_clock_ended_with_waits_until_it_is_over_by_ours(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path)
    ticks.write(record(0, -120), record(1, -120, event="end", status="ok"))
    assert named(ticks.tick(), "xenna.pipeline.") == {}
    ticks.now = NOW + 120  # when its writer has ended, and nothing of that second can follow
    assert named(ticks.tick(), "xenna.pipeline.") == {("xenna.pipeline.progress", RUN, NOW + 120): 50.0}


def test_a_run_that_goes_on_after_its_end_is_active_again(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path)
    ticks.write(record(0, 300), record(1, 200, event="end", status="ok"))
    assert ticks.tick()["xenna.runs.active", (), NOW] == 0
    ticks.write(record(2, 100))
    points = ticks.tick()
    assert (points["xenna.runs.active", (), NOW], points["xenna.run.stalled", RUN, NOW]) == (1, 0)
    assert points["xenna.runs.ended_ok_24h", (), NOW] == 0


def test_what_a_compressed_file_holds_is_read_beside_the_next_file_of_its_name(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path)
    ticks.write(record(0, 900, {"progress": 0}))
    ticks.tick()
    ticks.write(record(1, 800, {"progress": 1}))
    whole = (tmp_path / "a.jsonl").read_bytes()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(whole))
    os.utime(tmp_path / "a.jsonl.gz", (NOW, NOW))
    points = ticks.tick()  # while it is being compressed
    assert points["xenna.ingest.files", (), NOW] == 1
    assert named(points, "xenna.pipeline.progress") == {("xenna.pipeline.progress", RUN, NOW - 800): 1}
    ticks.write(record(2, 700, {"progress": 2}))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    os.utime(tmp_path / "a.jsonl.gz", (NOW, NOW))
    (tmp_path / "a.jsonl").unlink()
    ticks.write(record(0, 600, {"progress": 3}, run_id="r2"))
    os.utime(tmp_path / "a.jsonl", (NOW + 1, NOW + 1))
    points = ticks.tick()
    assert points["xenna.ingest.files", (), NOW] == 2
    assert named(points, "xenna.pipeline.progress") == {
        ("xenna.pipeline.progress", RUN, NOW - 700): 2,
        ("xenna.pipeline.progress", RUN, NOW - 600): 3,
    }


def test_a_path_that_was_read_before_and_one_behind_a_wildcard_may_go(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path, paths=f"{tmp_path}/a.jsonl, {tmp_path}/job-*/b.jsonl")
    ticks.write(record(0, 100))
    ticks.tick()
    (tmp_path / "a.jsonl").unlink()
    assert ticks.tick()["xenna.runs.active", (), NOW] == 1
    assert ticks.tally.lost == []


def test_a_path_full_of_another_kind_is_warned_of_and_no_drop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "other").mkdir()
    ticks = Ticks(tmp_path, paths=f"{tmp_path}/mine, {tmp_path}/other")
    ticks.write(record(0, 100), operations(0, 100), to="mine/a.jsonl")
    ticks.write(operations(1, 100), operations(2, 90), to="other/b.jsonl")
    points = ticks.tick()
    assert points["xenna.ingest.other_kind", (), NOW] == 3
    assert points["xenna.ingest.records", (), NOW] == 1
    assert ticks.tally.dropped == {}
    assert caplog.messages == [
        f"{tmp_path}/other: all 2 records read there are of another kind than xenna; is the path right?"
    ]


# Clocks


class ClockTicks(DataPlaneTicks):
    """Ticks of a machine whose clock is so many seconds ahead of the intake's."""

    ahead: float = 0

    def context(self) -> Any:
        return replace(super().context(), intake_clock=lambda: self.now - self.ahead)


@pytest.mark.parametrize(("ahead", "ago", "reason"), [(-1800, -1750, "in_future"), (1800, 4000, "too_old")])
def test_what_only_our_clock_refuses_fails_the_run_names_the_skew_and_marks_nothing(
    tmp_path: Path, ahead: int, ago: int, reason: str
) -> None:
    ticks = ClockTicks(tmp_path)
    ticks.ahead = ahead
    ticks.write(operations(0, ago))
    with pytest.raises(SourceError, match=rf"clock is \{ahead:+d} s off the intake's.*dropped as {reason}"):
        ticks.tick()
    assert ticks.state == {}
    assert ticks.tally.dropped == {}


@pytest.mark.parametrize(("ahead", "ago"), [(-1800, -3000), (1800, 6000), (30, 3610), (-30, -610), (0, 4000)])
def test_what_both_clocks_refuse_is_dropped_and_counted(tmp_path: Path, ahead: int, ago: int) -> None:
    ticks = ClockTicks(tmp_path)
    ticks.ahead = ahead
    ticks.write(operations(0, ago), operations(1, 100))
    assert len(named(ticks.tick(), "data_plane.ops")) == 1
    assert ticks.tally.dropped.total() >= 1


@pytest.mark.slow
def test_a_slow_clock_fails_a_push_that_would_drop_records_and_a_dry_run_warns(tmp_path: Path) -> None:
    for name in ("service", "records", "checkpoints"):
        (tmp_path / name).mkdir()
    project = Project(tmp_path / "service", {"DD_ENV": "test", "DD_API_KEY": KEY})
    project.keep("xenna")
    ahead = int(time.time()) + 1800
    one = record(0, 0, timestamp=ahead - 60)
    (tmp_path / "records" / "a.jsonl").write_text(json.dumps(one) + "\n")
    with Intake(key=KEY, clock=lambda: time.time() + 1800) as intake:
        environment = {
            "FLEETGAUGE_XENNA_PATHS": str(tmp_path / "records"),
            "FLEETGAUGE_CHECKPOINTS": str(tmp_path / "checkpoints"),
            "FLEETGAUGE_DD_URL": intake.url,
        }
        ran = project.run("xenna", "--push", "--json", **environment)
        [outcome] = json.loads(ran.stdout)["collectors"]
        assert ran.returncode == 1
        assert outcome["status"] in {"failed", "partial"}
        assert re.match(
            r"this machine's clock is -1(799|800) s off the intake's", outcome["error"]["message"]
        )
        assert outcome["dropped"] == {}
        saved = [path.read_text() for path in (tmp_path / "checkpoints").iterdir()]
        assert not any("file:" in text for text in saved)

        dry = project.run("xenna", "--json", **environment)
        [outcome] = json.loads(dry.stdout)["collectors"]
        assert outcome["dropped"] == {"in_future": 1}
        assert "by this machine's clock alone" in dry.stderr


# Names


def test_a_file_name_that_is_not_utf_8_is_lost_by_a_name_that_can_be_shown(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path)
    ticks.write(record(0, 100))
    folder = os.fsencode(tmp_path) + b"/d\xff"
    os.mkdir(folder)  # noqa: PTH102  # Path has no names of bytes
    os.close(os.open(folder + b"/b.jsonl", os.O_CREAT))
    assert len(named(ticks.tick(), "xenna.pipeline")) == 1
    assert ticks.tally.lost == [f"{tmp_path}/d\\xff/b.jsonl: its name is not UTF-8"]
    json.dumps(ticks.tally.lost).encode()
    ticks.tally.lost[0].encode()


@pytest.mark.slow
def test_names_that_are_not_utf_8_are_on_the_page_in_a_form_that_can_be_shown(tmp_path: Path) -> None:
    folder, now = os.fsencode(tmp_path / "records") + b"/d\xff", int(time.time())
    os.makedirs(folder)  # noqa: PTH103  # Path has no names of bytes
    Path(os.fsdecode(folder), "manifest.json").write_text("[")
    for name in ("a.jsonl", "segment-000001.jsonl"):
        line = json.dumps(record(0, NOW - now + 1800))
        Path(os.fsdecode(folder), name).write_text(f"{line}\n")
        (tmp_path / "records" / name).write_text(f"{line}\n")
    (tmp_path / "service").mkdir()
    project = Project(tmp_path / "service", {"DD_ENV": "test"})
    project.keep("xenna")
    project.keep("gpu_memory")
    paths = {f"FLEETGAUGE_{name}_PATHS": str(tmp_path / "records") for name in ("XENNA", "GPU_MEMORY")}
    page = tmp_path / "page.html"
    ran = project.run("xenna", "gpu_memory", "--since", "2h", "--html", str(page), **paths)
    assert ran.returncode == 1, ran.stderr
    assert "records/d\\xff/a.jsonl: its name is not UTF-8" in page.read_text(encoding="utf-8")
    assert "records/d\\xff/segment-000001.jsonl: its name is not UTF-8" in ran.stdout
    live = project.run("xenna", "gpu_memory", "--json", **paths)
    assert [one["status"] for one in json.loads(live.stdout)["collectors"]] == ["partial", "partial"]


def test_a_great_many_samples_of_one_file_are_marked_on_the_way_between_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MARK_EVERY", 4)
    ticks = Ticks(tmp_path)
    ticks.write(*(record(seq, 200 - seq // 2) for seq in range(14)))
    ticks.tick()
    seconds = [None if isinstance(item, Mark) else NOW - item.timestamp for item in ticks.items]
    first, second, third = [*[200] * 2, *[199] * 2], [*[198] * 2, *[197] * 2], [*[196] * 2, *[195] * 2]
    assert seconds[:18] == [*first, None, *second, None, *third, None, 194, 194, None]
