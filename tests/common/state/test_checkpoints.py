"""Checkpoints in a directory and in S3: whole, durable, and moved by one run at a time."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from common.config.settings import ConfigurationFile, CoreSettings, load
from common.errors import BusyError, CheckpointError, ConfigurationError
from common.state.checkpoint import Saved, Store
from common.state.directory import DirectoryStore
from common.state.stores import store
from project import ROOT
from servers.aws import Aws
from servers.faults import Fault


def core(**environ: str) -> CoreSettings:
    return load(CoreSettings, None, environ=environ, file=ConfigurationFile())


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Either kind of store, empty."""
    if request.param == "directory":
        return DirectoryStore(tmp_path)
    aws: Aws = request.getfixturevalue("aws")
    aws.make_bucket("checkpoints")
    made = store(core(**aws.environment, FLEETGAUGE_CHECKPOINTS="s3://checkpoints/fleet"))
    assert made is not None
    return made


def test_what_is_saved_is_found_by_the_next_run(place: Store) -> None:
    with place.open("wandb") as checkpoint:
        assert checkpoint.saved == Saved({}, None)
        checkpoint.save(Saved({"a": 1}, 7))
        checkpoint.save(Saved({"a": 2, "b": [1]}, 8))
    assert place.peek("wandb") == Saved({"a": 2, "b": [1]}, 8)
    with place.open("wandb") as checkpoint:
        assert checkpoint.saved == Saved({"a": 2, "b": [1]}, 8)
        assert checkpoint.set_aside == 0
    assert place.peek("another") == Saved()


def test_keys_do_not_block_each_other(place: Store) -> None:
    with place.open("wandb") as one, place.open("wandb-backfill") as other:
        one.save(Saved({"a": 1}))
        other.save(Saved({"b": 1}))
    assert place.peek("wandb").state == {"a": 1}


def test_the_second_run_on_one_directory_is_told_who_holds_it(tmp_path: Path) -> None:
    place = DirectoryStore(tmp_path)
    with place.open("wandb"), pytest.raises(BusyError, match=f"held by process {os.getpid()} on "):
        place.open("wandb")
    with place.open("wandb"):
        pass


def test_a_run_that_died_holds_nothing(tmp_path: Path) -> None:
    code = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path; from common.state.directory import DirectoryStore\n"
        f"DirectoryStore(Path({str(tmp_path)!r})).open('wandb'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with DirectoryStore(tmp_path).open("wandb") as checkpoint:
        assert checkpoint.saved == Saved()


def test_files_are_for_this_user_only(tmp_path: Path) -> None:
    with DirectoryStore(tmp_path).open("wandb") as checkpoint:
        checkpoint.save(Saved({"a": 1}))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"wandb.json": 0o600, "wandb.lock": 0o600}


DAMAGED = {
    "empty": b"",
    "torn": b'{"version": 1, "sta',
    "not text": b"\xff\xfe\x00",
    "a list": b"[]",
    "another version": b'{"version": 2, "state": {}}',
    "no state": b'{"version": 1, "last_success": null}',
    "a foreign state": b'{"version": 1, "state": [1]}',
    "a foreign time": b'{"version": 1, "state": {}, "last_success": "now"}',
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_set_aside_and_counted(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "wandb.json").write_bytes(content)
    place = DirectoryStore(tmp_path)
    assert place.peek("wandb") == Saved()
    assert (tmp_path / "wandb.json").read_bytes() == content
    with place.open("wandb") as checkpoint:
        assert checkpoint.saved == Saved()
        assert checkpoint.set_aside == 1
        checkpoint.save(Saved({"a": 1}))
    [aside] = tmp_path.glob("*.bad")
    assert aside.read_bytes() == content
    assert "set aside as" in caplog.text
    assert place.peek("wandb").state == {"a": 1}


def test_a_directory_that_is_missing_or_none_at_all_is_a_matter_of_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist; create it"):
        DirectoryStore(tmp_path / "none").open("wandb")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="Not a directory; it must be writable"):
        DirectoryStore(tmp_path / "file").open("wandb")


