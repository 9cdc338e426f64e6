"""Records in object storage: read by range, once, as the same files on disk would be."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from threading import Event, Lock
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from collectors.gpu_memory.collector import COLLECTOR as GPU_MEMORY
from common.errors import ConfigurationError
from common.metric import Sample
from common.records import file, s3
from common.records.file import zstd
from common.records.storage import Found, Wanted
from common.records.storages import Files
from common.records.tail import NOT_THERE
from common.span import Span
from support import replay_writers
from support.record_fuzzer import KINDS, Kind, ticks_of
from support.record_objects import BUCKET, Bucket, ObjectTicks
from support.replays import BEGIN, Simulation, held, split
from support.servers.aws import Aws
from support.servers.faults import Fault
from support.servers.loopback import Request
from support.xenna_ticks import NOW, Points, named, record

RUN = ("pipeline_kind:curate", "run_hash:abc")


@pytest.fixture
def bucket(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    return Bucket(aws)


@pytest.fixture
def ticks(bucket: Bucket) -> ObjectTicks:
    return ObjectTicks(bucket.aws)


def progress(points: Points) -> list[int]:
    """How long ago the records were written whose points these are."""
    return sorted(NOW - at for _, _, at in named(points, "xenna.pipeline.progress"))


def lines(*agos: int) -> list[dict[str, Any]]:
    return [record(5000 - ago, ago) for ago in agos]


def test_an_object_that_grows_is_read_on_from_where_it_ended(bucket: Bucket, ticks: ObjectTicks) -> None:
    first = bucket.put("run/a.jsonl", *lines(500, 400))
    assert progress(ticks.tick()) == [400, 500]
    bucket.put("run/a.jsonl", *lines(500, 400, 300))
    assert progress(ticks.tick()) == [300]
    assert ticks.tally.lost == []
    assert len(first) < s3.BLOCK  # so that one request has it all
    assert len(bucket.read()) == 1


def test_of_a_large_object_only_its_beginning_and_what_is_new_is_read(
    bucket: Bucket, ticks: ObjectTicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "BLOCK", 1 << 16)
    old = lines(*range(1900, 500, -1))
    size = len(bucket.put("run/a.jsonl", *old))
    assert size > 2 * s3.BLOCK
    assert len(progress(ticks.tick())) == 1400
    whole = len(bucket.put("run/a.jsonl", *old, *lines(300)))
    assert progress(ticks.tick()) == [300]
    assert bucket.read() == [
        ("run/a.jsonl", "bytes=0-65535"),
        ("run/a.jsonl", f"bytes={size - 64}-{whole - 1}"),
    ]


def test_unchanged_objects_cost_their_line_in_the_listing_and_nothing_else(
    bucket: Bucket, ticks: ObjectTicks
) -> None:
    for number in range(5):
        bucket.put(f"run/{number}.jsonl", record(0, 500, run_id=str(number), run_hash=str(number)))
    assert len(progress(ticks.tick())) == 5
    bucket.aws.requests.clear()
    assert ticks.tick()["xenna.ingest.files", (), NOW] == 5
    assert [one.method for one in bucket.aws.requests] == ["GET"]
    assert "list-type=2" in bucket.aws.requests[0].target


def test_another_object_of_the_same_length_is_read_anew(bucket: Bucket, ticks: ObjectTicks) -> None:
    one = bucket.put("run/a.jsonl", record(0, 500, run_id="r1"), record(1, 400, run_id="r1"))
    assert progress(ticks.tick()) == [400, 500]
    other = bucket.put("run/a.jsonl", record(0, 300, run_id="r2"), record(1, 200, run_id="r2"))
    assert len(one) == len(other)
    assert progress(ticks.tick()) == [200, 300]


def test_an_object_with_the_same_first_line_and_another_past_is_read_anew(
    bucket: Bucket, ticks: ObjectTicks
) -> None:
    bucket.put("run/a.jsonl", *lines(500, 400))
    ticks.tick()
    bucket.put("run/a.jsonl", *lines(500), record(9, 350, run_id="r9", run_hash="9"), *lines(300))
    assert progress(ticks.tick()) == [300, 350]


@pytest.mark.parametrize(
    ("suffix", "compress", "damage"),
    [(".gz", gzip.compress, "corrupt_gzip"), (".zst", zstd.compress, "corrupt_zstd")],
    ids=["gzip", "zstd"],
)
def test_a_compressed_object_is_read_whole_when_it_changes_and_nothing_is_taken_twice(
    bucket: Bucket, ticks: ObjectTicks, suffix: str, compress: Any, damage: str
) -> None:
    name = f"run/a.jsonl{suffix}"
    plain = bucket.put("run/other", *lines(500, 400))
    bucket.put_bytes(name, compress(plain))
    assert progress(ticks.tick()) == [400, 500]
    bucket.aws.requests.clear()
    assert progress(ticks.tick()) == []
    assert bucket.read() == []
    bucket.put_bytes(name, compress(plain + bucket.put("run/other", *lines(300))))
    assert progress(ticks.tick()) == [300]
    assert ticks.tally.dropped == {}
    bucket.put_bytes(name, compress(plain)[:-8] + b"garbage, where a checksum of it all would stand")
    assert progress(ticks.tick()) == []
    assert ticks.tally.dropped == {damage: 1}
    assert ticks.tally.lost == []


def test_what_expands_to_more_than_memory_holds_is_read_in_portions(
    bucket: Bucket, ticks: ObjectTicks
) -> None:
    first, last = bucket.put("run/other", *lines(200)), bucket.put("run/other", *lines(100))
    content = first + bytes(50_000_000) + last
    bucket.put_bytes("run/a.jsonl.zst", zstd.compress(content))
    tracemalloc.start()
    assert progress(ticks.tick()) == [100, 200]
    assert tracemalloc.get_traced_memory()[1] < 40_000_000
    tracemalloc.stop()
    assert ticks.tally.dropped == {"nul_hole": 1}


def test_what_asks_for_more_memory_than_usual_to_be_decompressed_is_refused(
    bucket: Bucket, ticks: ObjectTicks
) -> None:
    content = bucket.put("run/other", *lines(200))
    for power in (file.MAX_WINDOW, file.MAX_WINDOW + 1):
        stream = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: power})
        bucket.put_bytes(f"run/{power}.jsonl.zst", stream.compress(content) + stream.flush())
    assert progress(ticks.tick()) == [200]
    assert ticks.tally.dropped == {"corrupt_zstd": 1}


def test_an_object_that_is_gone_when_it_is_read_is_no_loss(bucket: Bucket, ticks: ObjectTicks) -> None:
    bucket.put("run/a.jsonl", *lines(500))
    bucket.put("run/b.jsonl", record(0, 400, run_id="r2", run_hash="b"))

    def vanish(request: Request) -> None:
        if "list-type" in request.target:
            moto = bucket.aws.moto_client("s3")
            moto.delete_object(Bucket=BUCKET, Key="run/a.jsonl")
            moto.close()

    bucket.aws.on("applied", vanish)
    assert progress(ticks.tick()) == [400]
    assert ticks.tally.lost == []


def test_objects_that_rotate_or_vanish_lose_and_repeat_nothing(bucket: Bucket, ticks: ObjectTicks) -> None:
    bucket.put("run/a.jsonl", *lines(500, 400))
    assert progress(ticks.tick()) == [400, 500]
    bucket.put("run/a.000001.jsonl", *lines(500, 400, 350))
    bucket.put("run/a.jsonl", *lines(300))
    assert progress(ticks.tick()) == [300, 350]
    bucket.delete("run/a.000001.jsonl")
    bucket.delete("run/a.jsonl")
    assert progress(ticks.tick()) == []
    assert ticks.tally.lost == []


def test_an_unfinished_last_line_waits(bucket: Bucket, ticks: ObjectTicks) -> None:
    whole = bucket.put("run/a.jsonl", *lines(500, 400))
    bucket.put_bytes("run/a.jsonl", whole[:-10])
    assert progress(ticks.tick()) == [500]
    bucket.put_bytes("run/a.jsonl", whole)
    assert progress(ticks.tick()) == [400]


def opened(bucket: Bucket, content: bytes, offset: int) -> s3.Object:
    """An object as it is opened to be read on from an offset."""
    bucket.put_bytes("run/a.jsonl", content)
    storage = s3.S3Storage(ObjectTicks(bucket.aws).core, 10)
    found = Found()
    storage.find(f"s3://{BUCKET}/run/", found)
    [(path, status)] = found.files.items()
    [(_, made)] = storage.opened([Wanted(path, status, offset)])
    assert isinstance(made, s3.Object)
    return made


def test_where_reading_goes_on_far_behind_the_beginning_a_block_from_there_is_held(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "LOOK", 4096)
    monkeypatch.setattr(s3, "BLOCK", 5000)
    monkeypatch.setattr(s3, "MAX_BLOCK", 6000)
    content = Random(1).randbytes(20_000)
    opened(bucket, content, 5000 + file.TAIL)
    assert bucket.read() == [("run/a.jsonl", "bytes=0-4999")]
    one = opened(bucket, content, 5001 + file.TAIL)
    held_now = [("run/a.jsonl", "bytes=0-4095"), ("run/a.jsonl", "bytes=5001-10000")]
    assert bucket.read() == held_now
    held = [(0, 4096), (4095, 1), (0, 0), (5001, 5000), (10_000, 1), (5001, 0)]
    assert [one.at(*place) for place in held] == [content[at : at + size] for at, size in held]
    assert one.at(15_000, 0) == b""
    assert bucket.read() == held_now
    others = [(4095, 2), (5000, 1), (10_000, 2), (19_999, 1)]
    assert [one.at(*place) for place in others] == [content[at : at + size] for at, size in others]
    asked = [("run/a.jsonl", f"bytes={at}-{at + size - 1}") for at, size in others]
    assert bucket.read() == sorted([*held_now, *asked])
    read, bucket.aws.requests[:] = [], []
    while part := one.read(3000):
        read.append(part)
    assert b"".join(read) == content
    assert [len(part) for part in read] == [3000, 1096, 3000, 3000, 3000, 3000, 3000, 904]
    assert [ranges for _, ranges in bucket.read()] == [
        "bytes=10096-16095",
        "bytes=16096-19999",
        "bytes=4096-10095",
    ]
    one.seek(19_999)
    assert (one.read(5), one.read(5)) == (content[-1:], b"")


# Patterns


def test_the_date_in_a_pattern_is_today_and_yesterday(bucket: Bucket) -> None:
    ticks = ObjectTicks(bucket.aws, f"s3://{BUCKET}/{{date}}/**/*.jsonl")
    for number in range(4):
        day = datetime.fromtimestamp(NOW - 86400 * number, UTC).date()
        more: dict[str, Any] = {"run_id": str(number), "run_hash": str(number)}
        bucket.put(f"{day}/deep/{number}.jsonl", record(0, 100 + number, **more))
    assert progress(ticks.tick()) == [100, 101]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("run/", {"run/a.jsonl", "run/b/c.jsonl.gz", "run/d.jsonl.2"}),
        ("run", {"run/a.jsonl", "run/b/c.jsonl.gz", "run/d.jsonl.2"}),
        ("run/a.jsonl", {"run/a.jsonl"}),
        ("r*/[ad].jsonl", {"run/a.jsonl", "run/d.jsonl.2"}),
        ("**/c.jsonl", {"run/b/c.jsonl.gz"}),
        ("run/.h/*", {"run/.h/e.jsonl"}),
        ("", {"run/a.jsonl", "run/b/c.jsonl.gz", "run/d.jsonl.2", "runs/f.jsonl"}),
    ],
)
def test_a_pattern_stands_for_what_it_would_on_disk(
    bucket: Bucket, pattern: str, expected: set[str], tmp_path: Path
) -> None:
    names = (
        "run/a.jsonl",
        "run/b/c.jsonl.gz",
        "run/d.jsonl.2",
        "run/.h/e.jsonl",
        "runs/f.jsonl",
        "run/g.log",
    )
    for name in names:
        bucket.put_bytes(name, b"x")
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    objects = Files(ObjectTicks(bucket.aws).core).find([f"s3://{BUCKET}/{pattern}"]).files
    assert {path.removeprefix(f"s3://{BUCKET}/") for path in objects} == expected
    local = Files().find([f"{tmp_path}/{pattern}"]).files
    assert {path.removeprefix(f"{tmp_path}/") for path in local} == expected


def test_more_objects_than_may_be_listed_make_the_run_partial(bucket: Bucket) -> None:
    ticks = ObjectTicks(bucket.aws, max_objects="3")
    for number in range(3):
        more: dict[str, Any] = {"run_id": str(number), "run_hash": str(number)}
        bucket.put(f"run/{number}.jsonl", record(0, 100 + number, **more))
    assert progress(ticks.tick()) == [100, 101, 102]
    assert ticks.tally.lost == []
    bucket.put("run/3.jsonl", record(0, 103, run_id="3", run_hash="3"))
    assert progress(ticks.tick()) == [103]
    assert ticks.tally.lost == [
        f"s3://{BUCKET}/run/: there are more than 3 objects; narrow it, or raise MAX_OBJECTS"
    ]


def test_of_more_objects_than_may_be_as_many_are_listed_and_it_is_said(bucket: Bucket) -> None:
    ticks = ObjectTicks(bucket.aws, max_objects="1000")
    bucket.fill(dict.fromkeys((f"run/{number:05d}.jsonl" for number in range(999)), b""))
    bucket.put("run/a.jsonl", *lines(100))
    ticks.tick()
    assert ticks.tally.lost == []
    bucket.put("run/a.jsonl", *lines(100, 90))
    bucket.fill({"run/b.jsonl": b"", "run/c.jsonl": b""})
    points = ticks.tick()
    assert progress(points) == [90]
    assert points["xenna.ingest.files", (), NOW] == 1002
    [lost] = ticks.tally.lost
    assert "there are more than 1000 objects" in lost
    assert [key for key, _ in bucket.read()] == ["run/a.jsonl"]


# What goes wrong


def test_a_prefix_with_nothing_below_it_is_lost_and_one_before_a_wildcard_too(bucket: Bucket) -> None:
    bucket.put("other/a.jsonl", *lines(100))
    bucket.put("gone-elsewhere/a.jsonl", *lines(100))
    for path, shown in ((f"s3://{BUCKET}/gone/x.jsonl", "gone/x.jsonl"), (f"s3://{BUCKET}/gone/*/x", "gone")):
        ticks = ObjectTicks(bucket.aws, path)
        bucket.aws.requests.clear()
        ticks.tick()
        assert len(bucket.aws.requests) == 1
        [lost] = ticks.tally.lost
        why = "it is not there; where that is normal, write a wildcard in the path"
        assert lost == f"s3://{BUCKET}/{shown}: {why}"
    ticks = ObjectTicks(bucket.aws, f"s3://{BUCKET}/*/x.jsonl")
    ticks.tick()
    assert ticks.tally.lost == []


@pytest.mark.parametrize("path", ["othe", "othe/", "othe/*.jsonl", "othe/**/*.jsonl", "othe*/../x"])
def test_a_path_that_only_begins_another_name_is_not_there(bucket: Bucket, path: str) -> None:
    bucket.put("other/a.jsonl", *lines(100))
    ticks = ObjectTicks(bucket.aws, f"s3://{BUCKET}/{path}")
    points = ticks.tick()
    if path.startswith("othe*"):  # a wildcard says that it may be absent
        assert (ticks.tally.lost, points["xenna.runs.active", (), NOW]) == ([], 0)
    else:
        assert [one.partition(": ")[2] for one in ticks.tally.lost] == [NOT_THERE]
        assert named(points, "xenna.runs.") == {}


@pytest.mark.parametrize("body", ["", "<html>hello</html>", "<Other><Contents/></Other>"])
@pytest.mark.parametrize("path", ["run", "*/*.jsonl"])
def test_a_stranger_that_answers_the_listing_has_not_said_that_there_is_nothing(
    bucket: Bucket, path: str, body: str
) -> None:
    bucket.put("run/a.jsonl", *lines(100))
    ticks = ObjectTicks(bucket.aws, f"s3://{BUCKET}/{path}")
    ticks.tick()
    bucket.aws.faults.add(Fault(status=200, body=body, headers={"Content-Type": "application/xml"}), None)
    points = ticks.tick()
    assert named(points, "xenna.runs.") == {}
    [lost] = ticks.tally.lost
    assert lost.endswith(": the answer is no listing of a bucket; check AWS_ENDPOINT_URL")
    bucket.aws.faults.clear()


def test_of_an_object_that_is_sent_whole_no_more_is_taken_than_was_asked_for(bucket: Bucket) -> None:
    content = bucket.put_bytes("run/a.jsonl", Random(1).randbytes(3 * s3.BLOCK))
    storage, found = s3.S3Storage(ObjectTicks(bucket.aws).core, 10), Found()
    storage.find(f"s3://{BUCKET}/run/", found)
    bucket.aws.faults.add(Fault(status=200, body=content), None, match=f"/{BUCKET}/run/a.jsonl")
    [(path, status)] = found.files.items()
    [(_, made)] = storage.opened([Wanted(path, status, 0)])
    assert isinstance(made, OSError)
    assert made.strerror == f"S3 sent {s3.BLOCK + 1} of {s3.BLOCK} bytes"
    bucket.aws.faults.clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("AccessDenied", 403, "access is denied; the role needs s3:ListBucket"),
        ("NoSuchBucket", 404, "there is no such bucket"),
        ("PermanentRedirect", 301, "the bucket is in another region; set AWS_REGION"),
        ("InvalidAccessKeyId", 403, "the AWS credentials are not valid"),
        ("SlowDown", 503, "S3 asks to slow down"),
    ],
)
def test_a_listing_that_is_refused_is_lost_in_words_and_an_error_of_the_check(
    bucket: Bucket, ticks: ObjectTicks, code: str, status: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
    headers = {"Content-Type": "application/xml", "x-amz-bucket-region": "eu-west-1"}
    bucket.aws.faults.add(Fault(status=status, body=body, headers=headers), None)
    points = ticks.tick()
    assert named(points, "xenna.runs") == {}
    [lost] = ticks.tally.lost
    assert said in lost
    [error, *_] = ticks.collector.check(ticks.context())
    assert isinstance(error, ConfigurationError)
    assert said in str(error)


def test_without_credentials_the_error_says_what_to_do(
    bucket: Bucket, ticks: ObjectTicks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    ticks.tick()
    [lost] = ticks.tally.lost
    assert "no AWS credentials were found; give the pod a role" in lost


def test_what_cannot_be_listed_may_be_a_directory(bucket: Bucket) -> None:
    bucket.put("run/a.jsonl", *lines(100))
    storage = s3.S3Storage(ObjectTicks(bucket.aws).core, 10)
    paths = [f"s3://{BUCKET}/{path}" for path in ("run", "run/", "run/a.jsonl", "ru", "run/*.jsonl")]
    assert [storage.is_directory(path) for path in paths] == [True, True, False, False, False]
    bucket.aws.faults.add(Fault(status=403, body="<Error><Code>AccessDenied</Code></Error>"), None)
    denied = s3.S3Storage(ObjectTicks(bucket.aws).core, 10)
    assert [denied.is_directory(path) for path in paths] == [True, True, True, True, False]
    bucket.aws.faults.clear()


def test_an_object_that_is_denied_is_lost_and_the_others_are_read(bucket: Bucket, ticks: ObjectTicks) -> None:
    bucket.put("run/a.jsonl", *lines(500))
    bucket.put("run/b.jsonl", record(0, 400, run_id="r2", run_hash="b"))
    denied = Fault(status=403, body="<Error><Code>AccessDenied</Code></Error>")
    bucket.aws.faults.add(denied, None, match=f"/{BUCKET}/run/a.jsonl")
    assert progress(ticks.tick()) == [400]
    [lost] = ticks.tally.lost
    assert lost.startswith(f"s3://{BUCKET}/run/a.jsonl: access is denied")
    bucket.aws.faults.clear()
    assert progress(ticks.tick()) == [500]


@pytest.mark.parametrize(
    "fault",
    [Fault(truncate=True), Fault(status=503), Fault(reset="after")],
    ids=["cut", "slow down", "reset"],
)
def test_an_answer_that_breaks_off_is_asked_for_again(
    bucket: Bucket, ticks: ObjectTicks, fault: Fault
) -> None:
    bucket.put("run/a.jsonl", *lines(500, 400))
    bucket.aws.faults.add(fault, 2, match=f"/{BUCKET}/run/a.jsonl")
    assert progress(ticks.tick()) == [400, 500]
    assert ticks.tally.lost == []


def test_an_answer_that_always_breaks_off_loses_the_object_and_marks_nothing_of_it(
    bucket: Bucket, ticks: ObjectTicks
) -> None:
    bucket.put("run/a.jsonl", *lines(500, 400))
    bucket.aws.faults.add(Fault(truncate=True), None, match=f"/{BUCKET}/run/a.jsonl")
    assert progress(ticks.tick()) == []
    assert len(ticks.tally.lost) == 1
    assert len(bucket.read()) == s3.ATTEMPTS
    bucket.aws.faults.clear()
    assert progress(ticks.tick()) == [400, 500]


def replaced(bucket: Bucket, on: int, content: bytes) -> list[str]:
    """Upload an object again when so many reads of it were asked for; the ranges that were."""
    ranges: list[str] = []

    def change(request: Any) -> None:
        if request.headers["If-Match"]:
            ranges.append(request.headers["Range"])
            if len(ranges) == on:
                moto = bucket.aws.moto_client("s3")
                moto.put_object(Bucket=BUCKET, Key="run/a.jsonl", Body=content)
                moto.close()

    bucket.aws.on("read", change)
    return ranges


def test_an_object_that_changes_between_the_listing_and_reading_is_read_as_it_is_then(
    bucket: Bucket, ticks: ObjectTicks
) -> None:
    longer = bucket.put("run/other", *lines(500, 400))
    bucket.put("run/a.jsonl", *lines(500))
    ranges = replaced(bucket, 1, longer)
    assert progress(ticks.tick()) == [400, 500]
    assert len(ranges) == 2
    assert ticks.tally.lost == []


def test_an_object_that_changes_while_it_is_read_is_read_on_in_the_next_tick(
    bucket: Bucket, ticks: ObjectTicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "BLOCK", 5000)
    longer = bucket.put("run/other", *lines(*range(500, 400, -1)))
    bucket.put("run/a.jsonl", *lines(*range(500, 450, -1)))
    replaced(bucket, 2, longer)
    first = progress(ticks.tick())
    assert 0 < len(first) < 50
    assert ticks.tally.lost == []
    assert sorted(first + progress(ticks.tick())) == list(range(401, 501))


def test_an_answer_that_does_not_come_is_given_up_and_the_others_are_read(
    bucket: Bucket, ticks: ObjectTicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.config.aws.READ_TIMEOUT", 0.3)
    bucket.put("run/a.jsonl", *lines(500))
    bucket.put("run/b.jsonl", record(0, 400, run_id="r2", run_hash="b"))
    bucket.aws.faults.add(Fault(stall=True), None, match=f"/{BUCKET}/run/a.jsonl")
    assert progress(ticks.tick()) == [400]
    [lost] = ticks.tally.lost
    assert lost.startswith(f"s3://{BUCKET}/run/a.jsonl: the answer broke off")
    bucket.aws.faults.clear()
    assert progress(ticks.tick()) == [500]


def test_at_most_eight_objects_are_fetched_at_once(
    bucket: Bucket, ticks: ObjectTicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.config.aws.READ_TIMEOUT", 600)
    agos = range(100, 112)
    for ago in agos:
        bucket.put(f"run/{ago}.jsonl", record(0, ago, run_id=str(ago), run_hash=str(ago)))
    lock, eight, under_way, most = Lock(), Event(), 0, 0

    def begin(request: Request) -> None:
        nonlocal under_way, most
        if request.headers["Range"]:
            with lock:
                under_way += 1
                most = max(most, under_way)
                if under_way == s3.MAX_AT_ONCE:
                    eight.set()
            eight.wait(50)

    def end(request: Request) -> None:
        nonlocal under_way
        if request.headers["Range"]:
            with lock:
                under_way -= 1

    bucket.aws.on("read", begin)
    bucket.aws.on("applied", end)
    assert progress(ticks.tick()) == list(agos)
    assert most == 8


def test_who_leaves_waits_for_no_answer(
    bucket: Bucket, ticks: ObjectTicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.config.aws.READ_TIMEOUT", 600)
    for name in ("a", "b"):
        bucket.put(f"run/{name}.jsonl", *lines(100))
    storage, found = s3.S3Storage(ticks.core, 10), Found()
    storage.find(f"s3://{BUCKET}/run/", found)
    left, answered = Event(), Event()

    def hold(request: Request) -> None:
        if request.path.endswith("b.jsonl"):
            left.wait(20)
            answered.set()

    bucket.aws.on("read", hold)
    wanted = [Wanted(path, status, 0) for path, status in sorted(found.files.items())]
    first, _ = next(storage.opened(wanted))  # and leaves, as nobody holds what would go on
    assert first.endswith("a.jsonl")
    assert not answered.is_set()
    left.set()
    assert answered.wait(20)


def test_the_check_tells_how_many_objects_there_are_and_what_the_newest_holds(
    bucket: Bucket, ticks: ObjectTicks
) -> None:
    bucket.put("run/a[1].jsonl", *lines(500, 400))
    said = f"s3://{BUCKET}/run/: 1 files; in the newest, s3://{BUCKET}/run/a[1].jsonl: 2 records of xenna"
    assert list(ticks.collector.check(ticks.context())) == [said]


def test_records_that_are_uploaded_too_late_are_said_with_the_command_that_sends_them(
    bucket: Bucket, ticks: ObjectTicks, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.put("run/a.jsonl", *lines(4500, 4000, 100))
    assert progress(ticks.tick()) == [100]
    assert ticks.tally.dropped == {"too_old": 2}
    span = "--since 2026-11-15T23:31:40Z --until 2026-11-15T23:40:01Z"
    assert f"to send them: run_collector.py xenna {span} --push --yes" in caplog.text


def test_a_backfill_lists_the_days_of_its_span_and_sends_what_live_ticks_sent(bucket: Bucket) -> None:
    ticks = ObjectTicks(bucket.aws, f"s3://{BUCKET}/{{date}}/*.jsonl")
    for number, ago in enumerate((300, 200, 100)):
        day = datetime.fromtimestamp(NOW - ago, UTC).date()
        more: dict[str, Any] = {"run_id": str(number), "run_hash": str(number)}
        bucket.put(f"{day}/{number}.jsonl", *(record(n, ago - n, **more) for n in range(50)))
    live = named(ticks.tick(), "xenna.pipeline")
    assert len(live) == 150
    ticks.now, ticks.state = NOW + 5 * 86400, {}
    assert ticks.collector.backfill is not None
    again = ticks.collector.backfill(ticks.context(), Span(NOW - 900, NOW, 900))
    sent = {
        (item.metric.name, item.tags, item.timestamp): item.value
        for item in again()
        if isinstance(item, Sample)
    }
    assert sent == live


@pytest.mark.parametrize("place", ["sinks", "{date}"])
def test_sinks_manifests_and_dumps_are_found_in_s3_as_on_disk(
    bucket: Bucket, tmp_path: Path, place: str
) -> None:
    today = datetime.fromtimestamp(NOW, UTC)
    folder = tmp_path / place.format(date=today.date())
    shutil.copytree(Path(__file__).parents[2] / "data" / "stormlog", folder)
    dump = folder / f"oom_dump_{datetime.fromtimestamp(NOW - 60, UTC):%Y%m%dT%H%M%SZ}_1"
    dump.mkdir()
    (dump / "events.json").write_text("[]")
    bucket.mirror(folder, folder.name)
    in_s3 = ObjectTicks(bucket.aws, f"s3://{BUCKET}/{place}", GPU_MEMORY)
    on_disk = ticks_of(KINDS[1], tmp_path / place)
    points, expected = in_s3.tick(), on_disk.tick()
    assert points == expected
    assert points["gpu_memory.oom_dumps_24h", (), NOW] == 1
    assert points["gpu_memory.sessions", ("status:completed",), NOW] > 0
    assert in_s3.tally.lost == on_disk.tally.lost


# The same as on disk

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "rotate", "tick"]), st.integers(0, 2), st.integers(1, 60)
    ),
    min_size=4,
    max_size=14,
)
TAGGED = {"xenna": "stage_run_hash", "gpu_memory": "tag_job_id", "data_plane": "tag_rank"}


def about_the_source(points: Points) -> Points:
    """All but what tells how the reading went."""
    return {key: value for key, value in points.items() if ".ingest." not in key[0]}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.collector.name)
@given(steps=STEPS, tagged=st.booleans(), chance=st.integers(0, 99))
@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # making a failure smaller takes minutes
    suppress_health_check=list(HealthCheck),
)
def test_the_same_files_give_the_same_points_on_disk_and_in_s3(
    bucket: Bucket, kind: Kind, steps: list[tuple[str, int, int]], tagged: bool, chance: int
) -> None:
    random, collector = Random(chance), kind.collector
    prefix, segments = f"p{random.getrandbits(60):x}", [1, 1, 1]
    setting = {TAGGED[collector.name]: str(tagged)}
    with tempfile.TemporaryDirectory() as name:
        local = ticks_of(kind, Path(name), **setting)
        objects = ObjectTicks(bucket.aws, f"s3://{BUCKET}/{prefix}/", collector, **setting)
        local.now = objects.now = NOW - 1500
        for number, (what, writer, seconds) in enumerate([("write", 0, 1), *steps, ("tick", 0, 99)]):
            numbered = collector is GPU_MEMORY
            where = f"{writer}/segment-{segments[writer]:06d}.jsonl" if numbered else f"{writer}.jsonl"
            local.now = objects.now = local.now + seconds
            if what == "write":
                late = local.now - random.choice((0, 2))
                local.write(kind.make(f"r{writer}", number, late), to=where)
            elif what == "rotate" and numbered:
                segments[writer] += 1
            elif what == "rotate" and (path := Path(name, where)).exists():
                path.rename(path.with_suffix(f".{number:06d}.jsonl"))
            elif what == "tick":
                bucket.mirror(Path(name), prefix)
                assert about_the_source(objects.tick()) == about_the_source(local.tick())
        assert named(objects.points, kind.metric)
        assert objects.tally.lost == []


@pytest.mark.parametrize(
    "write", [replay_writers.xenna, replay_writers.gpu_memory, replay_writers.data_plane]
)
def test_a_backfill_from_s3_sends_what_live_ticks_sent_from_disk(
    bucket: Bucket, tmp_path: Path, write: Callable[..., Simulation]
) -> None:
    simulation = write(tmp_path, Random(7), rivals=False)
    bucket.mirror(tmp_path, "run")
    settings = simulation.settings.model_copy(update={"paths": (f"s3://{BUCKET}/run/",)})
    core = ObjectTicks(bucket.aws).core
    context = replace(simulation.context(simulation.now, {}), network=core, settings=settings)
    assert simulation.collector.backfill is not None
    again = simulation.collector.backfill(context, Span(BEGIN, simulation.now - 300, 900))
    expected = simulation.live_in(BEGIN, simulation.now - 300)
    assert held(split(again())[0]) == expected
    assert len(expected) > 50
