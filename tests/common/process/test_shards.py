"""`--shard` from the command line to the points: which part, which tag, which documents, and who refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.project import Project
from support.servers.datadog import Intake

BODY = """
if context.settings.bad: os._exit(1)
for unit in "abcdefgh":
    if context.shard.owns(unit):
        seen = context.state.get(f"{slot(unit)}/{unit}", 0)
        yield VALUE(seen, context.at - ord(unit))
        yield Mark({f"{slot(unit)}/{unit}": seen + 1})
"""


@pytest.fixture
def spread(project: Project, tmp_path: Path) -> Project:
    """A service whose collector counts how often it saw each of eight units."""
    project.add("toy", f"from common.shards import slot\n{BODY}", settings="bad: bool = False")
    (tmp_path / "store").mkdir()
    project.environment["FLEETGAUGE_CHECKPOINTS"] = str(tmp_path / "store")
    return project


@pytest.mark.slow
def test_shards_have_each_unit_once_and_go_on_where_another_number_of_them_was(
    spread: Project, intake: Intake
) -> None:
    def values(*options: str, **extra: str) -> list[float]:
        [entry] = spread.document("toy", *options, **extra)["collectors"]
        assert entry["error"] is None
        return [sample["value"] for sample in entry["samples"]]

    assert spread.run("toy", "--push").returncode == 0
    assert values() == [1] * 8
    for index in range(3):
        assert spread.run("toy", "--push", "--shard", "/3", JOB_COMPLETION_INDEX=str(index)).returncode == 0
    shares = [values("--shard", f"{index}/5") for index in range(5)]
    assert [value for share in shares for value in share] == [2] * 8
    assert max(map(len, shares)) < 8
    assert {tag for tags, _ in intake.series("collector.up") for tag in tags if tag.startswith("shard:")} == {
        f"shard:{index}" for index in range(3)
    }
    assert spread.run("toy", "--check", "--shard", "1/5").returncode == 0


def test_a_shard_that_dies_is_reported_as_that_one(spread: Project, intake: Intake) -> None:
    assert spread.run("toy", "--push", "--shard", "1/3", FLEETGAUGE_TOY_BAD="1").returncode == 1
    assert intake.value("collector.up", ["collector:toy", "shard:1"]) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3/3", "--shard 3/3: parts are numbered from 0 to 2, and at most 64"),
        ("0/65", "--shard 0/65: parts"),
        ("x", "--shard 'x' is not a part"),
        ("/4", "--shard /4 takes its part from JOB_COMPLETION_INDEX, which is not set"),
    ],
)
def test_what_is_no_shard_is_refused(spread: Project, text: str, said: str) -> None:
    ran = spread.run("toy", "--shard", text)
    assert ran.returncode == 2
    assert said in ran.stderr


@pytest.mark.slow
def test_what_measures_a_node_refuses_to_be_shared(project: Project) -> None:
    project.keep("host")
    ran = project.run("host", "--shard", "0/2")
    assert ran.returncode == 2
    assert "host measures the node it runs on, which no shards can share: leave --shard out" in ran.stdout
    assert project.run("all", "--shard", "0/2").returncode == 0
