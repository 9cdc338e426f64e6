"""The state document: what is saved is read again, and nothing that is damaged or in the way ends a run.

What runs make of it is in `test_live.py`.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import ConfigurationError, StateError
from common.run.state import Document, StateStore, state_key
from common.times import EARLIEST
from common.window import MAX_AHEAD
from support.servers.aws import Aws
from support.servers.faults import Fault
from support.standins import NOW, core_settings

EU = "https://api.datadoghq.eu"


def s3_store(aws: Aws, bucket: str = "state", **environ: str) -> StateStore:
    return StateStore(f"s3://{bucket}/fleet/", core_settings(**{**aws.environment, **environ}))


@pytest.fixture
def s3(aws: Aws) -> Iterator[StateStore]:
    aws.make_bucket("state")
    yield s3_store(aws)
    aws.faults.clear()


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateStore:
    """Either kind of store, empty."""
    if request.param == "directory":
        return StateStore(str(tmp_path), core_settings())
    found: StateStore = request.getfixturevalue("s3")
    return found


class TestStores:
    def test_bytes_are_read_as_they_were_written_last(self, store: StateStore) -> None:
        assert store.read("wandb") is None
        for content in (b"one", b"another"):
            store.write("wandb", content)
            assert (store.read("wandb"), store.read("other")) == (content, None)

    def test_no_more_is_read_than_a_document_can_have(
        self, store: StateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.write("a", b"12345")
        monkeypatch.setattr("common.run.state.MAX_BYTES", 3)
        assert store.read("a") == b"123"

    def test_a_disk_that_fails_keeps_the_old_document(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        store = StateStore(str(tmp_path), core_settings())
        store.write("wandb", b"old")
        monkeypatch.setattr(Path, "replace", broken)
        with pytest.raises(StateError, match=f"cannot write {tmp_path}/wandb.json: No space left on device"):
            store.write("wandb", b"new")
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("wandb.json", b"old")]

    def test_directory_that_cannot_be_looked_at_is_an_error_of_the_state(self, tmp_path: Path) -> None:
        store = StateStore(f"{tmp_path}/{'x' * 256}", core_settings())
        for request in (store.read, lambda name: store.write(name, b"")):
            with pytest.raises(StateError, match=os.strerror(errno.ENAMETOOLONG)):
                request("wandb")

    def test_what_is_in_the_way_of_a_directory_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for name in ("none", "file"):
            with pytest.raises(StateError, match=f"there is no directory {tmp_path}/{name}; create it"):
                StateStore(f"{tmp_path}/{name}", core_settings()).read("wandb")
        (tmp_path / "wandb.json").mkdir()
        with pytest.raises(StateError, match=r"cannot read .*/wandb\.json: Is a directory"):
            StateStore(str(tmp_path), core_settings()).read("wandb")

    @pytest.mark.parametrize("fault", [Fault(status=503), Fault(reset="before")], ids=str)
    def test_an_s3_that_fails_is_an_error_and_keeps_the_document(
        self, s3: StateStore, aws: Aws, fault: Fault
    ) -> None:
        s3.write("wandb", b"old")
        aws.faults.add(fault, times=None)
        with pytest.raises(StateError, match=r"cannot read s3://state/fleet/wandb\.json: "):
            s3.read("wandb")
        with pytest.raises(StateError, match=r"cannot write s3://state/fleet/wandb\.json: "):
            s3.write("wandb", b"new")
        aws.faults.clear()
        assert s3.read("wandb") == b"old"

    @pytest.mark.parametrize(("may", "failing"), [("s3:GetObject", "write"), ("s3:PutObject", "read")])
    def test_a_permission_that_is_missing_is_named(
        self, s3: StateStore, aws: Aws, monkeypatch: pytest.MonkeyPatch, may: str, failing: str
    ) -> None:
        for name, value in aws.allow_only(may, "s3:ListBucket").items():
            monkeypatch.setenv(name, value)
        call = s3.read if failing == "read" else partial(s3.write, content=b"{}")
        with pytest.raises(StateError, match=f"^cannot {failing} .*: S3 answers AccessDenied; the role"):
            call("wandb")

    def test_a_bad_address_of_s3_is_named(self, aws: Aws) -> None:
        with pytest.raises(StateError, match=r"s3://no-such-bucket/fleet/wandb\.json: .*NoSuchBucket"):
            s3_store(aws, "no-such-bucket").read("wandb")
        with pytest.raises(ConfigurationError, match=r"^opening the state in s3://state/fleet: .*eu west"):
            s3_store(aws, AWS_REGION="eu west").read("wandb")
        with pytest.raises(ConfigurationError, match="names no bucket; write s3://bucket/prefix"):
            StateStore("s3://", core_settings())


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
    "a time as text": document(sent_until=str(NOW)),
    "a time before the year 2000": document(last_success=EARLIEST - 1),
    "a time that is true": document(sent_until=True),
    "a time that is NaN": document(sent_until=float("nan")),
    "a time with a fraction": document(last_success=NOW - 0.5),
    "too many digits": b'{"version": 2, "memory": {}, "now": 1' + b"0" * 5000 + b"}",
    "nested too deep to read": b'{"version": 2, "memory": ' + b'{"a":' * 100_000,
    **{f"a future {name}": document(**{name: NOW + MAX_AHEAD + 1}) for name in ("now", "sent_until")},
    "a future success": document(last_success=NOW * 1000),
}


class TestDocument:
    @pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
    def test_a_damaged_document_is_refused(self, content: bytes) -> None:
        with pytest.raises(ValueError, match=r"^it (is damaged|has a time in the future)"):
            Document.decode(content, NOW)

    @given(
        times=st.tuples(*[st.none() | st.integers(EARLIEST, NOW + MAX_AHEAD)] * 2),
        memory=st.dictionaries(
            st.text(st.characters(exclude_categories=()), max_size=3),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
                lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.lists(inner),
                max_leaves=8,
            ),
        ),
    )
    def test_any_document_of_ours_is_read_as_it_was_saved(
        self, times: tuple[int | None, int | None], memory: dict[str, object]
    ) -> None:
        saved = Document(now=NOW, sent_until=times[0], last_success=times[1], memory=memory)
        assert Document.decode(saved.encode(), NOW) == saved


def key(name: str = "wandb", address: str = EU, *more: str, **environ: str) -> str:
    return state_key(name, core_settings(**environ), address, *more)


class TestKey:
    def test_it_stays_the_same_from_version_to_version(self) -> None:
        assert key() == "wandb-test-fleetgauge-api.datadoghq.eu-ab2737e862a52492"
        assert key("host", EU, "node-7", FLEETGAUGE_INSTANCE="ml/fleetgauge").startswith(
            "host-test-fleetgauge-api.datadoghq.eu-ml_fleetgauge-node-7-"
        )

    def test_everything_that_tells_installations_apart_is_part_of_it(self) -> None:
        keys = [
            key(),
            key("xenna"),
            key(address="http://api.datadoghq.eu"),
            key(DD_ENV="prod"),
            key(DD_SERVICE="other"),
            key(FLEETGAUGE_INSTANCE="a/b"),
            key(FLEETGAUGE_INSTANCE="a_b"),
            *(key("wandb", EU, *more) for more in (["a/b"], ["a_b"], ["A_b"], ["a", "b"], ["a" * 30])),
            key("wandb", EU, "a" * 31),
        ]
        assert len({one.lower() for one in keys}) == len(keys)
        assert len(key("c" * 40, "a" * 200, "n" * 200, "s" * 200, DD_ENV="e" * 200)) < 200
