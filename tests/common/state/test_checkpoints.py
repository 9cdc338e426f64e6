"""Checkpoints in a directory and in S3: whole, durable, and moved by one run at a time."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.config.file import ConfigurationFile
from common.config.settings import CoreSettings, load
from common.errors import BusyError, CheckpointError, ConfigurationError
from common.state.checkpoint import Saved, Store
from common.state.directory import DirectoryStore
from common.state.stores import store
from support.project import ROOT
from support.requirements import skip_without
from support.servers.aws import Aws
from support.servers.faults import Fault


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


def test_a_success_stays_until_the_next_and_a_key_is_forgotten_by_nothing(place: Store) -> None:
    with place.open("wandb") as checkpoint:
        checkpoint.change({"a": 1, "b": 2}, 7)
        checkpoint.change({"a": None, "c": 3})
        assert checkpoint.saved == Saved({"b": 2, "c": 3}, 7)
        checkpoint.change({}, 9)
    assert place.peek("wandb") == Saved({"b": 2, "c": 3}, 9)


def test_documents_are_found_by_how_their_names_begin(place: Store) -> None:
    for key in ("wandb-slot-01", "wandb-slot-02", "wandb", "xenna-slot-01"):
        with place.open(key) as checkpoint:
            checkpoint.save(Saved({"a": 1}))
    assert sorted(place.names("wandb-slot-")) == ["wandb-slot-01", "wandb-slot-02"]
    assert [*place.names("host-")] == []


def test_what_changed_since_it_was_written_is_written_anew() -> None:
    first = Saved({"a": [1], "b": None}, 7)
    assert Saved.parse(first.document().decode()) == first
    later = replace(first, state={"a": [2], "b": 3, "c": None})
    assert Saved.parse(later.document().decode()) == later


def test_keys_do_not_block_each_other(place: Store) -> None:
    with place.open("wandb") as one, place.open("wandb-backfill") as other:
        one.save(Saved({"a": 1}))
        other.save(Saved({"b": 1}))
    assert place.peek("wandb").state == {"a": 1}


def test_the_second_run_on_one_directory_is_told_who_holds_it(tmp_path: Path) -> None:
    place = DirectoryStore(tmp_path)
    told = f"the checkpoint wandb is held by process {os.getpid()} on .*; this run leaves the work to it"
    with place.open("wandb"), pytest.raises(BusyError, match=told):
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
    "a time before all time": b'{"version": 1, "state": {}, "last_success": -1}',
    "a time that is true": b'{"version": 1, "state": {}, "last_success": true}',
    "a time that is none": b'{"version": 1, "state": {}, "last_success": NaN}',
    "a time with a fraction": b'{"version": 1, "state": {}, "last_success": 1794786458.5}',
    "the end of time": b'{"version": 1, "state": {}, "last_success": Infinity}',
    "a time in milliseconds": b'{"version": 1, "state": {}, "last_success": 1794786458000}',
    "an enormous time": b'{"version": 1, "state": {}, "last_success": 1' + b"0" * 400 + b"}",
    "a time with too many digits": b'{"version": 1, "state": {}, "last_success": 1' + b"0" * 5000 + b"}",
    "nested too deep to read": b'{"version": 1, "state": ' + b'{"a":' * 100_000,
    "an offset that no file has": b'{"version": 1, "state": {"a": [9223372036854775808]}}',
    "nested too deep to write": b'{"version": 1, "state": {"a":' + b"[" * 33 + b"]" * 33 + b"}}",
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


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_object_is_set_aside_like_a_file(s3: Store, aws: Aws, content: bytes) -> None:
    client(aws).put_object(Bucket="checkpoints", Key="fleet/wandb.json", Body=content)
    assert s3.peek("wandb") == Saved()
    with s3.open("wandb") as checkpoint:
        assert (checkpoint.saved, checkpoint.set_aside) == (Saved(), 1)
        checkpoint.save(Saved({"a": 1}))
    assert s3.peek("wandb").state == {"a": 1}


def test_a_clock_that_was_a_little_ahead_is_no_damage(tmp_path: Path) -> None:
    soon = int(time.time()) + 3600
    with DirectoryStore(tmp_path).open("wandb") as checkpoint:
        checkpoint.save(Saved({"deep": [[[{"a": 1}]]]}, soon))
    assert DirectoryStore(tmp_path).peek("wandb") == Saved({"deep": [[[{"a": 1}]]]}, soon)


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, -(2**63)])
def test_a_number_that_a_run_can_have_written_is_read(number: int) -> None:
    text = json.dumps({"version": 1, "state": {"at": number}, "last_success": 0})
    assert Saved.parse(text) == Saved({"at": number}, 0)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ({"state": {"at": 2**63}}, "a number that no run has written"),
        ({"state": {"at": -(2**63) - 1}}, "a number that no run has written"),
        ({"state": {}, "last_success": -1}, "a last success that cannot be"),
        ({"state": {}, "last_success": True}, "a last success that cannot be"),
        ({"state": []}, "a checkpoint without a state"),
        ({"state": {}, "version": 2}, "not a checkpoint of version 1"),
    ],
)
def test_another_document_is_none_of_ours(content: dict[str, object], wrong: str) -> None:
    with pytest.raises(ValueError, match=f"^{wrong}$"):
        Saved.parse(json.dumps({"version": 1, "last_success": None, **content}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
DOCUMENTS = st.fixed_dictionaries(
    {"version": st.just(1) | JSON, "state": st.dictionaries(st.text(), JSON) | JSON, "last_success": JSON}
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary() | DOCUMENTS.map(lambda document: json.dumps(document).encode()))
def test_whatever_a_document_holds_it_is_used_or_set_aside_and_can_be_written(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("store")
    (folder / "wandb.json").write_bytes(content)
    place = DirectoryStore(folder)
    peeked = place.peek("wandb")
    with place.open("wandb") as checkpoint:
        found = checkpoint.saved
        assert repr(found) == repr(peeked)  # NaN is not itself
        assert checkpoint.set_aside == len(list(folder.glob("*.bad")))
        assert checkpoint.set_aside == 0 or found == Saved()
        assert found.last_success is None or 0 <= found.last_success <= time.time() + 86_400
        checkpoint.save(found)
    assert repr(place.peek("wandb")) == repr(found)


class TestLinks:
    """A directory that somebody else can write to: what they leave there is not followed."""

    def test_a_lock_that_is_a_link_is_refused_and_its_target_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "victim").write_text("precious")
        (tmp_path / "wandb.lock").symlink_to(tmp_path / "victim")
        with pytest.raises(ConfigurationError, match="its lock file is one, and is not followed: remove it"):
            DirectoryStore(tmp_path).open("wandb")
        assert (tmp_path / "victim").read_text() == "precious"
        (tmp_path / "wandb.lock").unlink()
        (tmp_path / "wandb.lock").symlink_to(tmp_path / "absent")
        with pytest.raises(ConfigurationError, match="its lock file is one"):
            DirectoryStore(tmp_path).open("wandb")
        assert not (tmp_path / "absent").exists()

    @pytest.mark.parametrize("link", [True, False], ids=["link", "leftover"])
    def test_a_temporary_file_that_is_there_is_replaced(self, tmp_path: Path, link: bool) -> None:
        (tmp_path / "victim").write_text("precious")
        if link:
            (tmp_path / "wandb.new").symlink_to(tmp_path / "victim")
        else:
            (tmp_path / "wandb.new").write_text("half a docu")
        with DirectoryStore(tmp_path).open("wandb") as checkpoint:
            checkpoint.save(Saved({"a": 1}))
        assert (tmp_path / "victim").read_text() == "precious"
        assert DirectoryStore(tmp_path).peek("wandb").state == {"a": 1}
        assert sorted(path.name for path in tmp_path.iterdir()) == ["victim", "wandb.json", "wandb.lock"]

    def test_a_document_that_is_a_link_is_set_aside_and_not_read(self, tmp_path: Path) -> None:
        (tmp_path / "victim").write_bytes(Saved({"a": 1}).document())
        (tmp_path / "wandb.json").symlink_to(tmp_path / "victim")
        assert DirectoryStore(tmp_path).peek("wandb") == Saved()
        with DirectoryStore(tmp_path).open("wandb") as checkpoint:
            assert (checkpoint.saved, checkpoint.set_aside) == (Saved(), 1)
        [aside] = tmp_path.glob("*.bad")
        assert aside.is_symlink()

    def test_a_pipe_in_its_place_does_not_make_it_wait(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "wandb.json")
        assert DirectoryStore(tmp_path).peek("wandb") == Saved()
        with DirectoryStore(tmp_path).open("wandb") as checkpoint:
            assert checkpoint.set_aside == 1


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
        skip_without("root", "nobody else can become another user")
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


class TestCheck:
    """What a check finds out is whether a push could remember, and it leaves the checkpoint alone."""

    def test_it_writes_and_overwrites_a_document_of_its_own(self, place: Store) -> None:
        with place.open("wandb") as checkpoint:
            checkpoint.save(Saved({"a": 1}))
            for _ in range(2):
                place.check("wandb")  # while a run holds the key
            checkpoint.save(Saved({"a": 2}))
        assert place.peek("wandb") == Saved({"a": 2})
        assert place.peek("wandb.check") == Saved()

    def test_it_reads_the_object_writes_twice_beside_it_and_lists(self, s3: Store, aws: Aws) -> None:
        s3.check("wandb")
        assert [(one.method, one.path) for one in aws.requests] == [
            ("GET", "/checkpoints/fleet/wandb.json"),
            ("GET", "/checkpoints/fleet/wandb.check.json"),
            ("PUT", "/checkpoints/fleet/wandb.check.json"),
            ("PUT", "/checkpoints/fleet/wandb.check.json"),
            ("GET", "/checkpoints"),
        ]

    def test_two_at_once_are_both_content(self, place: Store) -> None:
        with place.open("wandb.check"):
            place.check("wandb")
        assert place.peek("wandb") == Saved()

    def test_a_damaged_checkpoint_is_not_set_aside_by_it(self, tmp_path: Path) -> None:
        (tmp_path / "wandb.json").write_text("garbage")
        DirectoryStore(tmp_path).check("wandb")
        assert (tmp_path / "wandb.json").read_text() == "garbage"

    def test_a_directory_that_cannot_be_written(self, tmp_path: Path) -> None:
        said = as_nobody(tmp_path, "os.setuid(65534); place.check('wandb')")
        assert said.startswith("common.errors.ConfigurationError: cannot use the checkpoint directory")

    def test_a_checkpoint_that_another_user_made(self, tmp_path: Path) -> None:
        with DirectoryStore(tmp_path).open("wandb"):
            pass
        tmp_path.chmod(0o777)
        code = f"os.chdir({str(tmp_path)!r}); os.setuid(65534); DirectoryStore(Path()).check('wandb')"
        assert as_nobody(tmp_path, code) == (
            "common.errors.ConfigurationError: cannot use the checkpoint directory .: "
            "wandb.lock is not ours; it must be writable for this user"
        )

    @pytest.mark.parametrize(
        ("may", "said"),
        [
            (
                ("s3:GetObject", "s3:ListBucket"),
                "cannot save the checkpoint s3://.*/wandb.check.json: AccessDenied",
            ),
            (("s3:GetObject", "s3:PutObject"), "cannot list the checkpoint s3://.*/wandb.json: AccessDenied"),
            (("s3:PutObject",), "cannot read the checkpoint s3://.*/wandb.json: AccessDenied"),
        ],
    )
    def test_a_role_that_may_not_do_everything(
        self, aws: Aws, monkeypatch: pytest.MonkeyPatch, may: tuple[str, ...], said: str
    ) -> None:
        aws.make_bucket("checkpoints")
        for name, value in aws.allow_only(*may).items():
            monkeypatch.setenv(name, value)
        place = store(core(**aws.environment, FLEETGAUGE_CHECKPOINTS="s3://checkpoints/fleet"))
        assert place is not None
        with pytest.raises(ConfigurationError, match=said):
            place.check("wandb")

    def test_a_role_that_may(self, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
        aws.make_bucket("checkpoints")
        for name, value in aws.allow_only("s3:GetObject", "s3:PutObject", "s3:ListBucket").items():
            monkeypatch.setenv(name, value)
        place = store(core(**aws.environment, FLEETGAUGE_CHECKPOINTS="s3://checkpoints/fleet"))
        assert place is not None
        place.check("wandb")
        assert place.peek("wandb") == Saved()


def test_another_writer_of_garbage_is_someone_else(s3: Store, aws: Aws) -> None:
    with s3.open("wandb") as checkpoint:
        client(aws).put_object(Bucket="checkpoints", Key="fleet/wandb.json", Body=b"[" * 100_000)
        with pytest.raises(BusyError, match="was moved by someone else"):
            checkpoint.save(Saved({"a": 1}))


def test_a_region_that_is_none_is_a_matter_of_configuration(aws: Aws) -> None:
    place = store(core(AWS_REGION="eu west", FLEETGAUGE_CHECKPOINTS="s3://checkpoints"))
    assert place is not None
    with pytest.raises(ConfigurationError, match=r"^opening checkpoints in s3://checkpoints: .*eu west"):
        place.open("wandb")


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