def test_a_document_that_cannot_be_read_is_an_error_and_releases_the_lock(tmp_path: Path) -> None:
    (tmp_path / "wandb.json").mkdir()
    place = DirectoryStore(tmp_path)
    assert place.peek("wandb") == Saved()
    for _ in range(2):  # not BusyError: the lock was let go
        with pytest.raises(CheckpointError, match="Is a directory"):
            place.open("wandb")


def as_nobody(folder: Path, code: str) -> str:
    """What code says of a store that belongs to somebody else."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    program = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path; from common.state.directory import DirectoryStore\n"
        "from common.state.checkpoint import Saved\n"
        f"place = DirectoryStore(Path({str(folder)!r}))\n{code}"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    return ran.stderr.strip().splitlines()[-1]


def test_a_directory_of_somebody_else_is_a_matter_of_configuration(tmp_path: Path) -> None:
    said = as_nobody(tmp_path, "os.setuid(65534); place.open('wandb')")
    assert said.startswith("common.errors.ConfigurationError: cannot use the checkpoint directory")
    assert said.endswith("Permission denied; it must be writable for this user")


def test_a_directory_that_stops_being_writable_keeps_the_old_document(tmp_path: Path) -> None:
    with DirectoryStore(tmp_path).open("wandb") as checkpoint:
        checkpoint.save(Saved({"a": 1}))
    said = as_nobody(tmp_path, "held = place.open('wandb'); os.setuid(65534); held.save(Saved({'a': 2}))")
    assert said.startswith("common.errors.CheckpointError: cannot save the checkpoint")
    assert DirectoryStore(tmp_path).peek("wandb").state == {"a": 1}


def test_a_full_disk_keeps_the_old_document(tmp_path: Path) -> None:
    with DirectoryStore(tmp_path).open("wandb") as checkpoint:
        checkpoint.save(Saved({"a": 1}))
    code = (
        f"import resource, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path; from common.state.directory import DirectoryStore\n"
        "from common.state.checkpoint import Saved\n"
        f"held = DirectoryStore(Path({str(tmp_path)!r})).open('wandb')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))\n"
        "held.save(Saved({'a': 'x' * 1000}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"CheckpointError: cannot save the checkpoint {tmp_path}/wandb.json: File too large" in ran.stderr
    assert DirectoryStore(tmp_path).peek("wandb").state == {"a": 1}


def test_a_write_that_takes_only_a_part_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: whole(descriptor, content[:7]))
    with DirectoryStore(tmp_path).open("wandb") as checkpoint:
        checkpoint.save(Saved({"a": 1}))
    assert DirectoryStore(tmp_path).peek("wandb").state == {"a": 1}


def test_the_file_and_then_its_directory_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, os.rename

    def flushed(descriptor: int) -> None:
        events.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def renamed(*arguments: Any) -> None:
        events.append("rename")
        rename(*arguments)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "rename", renamed)
    with DirectoryStore(tmp_path).open("wandb") as checkpoint:
        checkpoint.save(Saved({"a": 1}))
    assert events == ["file", "rename", "directory"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_when_flushed_keeps_the_old_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with DirectoryStore(tmp_path).open("wandb") as checkpoint:
        checkpoint.save(Saved({"a": 1}))

        def broken(_: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(CheckpointError, match=os.strerror(number)):
            checkpoint.save(Saved({"a": 2}))
        assert checkpoint.saved.state == {"a": 1}
    assert DirectoryStore(tmp_path).peek("wandb").state == {"a": 1}


@pytest.fixture
def s3(aws: Aws) -> Store:
    aws.make_bucket("checkpoints")
    made = store(core(**aws.environment, FLEETGAUGE_CHECKPOINTS="s3://checkpoints/fleet/"))
    assert made is not None
    return made


def test_of_two_runs_on_one_object_exactly_one_advances(s3: Store) -> None:
    with s3.open("wandb") as one, s3.open("wandb") as other:
        one.save(Saved({"a": 1}))
        with pytest.raises(BusyError, match=f"was moved by process {os.getpid()} on "):
            other.save(Saved({"a": 2}))
        one.save(Saved({"a": 3}))
    assert s3.peek("wandb").state == {"a": 3}


def test_an_object_deleted_meanwhile_is_a_conflict(s3: Store, aws: Aws) -> None:
    with s3.open("wandb") as checkpoint:
        checkpoint.save(Saved({"a": 1}))
        client(aws).delete_object(Bucket="checkpoints", Key="fleet/wandb.json")
        with pytest.raises(BusyError, match="someone else"):
            checkpoint.save(Saved({"a": 2}))


def client(aws: Aws) -> Any:
    return boto3.client("s3", endpoint_url=aws.url, region_name="us-east-1")


def test_a_write_whose_answer_was_lost_is_recognised_as_our_own(s3: Store, aws: Aws) -> None:
    with s3.open("wandb") as checkpoint:
        checkpoint.save(Saved({"a": 1}))
        aws.faults.add(Fault(reset="after", applied=True))
        checkpoint.save(Saved({"a": 2}))
        checkpoint.save(Saved({"a": 3}))
    assert s3.peek("wandb").state == {"a": 3}


def test_s3_that_answers_503_keeps_the_old_document(s3: Store, aws: Aws) -> None:
    with s3.open("wandb") as checkpoint:
        checkpoint.save(Saved({"a": 1}))
        aws.faults.add(Fault(status=503), times=None)
        with pytest.raises(CheckpointError, match="cannot save the checkpoint s3://checkpoints/fleet/"):
            checkpoint.save(Saved({"a": 2}))
        aws.faults.clear()
        checkpoint.save(Saved({"a": 3}))
    assert s3.peek("wandb").state == {"a": 3}


def test_s3_that_cannot_be_read_is_an_error_and_an_empty_peek(s3: Store, aws: Aws) -> None:
    aws.faults.add(Fault(status=503), times=None)
    assert s3.peek("wandb") == Saved()
    with pytest.raises(CheckpointError, match="cannot read the checkpoint"):
        s3.open("wandb")
    aws.faults.clear()


def test_s3_that_breaks_the_connection_is_an_error_each_time(s3: Store, aws: Aws) -> None:
    with s3.open("wandb") as checkpoint:
        aws.faults.add(Fault(reset="before"), times=None)
        with pytest.raises(CheckpointError, match="cannot save the checkpoint"):
            checkpoint.save(Saved({"a": 1}))
        with pytest.raises(CheckpointError, match="cannot read the checkpoint"):
            s3.open("wandb")
        aws.faults.clear()
    client(aws).put_object(Bucket="checkpoints", Key="fleet/wandb.json", Body=b"garbage")
    aws.faults.add(Fault())
    aws.faults.add(Fault(reset="before"), times=None)
    with pytest.raises(CheckpointError, match="cannot set aside the checkpoint"):
        s3.open("wandb")
    aws.faults.clear()


def test_a_bucket_that_does_not_exist_is_a_matter_of_configuration(s3: Store, aws: Aws) -> None:
    place = store(core(**aws.environment, FLEETGAUGE_CHECKPOINTS="s3://no-such-bucket"))
    assert place is not None
    with pytest.raises(ConfigurationError, match=r"s3://no-such-bucket/wandb.json: NoSuchBucket; check the"):
        place.open("wandb")


def test_a_damaged_object_is_copied_aside_and_counted(s3: Store, aws: Aws) -> None:
    client(aws).put_object(Bucket="checkpoints", Key="fleet/wandb.json", Body=b"garbage")
    with s3.open("wandb") as checkpoint:
        assert checkpoint.saved == Saved()
        assert checkpoint.set_aside == 1
        checkpoint.save(Saved({"a": 1}))
    kept = client(aws).get_object(Bucket="checkpoints", Key="fleet/wandb.json.bad")["Body"].read()
    assert kept == b"garbage"
    assert s3.peek("wandb").state == {"a": 1}


def test_a_place_without_a_bucket_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="names no bucket; write s3://bucket/prefix"):
        store(core(FLEETGAUGE_CHECKPOINTS="s3://"))
    assert store(core()) is None


def test_a_document_says_who_wrote_it_and_never_twice_the_same() -> None:
    one, other = (json.loads(Saved({"a": 1}, 5).document()) for _ in range(2))
    assert one.pop("written_by") != other.pop("written_by")
    assert one == other == {"version": 1, "state": {"a": 1}, "last_success": 5}
