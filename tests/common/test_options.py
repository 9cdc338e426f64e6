"""A command line that repeats what was requested, to copy."""

from __future__ import annotations

import pytest

from common.options import Mode, Options
from common.shards import Shard


@pytest.mark.parametrize(
    ("arguments", "shard", "config", "line"),
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
def test_command_is_of_the_same_collector_shard_and_file(
    arguments: tuple[str, ...], shard: Shard, config: str | None, line: str
) -> None:
    assert Options(Mode.PUSH, 60, config=config, shard=shard).command("host", *arguments) == line
