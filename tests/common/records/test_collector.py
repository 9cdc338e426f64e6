"""What collectors over records share: which window a run answers for, late data, copies, losses, figures."""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import tracemalloc
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.xenna.collector import XennaSettings
from common.errors import ConfigurationError
from common.records.collector import MAX_STEP, record_window
from common.records.files import Content, Disk, File
from common.times import iso
from common.window import Window
from support.record_folder import MAKERS, NOW, Folder, event, named, operations, outstanding, xenna
from support.record_runs import unreadable

RUN = ("pipeline_kind:curate", "run_hash:abc")
CALLS = ("job:ants", "op:put", "partition_id:p", "rank:0")
TIMEOUT = 600  # seconds of a run
LATER = NOW + 900  # the run after the one at NOW

each_kind = pytest.mark.parametrize("kind", MAKERS)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder("xenna", tmp_path)


@pytest.fixture
def calls(tmp_path: Path) -> Folder:
    """A folder of the data plane, whose operations add up."""
    return Folder("data_plane", tmp_path)


def progress(folder: Folder, now: int = NOW) -> dict[int, float]:
    """Run once; return the progress of the run `abc` by seconds before NOW."""
    points = named(folder.short(folder.run(now).sent), "pipeline.progress")
    return {ago: value for (tags, ago), value in points.items() if tags == RUN}


# Which window


def window_of(now: int, step: int, sent_until: int | None, earliest: int, settle: int, width: int) -> Window:
    settings = XennaSettings.model_construct(
        paths=(), settle=settle, aggregate_interval=width, stage_run_hash=False
    )
    return record_window(settings, now, step, sent_until, earliest)


steps = st.integers(60, 900)
settles = st.integers(0, 300)
widths = st.integers(1, 300)


