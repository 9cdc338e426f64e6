"""Real processes over records, killed while they push: the next run completes what the killed one began."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.project import KEY, Project
from support.record_fleets import BEGIN, SETTLE, STEP, Disk, Fleet, Line, Points, Shape, fleet
from support.record_model import PRESENT
from support.record_truth import truth
from support.servers.datadog import Intake, Push

pytestmark = pytest.mark.slow

SECONDS = 2400


def shifted(made: Fleet, seconds: int) -> Fleet:
    """Return a fleet whose records are from another time, without its damaged lines."""
    lines: list[Line] = []
    for line in made.records:
        record: dict[str, Any] = {**(line.record or {})}
        if "timestamp_ns" in record:
            record["timestamp_ns"] += seconds * 10**9
        else:
            record["timestamp"] += seconds
        content = json.dumps(record).encode() + b"\n"
        lines.append(line._replace(written=line.written + seconds, content=content, record=record))
    return Fleet(made.kind, made.settings, lines)


def kill_at(intake: Intake, project: Project, kind: str, payload: int) -> None:
    """Run until the intake has taken so many payloads of points, then kill every process of the run."""
    process = project.start(kind, "--push")
    seen = 0

    def kill(request: Push) -> None:
        nonlocal seen
        seen += request.path == "/api/v2/series"
        if seen == payload:
            main = psutil.Process(process.pid)
            victims = [main, *main.children(recursive=True)]
            for victim in reversed(victims):
                victim.kill()

    intake.on("applied", kill)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == -9, printed


def sent(intake: Intake) -> Points:
    """Return the points of records that the intake holds, without the tags of the service."""
    common = ("env:", "service:")
    return {
        (metric, tuple(tag for tag in tags if not tag.startswith(common)), host, second): value
        for (metric, tags, host, second), value in intake.points.items()
        if not metric.startswith("collector.") and ".ingest." not in metric and metric not in PRESENT
    }


@pytest.mark.parametrize("payload", [1, 2, 5])
@pytest.mark.parametrize("kind", ["xenna", "gpu_memory", "data_plane"])
def test_next_run_completes_what_a_killed_one_began(kind: str, payload: int, tmp_path: Path) -> None:
    now = int(time.time())
    made = shifted(fleet(kind, payload, Shape(seconds=SECONDS, shared=False)), now - 65 - BEGIN - SECONDS)
    records, service, state = (tmp_path / name for name in ("records", "service", "state"))
    for folder in (records, service, state):
        folder.mkdir()
    Disk(made, records).advance(now)
    with Intake(key=KEY) as intake:
        environment = {"DD_ENV": "test", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": intake.url}
        environment |= {"FLEETGAUGE_STATE": str(state), f"FLEETGAUGE_{kind.upper()}_PATHS": str(records)}
        project = Project(service, environment)
        project.keep(kind)
        project.set_constant("datadog/payloads.py", "POINT_LIMIT", "100")
        kill_at(intake, project, kind, payload)
        ran = project.run(kind, "--push")
        assert ran.returncode == 0, ran.stderr
        points = sent(intake)
    [document] = [json.loads(path.read_text()) for path in state.rglob("*.json")]
    until, found = document["sent_until"], truth(made)
    true = found.gauges | found.sums
    assert until >= now - SETTLE, "it begins where the killed run began, and ends by its own clock"
    assert {key: value for key, value in points.items() if true.get(key) != value} == {}
    missing = [key for key in found.gauges if until - 2 * STEP <= key[3] < until and key not in points]
    missing += [key for key in found.sums if until - STEP <= key[3] < until and key not in points]
    assert missing == []
