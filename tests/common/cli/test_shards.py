"""`--shard` from the command line to the points: which part, which tag and which document."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.project import Project
from support.servers.datadog import Intake

pytestmark = pytest.mark.slow

BODY = """
if context.settings.bad: os._exit(1)
context.memory["shard"] = str(context.shard)
for unit in "abcdefgh":
    if context.shard.owns(unit):
        yield VALUE(1, context.window.until, kind=unit)
"""


def test_shards_have_each_unit_once_whatever_their_number(
    project: Project, intake: Intake, tmp_path: Path
) -> None:
    project.add("wandb", BODY, settings="bad: bool = False")
    (tmp_path / "store").mkdir()
    project.environment["FLEETGAUGE_STATE"] = str(tmp_path / "store")
    for count in (1, 3):
        intake.points.clear()
        writes = len(intake.write_log)
        for index in range(count):
            ran = project.run("wandb", "--push", "--shard", f"/{count}", JOB_COMPLETION_INDEX=str(index))
            assert ran.returncode == 0, ran.stdout
        values = [write.key.tags for write in intake.write_log[writes:] if write.key.metric == "wandb.value"]
        kinds = sorted(tag for tags in values for tag in tags if "kind:" in tag)
        assert kinds == [f"kind:{unit}" for unit in "abcdefgh"]
        assert not any("shard:" in tag for tags in values for tag in tags)
        shards = {tag for tags, _ in intake.series("collector.up") for tag in tags if "shard:" in tag}
        assert shards == ({f"shard:{index}" for index in range(count)} if count > 1 else set())
        numbers = [
            point for points in intake.series("collector.shards").values() for point in points.values()
        ]
        assert numbers == count * [count]
    assert len([*(tmp_path / "store").glob("wandb-*.json")]) == 1 + 3, "each has its own document"
    assert project.run("wandb", "--check", "--shard", "1/3").returncode == 0
    assert project.run("wandb", "--push", "--shard", "1/3", FLEETGAUGE_WANDB_BAD="1").returncode == 1
    assert intake.value("collector.up", ["collector:wandb", "shard:1"]) == 0
