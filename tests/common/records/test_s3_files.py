"""Records in S3: found and read as the same files on disk, with few requests, whatever fails."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any

import pytest

from common.config.settings import CoreSettings
from common.records.files import ATTEMPTS, TOO_MANY, File, Files, reason
from common.records.reader import MAX_OPEN_OBJECTS, BackfillReader, read
from fleetgauge.records import Json
from support.bucket import NAME, Bucket
from support.servers.aws import Aws
from support.servers.faults import Fault

MB = 1 << 20
XML = {"Content-Type": "application/xml"}


@pytest.fixture
def bucket(aws: Aws) -> Bucket:
    return Bucket(aws)


def time_of(value: Json) -> float | None:
    return value.get("t")


def record(time: float, size: int = 0) -> bytes:
    """Return a line of about a size."""
    return json.dumps({"t": time, "x": "x" * (size - 30)}).encode() + b"\n"


def content_of(size: int, first: float, last: float) -> bytes:
    """Return lines of about `size` bytes, and times from `first` to `last`."""
    count = size // 1000
    return b"".join(record(first + (last - first) * number / count, 1000) for number in range(count))


def listed(bucket: Bucket) -> tuple[Files, list[File]]:
    files = Files(bucket.core, 0, 0)
    found = files.find([bucket.path("run/")])
    assert found.unreadable == []
    bucket.aws.requests.clear()
    return files, list(found.files.values())


def times(files: Files, found: list[File], since: float = 0, **options: Any) -> dict[str, list[float] | str]:
    """Return the times of each object, by its key, or why it is lost."""
    result: dict[str, list[float] | str] = {}
    for file, lines in read(files, [(file, since) for file in found], time_of, **options):
        try:
            found_times = [value["t"] for _, value, _ in lines if value]
        except FileNotFoundError:
            continue
        except OSError as error:
            result[file.path.removeprefix(f"s3://{NAME}/")] = reason(error)
        else:
            result[file.path.removeprefix(f"s3://{NAME}/")] = found_times
    return result


# Finding


NAMES = (
    *("run/a.jsonl", "run/b/c.jsonl.3.gz", "run/d.jsonl.2", "run/.h/e.jsonl", "runs/f.jsonl", "run/g.log"),
    *("run/.hidden.jsonl", "run/i.jsonl.bak", "run/j.json", "runs/f.000001.jsonl", "readme"),
)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("run/", {"run/a.jsonl", "run/b/c.jsonl.3.gz", "run/d.jsonl.2"}),
        ("run", {"run/a.jsonl", "run/b/c.jsonl.3.gz", "run/d.jsonl.2"}),
        ("run/a.jsonl", {"run/a.jsonl"}),
        ("r*/[ad].jsonl", {"run/a.jsonl", "run/d.jsonl.2"}),
        ("runs/f.jsonl", {"runs/f.jsonl", "runs/f.000001.jsonl"}),
        ("runs/f.json?", {"runs/f.jsonl", "runs/f.000001.jsonl"}),
        (
            "r*/",
            {"run/a.jsonl", "run/b/c.jsonl.3.gz", "run/d.jsonl.2", "runs/f.jsonl", "runs/f.000001.jsonl"},
        ),
        ("**/c.jsonl", {"run/b/c.jsonl.3.gz"}),
        ("run/**/c.jsonl", {"run/b/c.jsonl.3.gz"}),
        ("run/.h/*", {"run/.h/e.jsonl"}),
        ("run/b/**", {"run/b/c.jsonl.3.gz"}),
        ("run/[g-j].*", {"run/g.log", "run/i.jsonl.bak", "run/j.json"}),
        ("", {"run/a.jsonl", "run/b/c.jsonl.3.gz", "run/d.jsonl.2", "runs/f.jsonl", "runs/f.000001.jsonl"}),
        *((empty, set()) for empty in ("ru", "ru/", "run/x/*/y", "*/x.jsonl", "ru*/x", "{date}/x")),
    ],
)
def test_pattern_matches_what_it_matches_on_disk(
    bucket: Bucket, tmp_path: Path, pattern: str, expected: set[str]
) -> None:
    for name in (*NAMES, "run/", "run/marker/"):  # browsers of S3 make such objects for directories
        bucket.put(name, b"x")
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    in_s3 = Files(bucket.core, 0, 0).find([bucket.path(pattern)])
    on_disk = Files(CoreSettings(), 0, 0).find([f"{tmp_path}/{pattern}"])
    assert {path.removeprefix(f"s3://{NAME}/") for path in in_s3.files} == expected
    assert {path.removeprefix(f"{tmp_path}/") for path in on_disk.files} == expected
    assert [part.removeprefix(f"s3://{NAME}/") for part, _ in in_s3.unreadable] == [
        part.removeprefix(f"{tmp_path}/") for part, _ in on_disk.unreadable
    ]


def test_prefix_that_was_only_looked_for_is_listed_in_full(bucket: Bucket) -> None:
    for name in "ab":
        bucket.put(f"other/{name}.jsonl", b"x")
    found = Files(bucket.core, 0, 0).find([bucket.path("other/x*"), bucket.path("other/*.jsonl")])
    assert list(found.files) == [bucket.path("other/a.jsonl"), bucket.path("other/b.jsonl")]


def test_object_that_is_nested_too_deeply_is_lost_alone(bucket: Bucket) -> None:
    for name in ("run/a.jsonl", "run/" + "d/" * 500 + "a.jsonl"):
        bucket.put(name, b"x")
    found = Files(bucket.core, 0, 0).find([bucket.path("run/")])
    assert list(found.files) == [bucket.path("run/a.jsonl")]
    assert len(found.unreadable) == 1


def test_more_objects_than_the_limit_are_reported(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3000):
        bucket.put(f"run/{number:04d}.jsonl", b"")
    assert len(listed(bucket)[1]) == 3000
    monkeypatch.setattr("common.records.files.MAX_FILES", 1000)
    found = Files(bucket.core, 0, 0).find([bucket.path("run/*1*")])
    assert len(found.files) == 272  # of the first 1001 objects
    assert found.unreadable == [(bucket.path("run/*1*"), TOO_MANY)]


# Listings that fail


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("AccessDenied", 403, "S3 answers AccessDenied; the role needs the permissions of docs/iam"),
        ("NoSuchBucket", 404, "S3 answers NoSuchBucket"),
        ("PermanentRedirect", 301, "S3 answers PermanentRedirect; the bucket is in another region"),
        ("SlowDown", 503, "S3 answers SlowDown"),
    ],
)
def test_refused_listing_is_unreadable_for_a_reason(
    bucket: Bucket, code: str, status: int, expected: str
) -> None:
    headers = {**XML, "x-amz-bucket-region": "eu-west-1"}
    body = f"<Error><Code>{code}</Code></Error>"
    bucket.aws.faults.add(Fault(status=status, body=body, headers=headers), None)
    found = Files(bucket.core, 0, 0).find([bucket.path("run/")])
    [(path, why)] = found.unreadable
    assert path == bucket.path("run/")
    assert why.startswith(expected)
    assert found.files == {}


@pytest.mark.parametrize("body", ["", "<html>hello</html>", "<Other><Contents/></Other>"])
@pytest.mark.parametrize("pattern", ["run", "*/*.jsonl"])
def test_answer_that_is_no_listing_is_unreadable(bucket: Bucket, pattern: str, body: str) -> None:
    bucket.aws.faults.add(Fault(status=200, body=body, headers=XML), None)
    [(_, why)] = Files(bucket.core, 0, 0).find([bucket.path(pattern)]).unreadable
    assert why == "the answer is no listing of a bucket; check AWS_ENDPOINT_URL"


# Requests


@pytest.mark.parametrize("size", [MB // 2, 3 * MB, 30 * MB])
def test_object_that_grows_by_a_megabyte_per_tick_costs_two_requests(bucket: Bucket, size: int) -> None:
    seconds = 900 * size / MB
    bucket.put("run/a.jsonl", content_of(size, 100_000 - seconds, 100_000))
    files, found = listed(bucket)
    since = 100_000 - 2 * 900 - 61
    [result] = times(files, found, since).values()
    assert len(bucket.aws.requests) <= 2
    assert bucket.bytes_read() <= 3 * MB
    [everything] = times(files, found).values()
    assert [time for time in result if float(time) >= since] == [
        time for time in everything if float(time) >= since
    ]


def test_last_lines_cost_one_request(bucket: Bucket) -> None:
    bucket.put("run/a.jsonl", content_of(3 * MB, 0, 100) + record(100))
    bucket.put("run/b.jsonl.gz", gzip.compress(record(1) + record(2)))
    files, found = listed(bucket)
    assert [seconds[-1] for seconds in times(files, found, math.inf).values()] == [100, 2]
    assert [len(bucket.ranges(f"run/{name}")) for name in ("a.jsonl", "b.jsonl.gz")] == [1, 1]


@pytest.mark.parametrize("hours", [2, 24])
def test_windows_of_a_backfill_cost_about_two_passes(bucket: Bucket, hours: int) -> None:
    for name, size in (("a", 9 * MB), ("b", 2 * MB), ("c", MB // 4)):
        bucket.put(f"run/{name}.jsonl", content_of(size, 0, 3600 * hours))
    noise = Random(1)
    lines = [json.dumps({"t": time, "x": noise.randbytes(900).hex()}) for time in range(0, 3600 * hours, 10)]
    bucket.put("run/d.jsonl.gz", gzip.compress("\n".join([*lines, ""]).encode()))
    files, found = listed(bucket)
    expected = sorted(time for seconds in times(files, found).values() for time in seconds)
    requests, size = len(bucket.aws.requests), bucket.bytes_read()
    bucket.aws.requests.clear()
    backfill, seen = BackfillReader(), list[Any]()
    for since in range(0, 3600 * hours, 3600):
        for seconds in times(files, found, since, backfill=backfill, until=since + 3600).values():
            seen += [time for time in seconds if since <= float(time) < since + 3600]
    assert sorted(seen) == expected
    assert bucket.bytes_read() <= 2.2 * size
    assert len(bucket.aws.requests) <= 2.2 * requests


def test_objects_are_requested_eight_at_a_time(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.config.aws.READ_TIMEOUT", 600)
    for number in range(16):
        bucket.put(f"run/{number:02d}.jsonl", record(number))
    files, found = listed(bucket)
    all_started = Barrier(MAX_OPEN_OBJECTS)
    bucket.aws.on("read", lambda _: all_started.wait(50))
    assert times(files, found) == {f"run/{number:02d}.jsonl": [number] for number in range(16)}


# Objects that change or fail


def test_deleted_object_is_left_out_and_one_that_fails_is_lost_alone(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.config.aws.READ_TIMEOUT", 1)
    for name in ("deleted", "denied", "stalled", "good"):
        bucket.put(f"run/{name}.jsonl", record(1))
    files, found = listed(bucket)
    bucket.delete("run/deleted.jsonl")
    denied = Fault(status=403, body="<Error><Code>AccessDenied</Code></Error>")
    bucket.aws.faults.add(denied, None, match=f"/{NAME}/run/denied.jsonl")
    bucket.aws.faults.add(Fault(stall=True), None, match=f"/{NAME}/run/stalled.jsonl")
    result = times(files, found)
    assert str(result.pop("run/denied.jsonl")).startswith("S3 answers AccessDenied; the role needs")
    assert isinstance(result.pop("run/stalled.jsonl"), str)
    assert result == {"run/good.jsonl": [1]}
    bucket.aws.faults.clear()


def test_object_that_changed_since_it_was_listed_is_read_as_it_is(bucket: Bucket) -> None:
    bucket.put("run/a.jsonl", record(1) + record(2))
    bucket.put("run/b.jsonl", record(3))
    files, found = listed(bucket)
    bucket.put("run/a.jsonl", record(4))
    bucket.put("run/b.jsonl", record(3) + record(5))
    assert times(files, found) == {"run/a.jsonl": [4], "run/b.jsonl": [3, 5]}
    assert [request.method for request in bucket.aws.requests].count("HEAD") == 2


def test_object_that_is_replaced_while_it_is_read_is_lost(bucket: Bucket) -> None:
    bucket.put("run/a.jsonl", content_of(8 * MB, 0, 100_000))
    bucket.put("run/b.jsonl", record(1))
    files, found = listed(bucket)
    other = content_of(9 * MB, 50, 100_050)
    bucket.on_read(7, "run/a.jsonl", lambda: bucket.put("run/a.jsonl", other))
    result = times(files, found, 0)
    assert result == {"run/a.jsonl": "it was uploaded again while it was read", "run/b.jsonl": [1]}


@pytest.mark.parametrize(
    "fault",
    [Fault(truncate=True), Fault(status=503), Fault(reset="after")],
    ids=["cut", "slow down", "reset"],
)
def test_answer_that_breaks_off_is_requested_again(bucket: Bucket, fault: Fault) -> None:
    bucket.put("run/a.jsonl", record(1) + record(2))
    files, found = listed(bucket)
    bucket.aws.faults.add(fault, 2, match=f"/{NAME}/run/a.jsonl")
    assert times(files, found) == {"run/a.jsonl": [1, 2]}


@pytest.mark.parametrize(
    ("fault", "n_bytes"), [(Fault(truncate=True), 9), (Fault(status=200, body="x" * 99), 19)]
)
def test_answer_that_is_always_too_short_or_long_loses_the_object(
    bucket: Bucket, fault: Fault, n_bytes: int
) -> None:
    bucket.put("run/a.jsonl", record(1))
    files, found = listed(bucket)
    bucket.aws.faults.add(fault, None, match=f"/{NAME}/run/a.jsonl")
    assert times(files, found) == {"run/a.jsonl": f"S3 sent {n_bytes} of 18 bytes"}
    assert len(bucket.ranges()) == ATTEMPTS
