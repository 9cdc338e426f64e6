"""The xenna collector: how runs are now. What records become is in tests/data/records/xenna."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.record_folder import NOW, Folder, named, xenna
from support.record_runs import unreadable

RUN = ("pipeline_kind:curate", "run_hash:abc")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder("xenna", tmp_path)


def test_a_silent_run_is_stalled_and_an_ended_run_is_not_sent(folder: Folder) -> None:
    """A restarted run has the age of its newest record; the older form has no last record to wait for."""
    folder.write(xenna(0, 3000), xenna(1, 601))
    folder.write(xenna(0, 900, run_id="r2", run_hash="going"), to="b.jsonl")
    folder.write(xenna(0, 600, run_id="r3", run_hash="going"), to="c.jsonl")
    folder.write(xenna(0, 500, run_id="r4", run_hash="over", event="end", status="ok"), to="d.jsonl")
    folder.write({"timestamp": NOW - 3000, "run_hash": "plain", "metrics": {"progress": 5.0}}, to="e.jsonl")
    going, plain = ("pipeline_kind:curate", "run_hash:going"), ("run_hash:plain",)
    points = folder.short(folder.tick().sent)
    assert {key: value for key, value in points.items() if key[0].startswith("run") and not key[2]} == {
        ("run.last_record_age_seconds", RUN, 0): 601,
        ("run.stalled", RUN, 0): 1,
        ("run.last_record_age_seconds", going, 0): 600,
        ("run.stalled", going, 0): 0,
        ("run.last_record_age_seconds", plain, 0): 3000,
        ("runs.active", (), 0): 1,
    }


def test_the_age_of_a_run_is_sent_for_a_day_after_its_last_record(folder: Folder) -> None:
    path = folder.write(xenna(0, 700), modified=NOW - 700)
    later = NOW - 700 + 86_400
    ran = folder.tick(later)
    assert ran.sent["xenna.run.last_record_age_seconds", RUN, None, later] == 86_400
    assert ran.sent["xenna.run.stalled", RUN, None, later] == 1
    ran = folder.tick(later + 900)
    assert {name for name, *_ in ran.sent if name.startswith("xenna.run")} == {"xenna.runs.active"}
    path.unlink()
    assert folder.tick(later + 1800).sent["xenna.runs.active", (), None, later + 1800] == 0


@pytest.mark.parametrize(("lost", "known"), [("a.jsonl", {}), ("a.000001.jsonl", {(RUN, 0): 100})])
def test_the_age_of_a_run_is_unknown_where_its_newest_file_is_lost(
    folder: Folder, lost: str, known: dict[object, float]
) -> None:
    folder.write(xenna(0, 1000), to="a.000001.jsonl", modified=NOW - 1000)
    folder.write(xenna(1, 100))
    with unreadable([str(folder.path / lost)]):
        points = folder.short(folder.tick().sent)
    assert named(points, "run.last_record_age_seconds") == known
    assert named(points, "run.stalled").keys() == known.keys()


def test_sums_of_huge_integers_are_dropped_and_the_others_sent(tmp_path: Path) -> None:
    folder = Folder("xenna", tmp_path, stage_run_hash="false")
    huge = {"stage/a/queue_in": 17 * 10**307, "stage/b/queue_in": 1, "progress": float("nan")}
    folder.write(*(xenna(0, 100, huge, run_id=run) for run in ("r1", "r2")))
    points = named(folder.short(folder.tick().sent), "stage.queue_in")
    assert points[("pipeline_kind:curate", "stage:b"), 120] == 2
