"""One store, several installations: none sees what another remembers, and each finds its own again."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from support.project import Project
from support.servers.datadog import Intake

pytestmark = pytest.mark.slow

BODY = """
lines = Path(context.settings.path).read_text().split()
for number in range(context.state.get("line", 0), len(lines)):
    yield VALUE(int(lines[number]), context.now - 100 + number)
yield Mark({"line": len(lines)})
"""


@pytest.fixture
def store(project: Project, tmp_path: Path) -> Path:
    """A store for a collector that reads three lines, each once."""
    project.add("toy", BODY, settings="path: Text", options=", resumes=True")
    (tmp_path / "records").write_text("1 2 3")
    (tmp_path / "store").mkdir()
    project.environment |= {
        "FLEETGAUGE_TOY_PATH": str(tmp_path / "records"),
        "FLEETGAUGE_CHECKPOINTS": str(tmp_path / "store"),
    }
    return tmp_path / "store"


def sent(project: Project, **extra: str) -> int:
    """How many points one run sent."""
    [entry] = project.document("toy", "--push", **extra)["collectors"]
    assert entry["error"] is None
    return int(entry["points_sent"])


@pytest.mark.parametrize("name", ["DD_ENV", "DD_SERVICE", "FLEETGAUGE_INSTANCE"])
def test_another_release_over_the_same_store_reads_everything_itself(
    project: Project, store: Path, name: str
) -> None:
    assert sent(project, **{name: "team/a"}) == 3
    assert sent(project, **{name: "team_a"}) == 3
    assert sent(project, **{name: "team/a"}) == 0
    assert len(list(store.glob("toy-*.json"))) == 2


def test_a_change_of_paths_keeps_the_state(project: Project, store: Path, tmp_path: Path) -> None:
    assert sent(project) == 3
    (tmp_path / "moved").write_text("1 2 3 4")
    assert sent(project, FLEETGAUGE_TOY_PATH=str(tmp_path / "moved")) == 1


def test_the_address_is_the_one_in_force_in_a_dry_run_too(
    project: Project, store: Path, intake: Intake, tmp_path: Path
) -> None:
    """From the file or the environment, the same address is the same checkpoint; another is another."""
    del project.environment["FLEETGAUGE_DD_URL"]
    config = tmp_path / "f.toml"
    config.write_text(f'[datadog]\nurl = "{intake.url}"\napi_key = "in the file"\n')

    def samples(*options: str, **extra: str) -> int:
        return len(project.document("toy", *options, **extra)["collectors"][0]["samples"])

    [entry] = project.document("toy", "--push", "--config", str(config))["collectors"]
    assert (entry["error"], entry["points_sent"]) == (None, 3)
    assert samples("--config", str(config)) == 0
    assert samples(FLEETGAUGE_DD_URL=f"{intake.url}/") == 0
    assert samples(FLEETGAUGE_DD_URL="https://elsewhere.example") == 3
    assert samples(DD_SITE="datadoghq.eu") == 3


def test_a_run_gives_up_where_another_number_of_shards_begins_before_it_sends(
    project: Project, store: Path, intake: Intake
) -> None:
    begin = """
    [own] = [path for path in Path(os.environ["FLEETGAUGE_CHECKPOINTS"]).glob("slow-*.lock")]
    document = {"version": 1, "last_success": None, "state": {"count": 4, "before": 0, "after": 1}}
    own.with_name(f"{own.stem}-layout.json").write_text(json.dumps(document))
    """
    body = "{}\ncontext.about_to_send(context.now)\nyield VALUE(1, context.at)"
    project.add("slow", body.format(dedent(begin)), options=", resumes=True")
    [entry] = project.document("slow", "--push")["collectors"]
    assert (entry["status"], entry["error"]["message"]) == (
        "skipped",
        "there are 4 shards since a moment ago; this run leaves the work to them",
    )
    assert intake.series("slow.value") == {}
    [own] = [path for path in store.glob("slow-*.json") if not path.stem.endswith("-layout")]
    assert json.loads(own.read_text())["state"]["sent_until"] > 0  # saved before it looked


def test_a_child_that_crashed_is_reported_with_its_own_last_success(
    project: Project, store: Path, intake: Intake
) -> None:
    project.add(
        "fragile", "if context.settings.bad: os._exit(1)\nyield VALUE(1, context.at)", "bad: bool = False"
    )
    age = "collector.last_success_age_seconds"
    assert project.run("fragile", "--push", DD_ENV="dev").returncode == 0
    assert intake.value(age, ["env:dev"]) == 0
    for env in ("dev", "prod"):
        assert project.run("fragile", "--push", DD_ENV=env, FLEETGAUGE_FRAGILE_BAD="1").returncode == 1
    assert len(intake.series(age)) == 1
    assert intake.value("collector.up", ["env:prod"]) == 0
