"""Jobs and outcomes come out of a pipe as they went in."""

from __future__ import annotations

import pytest

from common.job import Backfill, Job, Mode
from common.outcome import Failure, Outcome, Status
from common.process.protocol import Progress, decode_job, decode_outcome, encode
from common.shards import Shard

FAILED = Outcome(
    "host",
    Status.PARTIAL,
    seconds=1.5,
    dropped={"too_old": 2},
    lost=["a: gone"],
    error=Failure("SourceError", "no answer", configuration=True, status=403, details=["b"]),
    tables={"idle": [{"user": "ann"}]},
)


@pytest.mark.parametrize(
    "job",
    [
        Job("host", Mode.PUSH, timeout=60.5),
        Job("host", Mode.REPORT, 900, 60, named=False, config="a.toml", outcome=FAILED, stays=True),
        Job("host", Mode.PUSH, 900, 60, backfill=Backfill(0, 9, ("--since", "9s"), 1, 2), shard=Shard(1, 2)),
    ],
)
def test_a_job_is_read_back_as_it_was_given(job: Job) -> None:
    line = encode(job)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert decode_job(line) == job


def test_an_outcome_is_read_back_as_it_was_said() -> None:
    for outcome in (FAILED, Outcome("host", Status.OK)):
        assert decode_outcome(encode(outcome)) == outcome


def test_anything_else_is_no_outcome() -> None:
    with pytest.raises(TypeError, match="not an object"):
        decode_outcome(b"[]")
    with pytest.raises(KeyError):
        decode_outcome(b"{}")
    with pytest.raises(ValueError, match="lost"):
        decode_outcome(b'{"status": "lost"}')


@pytest.mark.parametrize(
    ("done", "total", "said"),
    [
        (0, None, "sending"),
        (7, None, "sending, 7 so far"),
        (1200, 9000, "sending, 1,200 of 9,000"),
        (0, 9, "sending, 0 of 9"),
    ],
)
def test_progress_is_told_as_far_as_it_is_known(done: int, total: int | None, said: str) -> None:
    assert str(Progress("sending", done, total)) == said
