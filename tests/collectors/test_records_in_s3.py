"""The same files give the same points in S3 and on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.bucket import Bucket
from support.record_fleets import BEGIN, Disk, Shape, fleet, ticks_over
from support.record_runs import HOUR, Runs, differences
from support.servers.aws import Aws


@pytest.fixture
def bucket(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    return Bucket(aws)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("xenna", {"stage_run_hash": "false"}),
        *(
            pytest.param(kind, settings, marks=pytest.mark.slow)
            for kind, settings in (("xenna", {}), ("gpu_memory", {}), ("data_plane", {"tag_rank": "false"}))
        ),
    ],
    ids=repr,
)
def test_objects_give_the_points_of_files(
    kind: str, settings: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    made = fleet(kind, 3, Shape(seconds=4500, silence=1800), **settings)
    disk = Disk(made, tmp_path)
    on_disk = Runs(kind, tmp_path, settings)
    in_s3 = Runs(kind, tmp_path, {"paths": bucket.path(""), **settings}, core=bucket.core)
    for now in ticks_over(made):
        disk.advance(now)
        bucket.mirror(tmp_path)
        of_disk, of_s3 = on_disk.run(now), in_s3.run(now)
        assert differences(of_s3.sent, of_disk.sent) == []
        assert of_s3.report.dropped == of_disk.report.dropped
        assert len(of_s3.report.lost) == len(of_disk.report.lost)
    until = ticks_over(made)[-1] // HOUR * HOUR
    backfills = [runs.backfill(BEGIN, until, until + HOUR) for runs in (in_s3, on_disk)]
    assert backfills[0]
    assert differences(*backfills) == []
