"""`--shard` from the command line to the points: which part, which tag, which document, and who refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.project import Project
from support.servers.datadog import Intake

BODY = """
if context.settings.bad: os._exit(1)
context.memory["shard"] = str(context.shard)
for unit in "abcdefgh":
    if context.shard.owns(unit):
        yield VALUE(1, context.window.until, kind=unit)
"""


@pytest.fixture
def spread(project: Project, tmp_path: Path) -> Project:
    """A service whose collector of that name has eight units."""
    project.add("wandb", BODY, settings="bad: bool = False")
    (tmp_path / "store").mkdir()
    project.environment["FLEETGAUGE_STATE"] = str(tmp_path / "store")
    return project


@pytest.mark.slow
def test_shards_have_each_unit_once_whatever_their_number(
    spread: Project, intake: Intake, tmp_path: Path
) -> None:
    for count in (1, 3, 5):
        intake.points.clear()
        writes = len(intake.write_log)
        for index in range(count):
            ran = spread.run("wandb", "--push", "--shard", f"/{count}", JOB_COMPLETION_INDEX=str(index))
            assert ran.returncode == 0, ran.stdout
        values = [write.key.tags for write in intake.write_log[writes:] if write.key.metric == "wandb.value"]
        assert sorted(tag for tags in values for tag in tags if "kind:" in tag) == [
            f"kind:{unit}" for unit in "abcdefgh"
        ]
        assert not any("shard:" in tag for tags in values for tag in tags)
        shards = {tag for tags, _ in intake.series("collector.up") for tag in tags if "shard:" in tag}
        assert shards == ({f"shard:{index}" for index in range(count)} if count > 1 else set())
    assert len([*(tmp_path / "store").glob("wandb-*.json")]) == 1 + 3 + 5, "each has its own document"
    assert spread.run("wandb", "--check", "--shard", "1/5").returncode == 0


def test_a_shard_that_dies_is_reported_as_that_one(spread: Project, intake: Intake) -> None:
    assert spread.run("wandb", "--push", "--shard", "1/3", FLEETGAUGE_WANDB_BAD="1").returncode == 1
    assert intake.value("collector.up", ["collector:wandb", "shard:1"]) == 0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("3/3", "--shard 3/3: parts are numbered from 0 to 2, and at most 64"),
        ("0/65", "--shard 0/65: parts"),
        ("x", "--shard 'x' is not a part"),
        ("/4", "--shard /4 takes its part from JOB_COMPLETION_INDEX, which is not set"),
    ],
)
def test_a_shard_that_cannot_be_is_refused(spread: Project, text: str, error: str) -> None:
    ran = spread.run("wandb", "--shard", text)
    assert ran.returncode == 2
    assert error in ran.stderr


@pytest.mark.parametrize("names", [["toy"], ["all"], ["wandb", "toy"]])
def test_all_but_wandb_refuse_shards_and_name_the_ways_to_scale(spread: Project, names: list[str]) -> None:
    spread.add("toy", "yield VALUE(1, context.window.until)")
    ran = spread.run(*names, "--shard", "0/2")
    assert ran.returncode == 2
    assert "--shard is for wandb alone" in ran.stderr
    assert "FLEETGAUGE_NODE_LOCAL" in ran.stderr
