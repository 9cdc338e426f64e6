"""The messages of runs over records, as the runbook quotes them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from support.project import Project
from support.servers.datadog import Intake
from support.servers.faults import Fault


class Service:
    """A copy of the service that reads records of pipelines and pushes them."""

    def __init__(self, folder: Path, intake: Intake) -> None:
        self.records, self.state = folder / "records", folder / "state"
        for directory in (self.records, self.state, folder / "service"):
            directory.mkdir()
        self.environment = {
            "DD_ENV": "test",
            "DD_API_KEY": intake.key,
            "FLEETGAUGE_DD_URL": intake.url,
            "FLEETGAUGE_XENNA_PATHS": str(self.records),
            "FLEETGAUGE_STATE": str(self.state),
        }
        self._project = Project(folder / "service", self.environment)
        self._project.keep("xenna")

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run the collector; return its exit code and what it printed."""
        ran = self._project.run("xenna", *arguments, **environment)
        return ran.returncode, ran.stdout + ran.stderr

    def write(self, at: int, **fields: object) -> None:
        """Append the end of a run to a file that is written now."""
        record = {"schema_version": 1, "kind": "xenna", "event": "end", "run_id": "a", "seq": at}
        record |= {"timestamp": at, "status": "ok", "metrics": {"progress": 1.0, "num_outputs": 2}, **fields}
        with (self.records / "a.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    def change_state(self, **fields: Any) -> None:
        """Run once, and change the document that this leaves."""
        self.run("--push")
        [path] = self.state.glob("*.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.fixture
def service(tmp_path: Path, intake: Intake) -> Service:
    return Service(tmp_path, intake)


@pytest.fixture
def now() -> int:
    return int(time.time())


def test_missing_path_makes_the_run_partial(service: Service, tmp_path: Path) -> None:
    code, printed = service.run("--push", FLEETGAUGE_XENNA_PATHS=f"{tmp_path}/none")
    assert code == 1
    assert (
        f"{tmp_path}/none: it does not exist; where that is normal, write a wildcard in the path" in printed
    )
    assert "some units were lost; to send them later: run_collector.py xenna --since" in printed


def test_late_sums_are_named_with_the_command_that_sends_them(service: Service, now: int) -> None:
    units = {str(service.records / "a.jsonl"): now - 2000}
    service.change_state(sent_until=now - 300, memory={"until": now - 300, "units": units})
    service.write(now - 2000)
    service.write(now - 1000)
    code, printed = service.run("--push")
    assert code == 1
    assert "written too late; to send them: run_collector.py xenna --since" in printed


def test_gap_is_named_with_the_command_that_sends_it(service: Service, now: int) -> None:
    service.change_state(sent_until=now - 7200)
    _, printed = service.run("--push")
    message = (
        r"the points from \S+ to \S+ were not sent and are too old; to send them: run_collector.py xenna "
    )
    assert re.search(message, printed)


def test_missing_state_directory_makes_the_run_partial(service: Service, now: int) -> None:
    service.write(now - 100)
    service.state.rmdir()
    code, printed = service.run("--push")
    assert code == 1
    assert "lost the state of earlier runs: FLEETGAUGE_STATE: there is no directory" in printed
    assert "points sent" in printed


def test_backfill_that_stops_names_the_command_that_continues(
    service: Service, intake: Intake, now: int
) -> None:
    service.write(now - 1000)
    intake.faults.add(Fault(status=400))
    code, printed = service.run("--since", "40m", "--push", "--yes")
    assert code == 1
    assert "not everything was sent; to continue: run_collector.py xenna --since" in printed


def test_backfill_beyond_the_series_cap_is_refused(service: Service, now: int) -> None:
    service.write(now - 1000)
    code, printed = service.run("--since", "40m", "--push", "--yes", FLEETGAUGE_SERIES_CAP="1")
    assert code == 2
    assert "it would send more than 1 series (FLEETGAUGE_SERIES_CAP)" in printed


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        ((), {"FLEETGAUGE_CHECKPOINTS": "state"}, "FLEETGAUGE_CHECKPOINTS (it is FLEETGAUGE_STATE now)"),
        ((), {"FLEETGAUGE_STEP": "30m"}, "the step of 1800 s is too long for records"),
        (("--shard", "0/2"), {}, "--shard is for wandb alone"),
    ],
)
def test_settings_that_records_do_not_have_are_refused(
    service: Service, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    code, printed = service.run("--push", *arguments, **environment)
    assert code == 2
    assert message in printed