@given(steps, settles, widths, st.lists(st.floats(0, 0.999), min_size=2, max_size=6), st.booleans())
def test_windows_of_runs_follow_each_other_whatever_their_delay(
    step: int, settle: int, width: int, delays: list[float], has_state: bool
) -> None:
    sent_until, windows = None, []
    for number, delay in enumerate(delays):
        now = (NOW // step + number) * step + int(delay * step)
        window = window_of(now, step, sent_until, now + TIMEOUT - 3600, settle, width)
        assert window.since % width == window.until % width == 0
        assert window.since <= window.until <= now - settle
        sent_until = window.until if has_state else None
        windows.append(window)
    assert [one.until for one in windows[:-1]] == [one.since for one in windows[1:]]


def test_a_step_that_is_too_long_for_the_intake_is_refused() -> None:
    window_of(NOW, MAX_STEP, None, NOW - 3000, 60, 60)
    with pytest.raises(ConfigurationError, match="FLEETGAUGE_STEP"):
        window_of(NOW, MAX_STEP + 1, None, NOW - 3000, 60, 60)


@pytest.mark.parametrize(
    ("setting", "back"),
    [({}, 1800), ({"stage_run_hash": "false"}, 1800), ({"lookback": "10m"}, 600), ({"lookback": "1h"}, 2940)],
)
def test_gauges_are_sent_again_for_the_lookback_and_never_too_old(
    tmp_path: Path, setting: dict[str, str], back: int
) -> None:
    folder = Folder("xenna", tmp_path, store=False, **setting)
    ages = range(70, 3600, 10)
    folder.write(*(xenna(number, ago, {"progress": ago}) for number, ago in enumerate(reversed(ages))))
    expected = max(960, back + 60)  # at least what was never sent
    assert set(progress(folder)) == {ago for ago in ages if ago <= expected}


# Late data


def test_a_silent_large_file_that_goes_on_is_sent_from_where_it_stopped(folder: Folder) -> None:
    ages = [900, *range(890, 690, -10), *range(660, -1440, -60)]  # from 660 on, they are in the lookback
    records = [xenna(number, ago, padding="x" * 60_000) for number, ago in enumerate(ages)]
    folder.write(*records[:1], modified=NOW - 900)
    folder.tick()
    folder.write(*records[1:], modified=NOW + 1700)
    assert folder.tick(NOW + 1800).report.lost == []
    assert {ago for (_, ago) in named(folder.short(folder.points), "pipeline.progress")} == {*ages}


def test_a_new_file_that_could_not_be_read_is_sent_from_its_start(folder: Folder) -> None:
    folder.tick()
    path = folder.write(xenna(0, 100), modified=NOW - 50)
    with unreadable([str(path)]):
        assert len(folder.tick(NOW + 30).report.lost) == 1
    assert progress(folder, NOW + 1800) == {100: 50.0}


def test_of_an_idle_file_only_the_last_record_is_read(folder: Folder) -> None:
    folder.write(xenna(0, 2050), xenna(1, 2000), modified=NOW - 2000)
    assert progress(folder, NOW + 900) == {}
    ran = folder.ran[-1]
    assert ran.report.lost == []
    assert ran.sent["xenna.run.last_record_age_seconds", RUN, None, ran.now] == 2900


@each_kind
def test_records_too_late_to_be_sent_are_named_with_the_command(kind: str, tmp_path: Path) -> None:
    folder = Folder(kind, tmp_path)
    make = MAKERS[kind]
    path = folder.write(make("a", 0, NOW - 900), modified=NOW - 900)
    for now in range(NOW, NOW + 3600, 900):
        assert folder.tick(now).report.lost == []
    name = str(path.relative_to(tmp_path))
    folder.write(make("a", 5, NOW - 800), make("a", 6, NOW + 3500), to=name, modified=NOW + 3500)
    ran = folder.tick(NOW + 3600)
    span = f"--since {iso(NOW - 800)} --until {iso(NOW - 799)}"
    [lost] = ran.report.lost
    assert lost.startswith(f"{path}: at least 1 records were written too late")
    assert lost.endswith(f"run_collector.py {kind} {span} --push --yes")
    assert folder.tick(NOW + 4500).report.lost == []  # it is named once


def test_late_records_of_a_killed_run_are_named_by_the_next_run(folder: Folder) -> None:
    folder.write(xenna(0, 900), modified=NOW - 900)
    folder.tick()
    folder.write(*(xenna(n, 900 - 100 * n) for n in range(1, 30)), modified=NOW + 2650)
    folder.run(NOW + 2700, lambda _: 2)
    ran = folder.tick(NOW + 3600)
    assert ran.window.since == NOW + 600  # it is too late for what the killed run began with
    assert f"--since {iso(NOW - 800)}" in ran.report.lost[0]


@each_kind
def test_a_record_from_1970_is_dropped_and_not_late(kind: str, tmp_path: Path) -> None:
    folder = Folder(kind, tmp_path)
    folder.tick()
    folder.write(MAKERS[kind]("a", 5, 60), MAKERS[kind]("a", 6, NOW + 500), modified=NOW + 510)
    report = folder.tick(LATER).report
    assert (report.lost, report.dropped) == ([], {"bad_timestamp": 1})


def test_records_of_a_file_that_was_listed_empty_are_late(calls: Folder) -> None:
    calls.tick()
    calls.write(modified=NOW + 890)
    assert calls.tick(LATER).report.lost == []
    calls.write(operations(0, 100), modified=NOW + 910)
    [lost] = calls.tick(LATER + 900).report.lost
    assert "a.jsonl: at least 1 records were written too late" in lost


def test_a_rotated_file_is_not_late_whatever_its_writer_called_it(calls: Folder) -> None:
    for active, rotated in (
        ("a.r1.jsonl", "a.r1.000001.jsonl"),
        ("b.jsonl", "b.r2.000001.jsonl"),
        ("c.jsonl", "c.jsonl.20261115"),
        ("d.jsonl", "d.jsonl-20261115"),
        ("e.jsonl", "e.jsonl.2026-11-15"),
    ):
        calls.write(*(operations(number, 900 - number) for number in range(800)), to=active)
        calls.tick()
        calls.write(operations(800, 50), to=active, modified=NOW)
        (calls.path / active).rename(calls.path / rotated)
        calls.write(operations(801, -10), to=active, modified=NOW + 10)
        assert calls.tick(LATER).report.lost == []


@pytest.mark.parametrize("name", ["a.812345.jsonl", "a.jsonl.71234"])
def test_a_new_file_named_after_its_job_or_process_is_sent(folder: Folder, name: str) -> None:
    folder.write(xenna(0, 100))
    folder.tick()
    folder.write(xenna(0, 1500, run_id="r2"), to=name, modified=NOW + 800)
    assert set(progress(folder, LATER)) == {1500, 100}


@pytest.mark.parametrize("is_lost", [False, True])
def test_only_new_records_are_late_after_a_directory_was_missing(calls: Folder, is_lost: bool) -> None:
    folder, away = calls.path / "sub", calls.path.parent / "away"
    calls.write(operations(0, 900), operations(1, 100), to="sub/a.jsonl")
    calls.write(operations(0, 900, rank=1), to="b.jsonl")
    calls.tick()
    if is_lost:
        with unreadable([str(folder)]):
            [lost] = calls.tick(LATER).report.lost
        assert lost.startswith(f"{folder}: Permission denied")
    else:
        folder.rename(away)
        assert calls.tick(LATER).report.lost == []
        away.rename(folder)
    calls.write(operations(2, 50), operations(3, -700), to="sub/a.jsonl", modified=NOW + 700)
    [late] = calls.tick(LATER + 900).report.lost
    assert "/sub/a.jsonl: at least 2 records were written too late" in late


def test_a_file_that_goes_on_a_week_later_is_not_late(calls: Folder) -> None:
    week = 7 * 86_400
    calls.write(operations(0, 100), modified=NOW - 90)
    for now in (NOW, NOW + 900, NOW + week - 900):
        calls.tick(now)
    calls.write(operations(1, 200 - week), modified=NOW + week - 190)
    ran = calls.tick(NOW + week)
    assert ran.report.lost == []
    assert ran.sent["data_plane.ops", CALLS, None, NOW + week - 200] == 1


def test_the_command_for_late_sums_sends_complete_buckets(tmp_path: Path) -> None:
    folder = Folder("data_plane", tmp_path, tag_rank="false")
    late = [operations(number, 125 - 10 * number) for number in range(7)]
    folder.write(*late[:1])
    folder.write(*(operations(number, 120 - 10 * number, run_id="r2") for number in range(6)), to="b.jsonl")
    folder.tick()
    folder.write(*late[1:])
    [lost] = folder.tick(LATER).report.lost
    since, until = (datetime.fromisoformat(text).timestamp() for text in re.findall(r"20\S+Z", lost))
    points = folder.backfill(int(since), int(until), LATER)
    assert list(named(folder.short(points), "ops").values()) == [12]


def test_records_that_come_late_are_measured_and_the_setting_is_named(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    assert ("xenna.ingest.lag_seconds", (), None, NOW) not in folder.tick().sent
    folder.write(xenna(0, 100), modified=NOW - 40)
    assert folder.tick().sent["xenna.ingest.lag_seconds", (), None, NOW] == 60
    assert caplog.text == ""
    folder.write(xenna(0, 100, run_id="r2"), to="b.jsonl", modified=NOW - 39)
    assert folder.tick().sent["xenna.ingest.lag_seconds", (), None, NOW] == 61
    assert "raise FLEETGAUGE_XENNA_SETTLE or FLEETGAUGE_XENNA_LOOKBACK" in caplog.text
    assert caplog.text.count("b.jsonl") == 1


@pytest.mark.parametrize(
    "memory", [5, [], {"a": 1}, {"a": [1]}, {"a": ["x", None]}, {"a": [-1, 2]}, {"a": [1e99, 5]}]
)
def test_a_memory_that_is_damaged_is_as_good_as_none(folder: Folder, memory: Any) -> None:
    folder.write(xenna(0, 100))
    folder.tick()
    folder.damage_memory(memory)
    assert progress(folder, NOW + 900) == {100: 50.0}
    assert folder.ran[-1].report.lost == []


# Skew


def test_records_from_the_future_wait_or_are_dropped(folder: Folder) -> None:
    folder.write(xenna(0, 100), xenna(1, -599), xenna(2, -601), modified=NOW)
    ran = folder.tick()
    assert [ago for _, ago in named(folder.short(ran.sent), "pipeline.progress")] == [100]
    assert ran.report.dropped == {}
    assert set(progress(folder, NOW + 900)) == {100, -599}
    assert folder.ran[-1].report.dropped == {"in_future": 1}


# Adding up


def test_of_two_values_at_one_time_that_of_the_later_line_is_sent(folder: Folder) -> None:
    more = {"progress": 1.0, "num_outputs": 5}
    folder.write(xenna(0, 110, more), xenna(1, 100, more), xenna(2, 100))
    assert progress(folder) == {110: 1.0, 100: 50.0}


def test_sums_of_a_backfill_are_not_sent_where_a_unit_was_lost(calls: Folder) -> None:
    calls.write(operations(0, 100), outstanding(1, 100, {"p": 1}))
    lost = calls.write(operations(0, 100, rank=1), to="b.jsonl")
    whole = calls.short(calls.backfill(NOW - 3600, NOW, NOW))
    assert len(named(whole, "ops")) == 2
    with unreadable([str(lost)]):
        part = calls.short(calls.backfill(NOW - 3600, NOW, NOW))
    assert named(part, "ops") == {}
    assert named(part, "keys_outstanding") == named(whole, "keys_outstanding")
    assert any(str(lost) in one for one in calls.ran[-1].report.lost)


@pytest.mark.parametrize("interval", ["60", "420", "900"])
def test_a_backfill_sends_complete_buckets_wherever_its_windows_end(tmp_path: Path, interval: str) -> None:
    folder = Folder("data_plane", tmp_path, tag_rank="false", aggregate_interval=interval)
    folder.write(*(operations(number, 9000 - 10 * number) for number in range(900)))
    points = folder.backfill(NOW - 7950, NOW - 1110, NOW)
    buckets = named(folder.short(points), "ops")
    assert set(buckets.values()) == {int(interval) // 10}
    oldest, newest = max(ago for _, ago in buckets), min(ago for _, ago in buckets)
    assert 0 <= oldest - 7950 < int(interval)
    assert 0 <= newest - int(interval) - 1110 < int(interval)


# Damage


def test_damage_is_counted_in_the_first_run_that_reads_it(folder: Folder) -> None:
    folder.write(xenna(0, 110, {"progress": 1.0, "odd": 5}), b"{", xenna(1, 100, {"progress": float("nan")}))
    folder.write(xenna(2, 95, kind="data_plane"), xenna(3, 90, event="odd"), modified=NOW - 1)
    first, second = folder.tick(), folder.tick(NOW + 900)
    assert first.report.dropped == {"unknown_metric": 1, "not_json": 1, "not_finite": 1, "not_a_record": 1}
    assert second.report.dropped == {}
    names = ("records", "bad_records", "other_kind")
    for ran, expected in ((first, [2, 2, 1]), (second, [0, 0, 0])):
        assert [ran.sent[f"xenna.ingest.{name}", (), None, ran.now] for name in names] == expected
    assert progress(folder, NOW + 900) == {110: 1.0}


def test_damage_behind_records_that_have_not_settled_waits_with_them(folder: Folder) -> None:
    folder.write(xenna(0, 100), xenna(1, 30), b"{", xenna(2, 29, kind="bees"))
    folder.write(b"{", xenna(0, 30, run_id="r2"), to="b.jsonl")  # as old as its file
    names = ("records", "bad_records", "other_kind")
    for now, expected, dropped in ((NOW, [1, 0, 0], {}), (NOW + 900, [2, 2, 1], {"not_json": 2})):
        ran = folder.tick(now)
        assert [ran.sent[f"xenna.ingest.{name}", (), None, now] for name in names] == expected
        assert ran.report.dropped == dropped


@pytest.mark.parametrize("padding", ["", "x" * 150_000])
def test_records_from_the_future_end_no_window_of_a_backfill(folder: Folder, padding: str) -> None:
    ages = [*range(3000, 2900, -10), *range(2000, 1900, -10)]
    lines = [xenna(number, ago, padding=padding) for number, ago in enumerate(ages)]
    future = [xenna(number, -90_000, run_id="r2") for number in range(500)]
    folder.write(*lines[:10], *future, xenna(9, -90_000, padding=padding), *lines[10:], modified=NOW - 1000)
    points = folder.backfill(NOW - 3600, NOW, NOW)
    assert {ago for _, ago in named(folder.short(points), "pipeline.progress")} == {*ages}
    assert folder.ran[-1].report.dropped == {"in_future": 501}
    assert folder.ran[-1].report.lost == []


def test_dropped_lines_can_be_traced_to_file_and_byte(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    long = {"x" * 1000: "x", f"stage/{'x' * 1000}/queue_in": "x"}
    path = folder.write(xenna(0, 100), *[b"{"] * 30, xenna(1, 90, {"odd": "x" * 500}), xenna(2, 80, long))
    start = len(json.dumps(xenna(0, 100))) + 1
    ran = folder.tick()
    assert ran.report.examples["not_json"] == f"{path}@{start}"
    assert ran.report.examples["unknown_metric"].startswith(f"{path}@{start + 60}: odd is 'xxx")
    assert len(ran.report.examples["unknown_metric"]) < len(str(path)) + 120
    traced = [line for line in caplog.messages if line.endswith(": not_json")]
    assert traced == [f"dropped {path}@{start + 2 * number}: not_json" for number in range(20)]
    assert max(map(len, (*caplog.messages, *ran.report.examples.values()))) < len(str(path)) + 300


def test_bad_lines_are_counted_in_bounded_memory(folder: Folder) -> None:
    folder.write(*[xenna(0, 100, run_id=[*range(20_000)])] * 50, xenna(1, 90))
    tracemalloc.start()
    try:
        assert folder.tick().report.dropped == {"not_a_record": 50}
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


# Which files


@each_kind
def test_a_path_that_does_not_exist_is_lost_and_the_others_are_read(kind: str, tmp_path: Path) -> None:
    folder = Folder(kind, tmp_path, paths=f"{tmp_path}/a, {tmp_path}/gone/, {tmp_path}/gone-*/x.jsonl")
    folder.write(MAKERS[kind]("old", 5, NOW - 900), to="a/b/segment-000001.jsonl", modified=NOW - 900)
    newest = folder.write(MAKERS[kind]("w", 5, NOW - 100), b"{", to="a/segment-000001.jsonl")
    ran = folder.tick()
    assert ran.sent[f"{kind}.ingest.records", (), None, NOW] == 2
    [lost] = ran.report.lost
    assert lost.startswith(f"{tmp_path}/gone")
    assert "it does not exist" in lost
    error, *counted = folder.check()
    assert counted[0] == f"{tmp_path}/a: 2 files; the newest is {newest}"
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith(f"FLEETGAUGE_{kind.upper()}_PATHS: cannot read {tmp_path}/gone")


@each_kind
def test_a_path_where_every_record_is_of_another_kind_is_lost(kind: str, tmp_path: Path) -> None:
    folder = Folder(kind, tmp_path, paths=f"{tmp_path}/a,{tmp_path}/b")
    foreign = {"schema_version": 1, "kind": "bees", "event": "stats", "run_id": "r", "timestamp": NOW - 100}
    folder.write(*({**foreign, "seq": seq} for seq in range(3)), to="a/segment-000001.jsonl")
    folder.write(MAKERS[kind]("w", 5, NOW - 100), {**foreign, "seq": 0}, to="b/segment-000001.jsonl")
    ran = folder.tick()
    [lost] = ran.report.lost
    assert lost.startswith(f"{tmp_path}/a")
    assert f"all 3 records there are of another kind than {kind}; check FLEETGAUGE_" in lost
    assert ran.sent[f"{kind}.ingest.other_kind", (), None, NOW] == 4
    assert ran.report.dropped == {}


BAD = {
    "damaged": b"{",
    "another version": xenna(9, 100, schema_version=2),
    "without a time": xenna(9, 100, timestamp=None),
    "in the future": xenna(9, -5000),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("good", [(), (xenna(0, 1100), xenna(1, 1090))], ids=["no record", "older records"])
def test_a_file_whose_last_lines_are_all_bad_is_lost_and_not_present(
    tmp_path: Path, good: tuple[dict[str, Any], ...], bad: bytes | dict[str, Any], compressed: bool
) -> None:
    folder = Folder("xenna", tmp_path)
    folder.write(xenna(0, 100, run_id="r2", run_hash="b"), b"{", xenna(1, 90, run_id="r2", run_hash="b"))
    path = folder.write(*good, *[bad] * 20, to="bad.jsonl")
    folder.write(xenna(0, 1050, run_id="r3", run_hash="c"), to="bad.000001.jsonl", modified=NOW - 1040)
    if compressed:
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        os.utime(f"{path}.gz", (NOW, NOW))
        path.unlink()
    for now in (NOW, LATER, NOW + 6 * 3600):  # the last time it is idle
        ran = folder.tick(now)
        [lost] = ran.report.lost
        assert lost.startswith(f"{path}")
        assert "its last 20 lines cannot be used" in lost or now > LATER
        points = folder.short(ran.sent)
        assert named(points, "runs.active") == {}
        assert [tags for tags, _ in named(points, "run.last_record_age_seconds")] == [
            ("pipeline_kind:curate", "run_hash:b")
        ]
    assert folder.ran[0].sent["xenna.ingest.bad_records", (), None, NOW] == 21
    assert len(named(folder.short(folder.ran[0].sent), "pipeline.progress")) == 3 + len(good)


def test_bad_lines_among_good_ones_cost_only_themselves(folder: Folder) -> None:
    folder.write(*[b"{"] * 9, xenna(0, 100), *[b"{"] * 9, xenna(1, 90), *[b"{"] * 9, modified=NOW - 70)
    ran = folder.tick()
    assert (ran.report.lost, ran.report.dropped) == ([], {"not_json": 27})
    assert ran.sent["xenna.runs.active", (), None, NOW] == 1
    folder.write(b"[]", modified=NOW + 300)  # counted although no record of this window precedes it
    assert folder.tick(LATER).report.dropped["not_an_object"] == 1


@each_kind
def test_a_backfill_loses_a_file_of_bad_lines_once(kind: str, tmp_path: Path) -> None:
    folder = Folder(kind, tmp_path)
    folder.write(MAKERS[kind]("w", 5, NOW - 5000), to="a/segment-000001.jsonl", modified=NOW - 5000)
    good = MAKERS[kind]("w", 6, NOW - 5000)
    lost = [
        str(folder.write(*lines, *[b"{"] * 5, to=f"{len(lines)}/segment-000001.jsonl", modified=NOW - 100))
        for lines in ((), (good,))
    ]
    folder.backfill(NOW - 7200, NOW, NOW + 3600)
    assert [one.partition(": ")[0] for ran in folder.ran for one in ran.report.lost] == lost


def test_a_file_of_bad_lines_that_nobody_watches_is_lost_once(calls: Folder) -> None:
    calls.write(*[b"{"] * 5, modified=NOW - 100)
    assert [len(calls.tick(now).report.lost) for now in (NOW, LATER)] == [1, 0]


@pytest.mark.parametrize(("ago", "lost"), [(100, 1), (5000, 0)], ids=["with new records", "idle"])
def test_of_files_deleted_since_they_were_listed_the_new_are_lost(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, ago: int, lost: int
) -> None:
    """Writers may delete a file an hour after its last record."""
    path, open_file = folder.write(xenna(0, ago), modified=NOW - ago), Disk.open
    folder.write(xenna(1, 90, run_hash="b"), to="b.jsonl")

    def delete_and_open(disk: Disk, file: File) -> Content:
        path.unlink(missing_ok=True)
        return open_file(disk, file)

    monkeypatch.setattr(Disk, "open", delete_and_open)
    ran = folder.tick()
    assert [one.partition(": ")[0] for one in ran.report.lost] == [str(path)] * lost
    assert [ago for _, ago in named(folder.short(ran.sent), "pipeline.progress")] == [90]


@pytest.mark.parametrize(("bad", "lost"), [(1, 0), (2, 1)])
def test_one_bad_line_after_a_silence_costs_itself(folder: Folder, bad: int, lost: int) -> None:
    folder.write(xenna(0, 2000), *[b"{"] * bad, modified=NOW - 90)
    report = folder.tick().report
    assert (len(report.lost), report.dropped) == (lost, {"not_json": bad})


@each_kind
def test_a_compressed_copy_of_a_file_changes_no_point(kind: str, tmp_path: Path) -> None:
    folders = [Folder(kind, tmp_path / name) for name in ("single", "copied")]
    alerts = [event(90, kind="warning"), event(80, kind="peak")] if kind == "gpu_memory" else []
    for folder in folders:
        path = folder.write(*(MAKERS[kind]("w", number, NOW - 100 + number) for number in range(5)), *alerts)
    compressed = Path(f"{path}.gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(compressed, (NOW, NOW))
    single, copied = (folder.points_at() for folder in folders)
    assert single == copied != {}


def test_a_dry_run_after_a_push_calls_nothing_late_that_was_sent(calls: Folder) -> None:
    for now in (NOW - 1300, NOW - 1200):  # so that the next window does not begin at a multiple of the step
        calls.tick(now)
    calls.write(operations(0, 1100), modified=NOW)
    assert calls.tick(NOW + 100).report.lost == []
    assert calls.dry_run(NOW + 100).lost == []


def test_a_date_in_a_path_stands_for_the_days_of_the_window(tmp_path: Path) -> None:
    folder = Folder("xenna", tmp_path, paths=f"{tmp_path}/{{date}}/*.jsonl")
    for day in range(13, 17):  # NOW is 01:00 of the 16th
        at = NOW - (16 - day) * 86_400
        folder.write(xenna(day, NOW - at + 100, {"progress": day}), to=f"2026-11-{day}/a.jsonl", modified=at)
    ran = folder.tick()
    assert ran.sent["xenna.ingest.files", (), None, NOW] == 2
    assert progress(folder) == {100: 16}
    points = folder.short(folder.backfill(NOW - 3 * 86_400, NOW, NOW))
    days = {ago // 86_400: value for (_, ago), value in named(points, "pipeline.progress").items()}
    assert days == {0: 16, 1: 15, 2: 14}
