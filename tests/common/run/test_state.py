"""The state document: what is saved is read again, and nothing that is damaged or in the way ends a run."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.collector import Report
from common.config.settings import CoreSettings
from common.errors import ConfigurationError, StateError
from common.run import state
from common.run.state import MAX_CLOCK_AHEAD, DirectoryStore, Document, SavedState, StateStore
from common.times import EARLIEST
from support.servers.aws import Aws
from support.servers.faults import Fault
from support.standins import NOW, core_settings

LOST = "the state of earlier runs"
EU = "https://api.datadoghq.eu"
FULL = Document(
    now=NOW - 10, sent_until=NOW - 900, last_success=NOW - 60, memory={"a": 2, "b": [1, {"c": "\udc80"}]}
)


def opened(store: StateStore, now: int = NOW, name: str = "wandb") -> tuple[SavedState, Report]:
    """The state as a run at this time finds it, and what the run reports of it."""
    report = Report()
    return SavedState(store, name, now, Document(), report, lambda: NOW + 60), report


def load(store: StateStore, now: int = NOW) -> Document:
    state, report = opened(store, now)
    assert (report.lost, report.dropped) == ([], {})
    return state.document


def save(store: StateStore, document: Document) -> list[str]:
    """Save a document as a run does; what that run reports as lost."""
    state, report = opened(store)
    state.save(document)
    return report.lost


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateStore:
    """Either kind of store, empty."""
    if request.param == "directory":
        return DirectoryStore(tmp_path)
    return s3_store(request.getfixturevalue("aws"))


def s3_store(aws: Aws, bucket: str = "state", **environ: str) -> StateStore:
    if bucket == "state":
        aws.make_bucket(bucket)
    made = state.open_store(
        core(**{**aws.environment, "FLEETGAUGE_STATE": f"s3://{bucket}/fleet/", **environ})
    )
    assert made is not None
    return made


def core(**environ: str) -> CoreSettings:
    return core_settings(**environ)


class TestStores:
    def test_a_saved_document_is_loaded_by_the_next_run(self, store: StateStore) -> None:
        assert load(store) == Document()
        save(store, FULL)
        assert load(store) == FULL
        assert opened(store, name="other")[0].document == Document()

    @pytest.mark.parametrize(("later", "stored"), [(-1, 0), (0, 1), (1, 1)])
    def test_a_document_of_a_run_that_began_later_is_left_alone(
        self, store: StateStore, later: int, stored: int
    ) -> None:
        save(store, Document(now=NOW, memory={"n": 0}))
        save(store, Document(now=NOW + later, memory={"n": 1}))
        assert load(store, NOW + 1).memory == {"n": stored}

    def test_a_document_of_a_clock_that_was_ahead_is_replaced(self, store: StateStore) -> None:
        save(store, Document(now=NOW + 3600, memory={"n": 0}))
        save(store, Document(now=NOW, memory={"n": 1}))
        assert load(store).memory == {"n": 1}

    @pytest.mark.parametrize("content", [b"garbage", b'{"version": 1, "state": {}}', b""])
    def test_a_bad_document_is_reported_copied_and_replaced(self, store: StateStore, content: bytes) -> None:
        store.write("wandb", content)
        state, report = opened(store)
        assert (state.document, report.dropped) == (Document(), {"bad_state": 1})
        assert report.examples["bad_state"].startswith("wandb: ")
        assert store.read("wandb") == content, "a run that only reads leaves it"
        state.save(FULL)
        assert (store.read("wandb.bad"), load(store)) == (content, FULL)

    def test_a_document_of_more_bytes_than_are_read_is_bad(
        self, store: StateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save(store, FULL)
        monkeypatch.setattr(state, "MAX_STATE_BYTES", len(FULL.encode()))
        assert load(store) == FULL
        monkeypatch.setattr(state, "MAX_STATE_BYTES", len(FULL.encode()) - 1)
        assert opened(store)[1].dropped == {"bad_state": 1}

    def test_a_check_leaves_the_document_alone(self, store: StateStore) -> None:
        save(store, FULL)
        for _ in range(2):
            state.check(store, "wandb")
        assert (load(store), store.read("wandb.check")) == (FULL, b"{}")


class TestDirectory:
    def test_files_are_for_this_user_only_and_nothing_else_is_left(self, tmp_path: Path) -> None:
        save(DirectoryStore(tmp_path), FULL)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert modes == {"wandb.json": 0o600}

    def test_a_disk_that_fails_keeps_the_old_document(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = DirectoryStore(tmp_path)
        save(store, FULL)

        def broken(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", broken)
            [lost] = save(store, Document(now=NOW))
        assert re.search(f"cannot write wandb.json in .*{os.strerror(errno.ENOSPC)}; it must", lost)
        assert load(store) == FULL
        assert [path.name for path in tmp_path.iterdir()] == ["wandb.json"]

    @pytest.mark.parametrize("name", ["none", "file"])
    def test_a_directory_that_is_missing_is_named(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StateError, match=f"there is no directory {tmp_path}/{name}; create it"):
            state.check(DirectoryStore(tmp_path / name), "wandb")

    def test_a_document_that_cannot_be_read_is_lost(self, tmp_path: Path) -> None:
        (tmp_path / "wandb.json").mkdir()
        [lost] = save(DirectoryStore(tmp_path), FULL)
        assert re.search(r"cannot read wandb\.json in .*: Is a directory", lost)


class TestS3:
    @pytest.fixture
    def s3(self, aws: Aws) -> Iterator[StateStore]:
        yield s3_store(aws)
        aws.faults.clear()

    def test_documents_are_under_the_prefix(self, s3: StateStore, aws: Aws) -> None:
        state.check(s3, "wandb")
        assert [(one.method, one.path) for one in aws.requests] == [
            ("GET", "/state/fleet/wandb.json"),
            ("PUT", "/state/fleet/wandb.check.json"),
        ]

    @pytest.mark.parametrize("fault", [Fault(status=503), Fault(reset="before")], ids=str)
    def test_an_s3_that_fails_is_an_error_and_keeps_the_document(
        self, s3: StateStore, aws: Aws, fault: Fault
    ) -> None:
        save(s3, FULL)
        state, report = opened(s3)
        aws.faults.add(fault, times=None)
        assert opened(s3)[1].lost[0].startswith(f"{LOST}: cannot read s3://state/fleet/wandb.json: ")
        aws.faults.clear()
        aws.faults.add(Fault())  # the read before the write
        aws.faults.add(fault, times=None)
        state.save(Document(now=NOW))
        assert report.lost[0].startswith(f"{LOST}: cannot write s3://state/fleet/wandb.json: ")
        aws.faults.clear()
        assert load(s3) == FULL

    @pytest.mark.parametrize(
        ("may", "error"),
        [
            (
                ("s3:GetObject", "s3:ListBucket"),
                "cannot write s3://state/fleet/wandb.check.json: AccessDenied",
            ),
            (("s3:PutObject", "s3:ListBucket"), "cannot read s3://state/fleet/wandb.json: AccessDenied"),
            (("s3:GetObject", "s3:PutObject", "s3:ListBucket"), None),
        ],
    )
    def test_a_check_finds_a_permission_that_is_missing(
        self, aws: Aws, monkeypatch: pytest.MonkeyPatch, may: tuple[str, ...], error: str | None
    ) -> None:
        s3 = s3_store(aws)
        for name, value in aws.allow_only(*may).items():
            monkeypatch.setenv(name, value)
        if error is None:
            state.check(s3, "wandb")
            return
        with pytest.raises(StateError, match=f"^{error}; check that the bucket exists and that the role has"):
            state.check(s3, "wandb")

    def test_a_bucket_that_does_not_exist_is_named(self, aws: Aws) -> None:
        with pytest.raises(StateError, match=r"s3://no-such-bucket/fleet/wandb\.json: NoSuchBucket; check"):
            s3_store(aws, "no-such-bucket").read("wandb")

    def test_a_region_that_is_none_is_a_configuration_error(self, aws: Aws) -> None:
        store = s3_store(aws, AWS_REGION="eu west")
        with pytest.raises(ConfigurationError, match=r"^opening the state in s3://state: .*eu west"):
            store.read("wandb")

    def test_an_address_without_a_bucket_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="names no bucket; write s3://bucket/prefix"):
            state.open_store(core(FLEETGAUGE_STATE="s3://"))
        assert state.open_store(core()) is None


def document(**fields: object) -> bytes:
    return json.dumps({"version": 2, "now": NOW, "memory": {}, **fields}).encode()


DAMAGED = {
    "empty": b"",
    "torn": document()[:-4],
    "not text": b"\xff\xfe\x00",
    "a list": b"[]",
    "another version": document(version=1),
    "a foreign memory": document(memory=[1]),
    "no time": document(now=None),
    "a time as text": document(sent_until="now"),
    "a time before all time": document(last_success=-1),
    "a time before the year 2000": document(now=EARLIEST - 1),
    "a time that is true": document(sent_until=True),
    "a time that is NaN": document(sent_until=float("nan")),
    "a time with a fraction": document(last_success=NOW - 0.5),
    "a time in milliseconds": document(now=NOW * 1000),
    "a time beyond a day ahead": document(now=NOW + MAX_CLOCK_AHEAD + 1),
    "an enormous time": document(sent_until=10**400),
    "too many digits": b'{"version": 2, "memory": {}, "now": 1' + b"0" * 5000 + b"}",
    "nested too deep to read": b'{"version": 2, "memory": ' + b'{"a":' * 100_000,
}


class TestDocument:
    @pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
    def test_a_damaged_document_is_refused(self, content: bytes) -> None:
        with pytest.raises(ValueError, match=r"\w"):
            Document.decode(content, NOW)

    def test_times_in_the_future_are_not_known(self) -> None:
        """The clock of the run that saved them may have been ahead."""
        ahead = document(
            now=NOW + 60, sent_until=NOW + 1, last_success=NOW + MAX_CLOCK_AHEAD, memory={"a": 1}
        )
        assert Document.decode(ahead, NOW) == Document(now=NOW + 60, memory={"a": 1})
        present = document(sent_until=NOW, last_success=EARLIEST)
        assert Document.decode(present, NOW) == Document(now=NOW, sent_until=NOW, last_success=EARLIEST)

    @given(
        st.binary()
        | st.fixed_dictionaries(
            {},
            optional={
                "version": st.just(2) | st.integers(),
                **{
                    name: st.integers(NOW - 10, NOW + 10) | st.none() | st.floats() | st.text(max_size=3)
                    for name in ("now", "sent_until", "last_success")
                },
                "memory": st.recursive(
                    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                    lambda inner: (
                        st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.lists(inner, max_size=3)
                    ),
                    max_leaves=8,
                ),
            },
        ).map(lambda fields: json.dumps(fields).encode())
    )
    def test_any_document_is_refused_or_can_be_saved_again(self, content: bytes) -> None:
        try:
            found = Document.decode(content, NOW)
        except ValueError:
            return
        again = Document.decode(found.encode(), NOW)
        assert repr(again) == repr(found)  # NaN is not itself
        assert all(time is None or time <= NOW for time in (found.sent_until, found.last_success))


def key(name: str = "wandb", address: str = EU, *more: str, **environ: str) -> str:
    return state.state_key(name, core(**environ), address, *more)


class TestKey:
    def test_a_person_can_read_what_it_is_of(self) -> None:
        found = key("host", EU, "node-7", FLEETGAUGE_INSTANCE="ml/fleetgauge")
        pattern = "host-test-fleetgauge-api.datadoghq.eu-ml_fleetgauge-node-7-[0-9a-f]{16}"
        assert re.fullmatch(pattern, found), found

    def test_it_stays_the_same_from_version_to_version(self) -> None:
        assert key() == "wandb-test-fleetgauge-api.datadoghq.eu-ab2737e862a52492"

    def test_everything_that_tells_installations_apart_is_part_of_it(self) -> None:
        keys = [
            key(),
            key("xenna"),
            key(address="https://api.datadoghq.com"),
            key(address="http://api.datadoghq.eu"),
            key(DD_ENV="prod"),
            key(DD_SERVICE="other"),
            key(FLEETGAUGE_INSTANCE="a/b"),
            key(FLEETGAUGE_INSTANCE="a_b"),
            key("wandb", EU, "a/b"),
            key("wandb", EU, "a_b"),
            key("wandb", EU, "A_b"),
            key("wandb", EU, "a", "b"),
        ]
        assert len({one.lower() for one in keys}) == len(keys)

    @given(*(st.lists(st.text(min_size=1), min_size=4, max_size=4) for _ in range(2)))
    def test_two_installations_never_share_one(self, one: list[str], other: list[str]) -> None:
        def of(parts: list[str]) -> str:
            env, service, instance, node = parts
            settings = core().model_copy(update={"env": env, "service": service, "instance": instance})
            return state.state_key("c" * 40, settings, "https://" + "a" * 200, node, "shard" * 20)

        assert re.fullmatch("[A-Za-z0-9._-]+", of(one))
        assert len(of(one)) < 200
        assert (of(one) == of(other)) == (one == other)
