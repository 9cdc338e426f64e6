"""What is asked of a child: nothing that was not said, and a command line that says all of it again."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from common.job import Backfill, Job, Mode
from common.outcome import Failure, Outcome, Status
from common.shards import Shard


def test_what_is_not_said_of_a_job_is_not_asked_for() -> None:
    job = Job("host", Mode.PUSH, timeout=60, backfill=Backfill(0, 900, ("--since", "15m")))
    assert asdict(job) == {
        "collector": "host",
        "mode": "push",
        "timeout": 60,
        "step": None,
        "named": True,
        "verbose": False,
        "config": None,
        "samples_path": None,
        "outcome": None,
        "backfill": {
            "since": 0,
            "until": 900,
            "asked": ("--since", "15m"),
            "part": 0,
            "parts": 1,
            "only_enabled": False,
            "enable": False,
            "ask": False,
        },
        "stays": False,
        "shard": {"index": 0, "count": 1},
        "explain": (),
    }


def test_an_outcome_claims_nothing_that_was_not_said() -> None:
    assert asdict(Outcome("host", Status.FAILED, error=Failure("SourceError", "no"))) == {
        "collector": "host",
        "status": "failed",
        "seconds": 0.0,
        "samples": 0,
        "points_sent": 0,
        "dropped": {},
        "examples": {},
        "requests": 0,
        "lost": [],
        "findings": [],
        "error": {
            "type": "SourceError",
            "message": "no",
            "configuration": False,
            "status": None,
            "details": [],
        },
        "as_of": None,
        "tables": {},
        "stays": False,
    }


@pytest.mark.parametrize(
    ("words", "shard", "config", "line"),
    [
        (("--check",), Shard(), None, "run_collector.py host --check"),
        (("--push",), Shard(1, 2), None, "run_collector.py host --push --shard 1/2"),
        (("--since", "7d"), Shard(), "a b.toml", "run_collector.py host --since 7d --config 'a b.toml'"),
        (
            ("--since", "7d", "--push"),
            Shard(2, 3),
            "a.toml",
            "run_collector.py host --since 7d --push --shard 2/3 --yes --config a.toml",
        ),
    ],
)
def test_a_command_line_is_of_the_same_collector_shard_and_file(
    words: tuple[str, ...], shard: Shard, config: str | None, line: str
) -> None:
    assert Job("host", Mode.PUSH, 60, config=config, shard=shard).command(*words) == line


def test_only_one_of_several_shards_is_told_apart() -> None:
    assert [shard.tags for shard in (Shard(), Shard(0, 2), Shard(4, 5))] == [(), ("shard:0",), ("shard:4",)]
