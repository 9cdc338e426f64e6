"""A recording in object storage: what of it is brought here, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetgauge.gpu_memory import RecordingError, download
from support.record_objects import Bucket
from support.servers.aws import Aws


@pytest.fixture
def bucket(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    return Bucket(aws)


def brought(place: str) -> dict[str, str]:
    """The files of a place by their path below the temporary directory."""
    with download.at_hand(place) as path:
        files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
        return {str(one.relative_to(path.parent)): one.read_text() for one in files}


def test_all_of_a_place_is_brought_but_snapshots_directories_and_other_places(bucket: Bucket) -> None:
    for key in (
        "a/1.jsonl",
        "a/rank/0/1.jsonl",
        "a/rank/0/2.jsonl",
        "a/state.pickle",
        "a/rank/",
        "ab/1.jsonl",
    ):
        bucket.put_bytes(key, key.encode())
    files = {
        "a/1.jsonl": "a/1.jsonl",
        "a/rank/0/1.jsonl": "a/rank/0/1.jsonl",
        "a/rank/0/2.jsonl": "a/rank/0/2.jsonl",
    }
    assert brought("s3://records/a") == brought("s3://records/a/") == files
    assert brought("s3://records/a/rank/0/2.jsonl") == {"2.jsonl": "a/rank/0/2.jsonl"}
    everything = {**files, "ab/1.jsonl": "ab/1.jsonl"}
    assert brought("s3://records") == {f"records/{name}": text for name, text in everything.items()}


def test_a_place_on_disk_is_where_it_is(tmp_path: Path) -> None:
    with download.at_hand(str(tmp_path)) as path:
        assert path == tmp_path


def test_no_more_bytes_are_brought_than_allowed(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("a/1", "a/2", "a/3.pickle"):
        bucket.put_bytes(key, b"12345")
    monkeypatch.setattr(download, "MAX_BYTES", 10)
    assert brought("s3://records/a") == {"a/1": "12345", "a/2": "12345"}
    monkeypatch.setattr(download, "MAX_BYTES", 9)
    with pytest.raises(RecordingError, match="s3://records/a: it has more than the 9 bytes that this copies"):
        brought("s3://records/a")


def test_a_name_that_leads_out_of_its_directory_is_refused(bucket: Bucket) -> None:
    bucket.put_bytes("a/../../../../1", b"out")
    with pytest.raises(RecordingError, match=r"the name 'a/(\.\./){4}1' leads out of its directory"):
        brought("s3://records/a")


def test_of_a_place_that_holds_only_what_is_not_brought_it_is_said_that_nothing_is_there(
    bucket: Bucket,
) -> None:
    bucket.put_bytes("a/state.pickle", b"1")
    with pytest.raises(RecordingError, match="s3://records/a: nothing is there"):
        brought("s3://records/a")
