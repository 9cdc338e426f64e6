"""A backfill that is interrupted, wherever it is, goes on and ends as if it had not been."""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from pathlib import Path

import pytest

from common.span import Span
from common.times import iso
from support.backfills import APP_KEY, NAMES, STEP, fixed, held, span_of, truth
from support.crash_harness import AT_THE_INTAKE, AT_THE_STORE, CrashHarness, Kill
from support.project import Project
from support.servers.datadog import Intake
from support.servers.faults import Fault
from support.servers.fleet import plausible_day
from support.servers.wandb import Wandb

pytestmark = pytest.mark.slow

TOY_PAST = """, backfill=lambda context, span: lambda: (
    item
    for at in span.ticks
    if at > context.state.get("at", 0)
    for item in (*([TOTAL(1, at)] if at < span.since + 3600 else []), VALUE(1, at), Mark({"at": at}))
)"""


def test_a_metric_that_is_still_off_and_has_no_points_left_is_not_taken_for_on(
    project: Project, intake: Intake, tmp_path: Path
) -> None:
    project.add("toy", "yield VALUE(1, context.at)", options=TOY_PAST)
    project.set_constant("intake.py", "BATCH_SIZE", "2")
    project.set_constant("execution/delivery.py", "SAVE_EVERY", "0")
    project.environment |= {"DD_APP_KEY": APP_KEY, "FLEETGAUGE_CHECKPOINTS": str(tmp_path)}
    intake.historical = {"toy.value"}
    intake.faults.add(Fault(), times=5, match="/api/v2/series")
    intake.faults.add(Fault(status=403), match="/api/v2/series")
    options = [*fixed(6), "--push", "--yes", "--only-enabled"]
    assert project.run("toy", *options).returncode == 2
    ran = project.run("toy", *options)
    assert ran.returncode == 0, ran.stdout
    assert "starting again" not in ran.stderr
    assert len(intake.write_log) == len(intake.points) == 24


class TestInterrupted:
    def test_the_same_command_resumes_the_span_it_began_with(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        fleet.set_constant("intake.py", "BATCH_SIZE", "60")
        fleet.set_constant("execution/delivery.py", "SAVE_EVERY", "0")
        intake.faults.add(Fault(), times=5, match="/api/v2/series")
        intake.faults.add(Fault(status=403), match="/api/v2/series")
        began = time.time()
        first = fleet.run("wandb", "--since", "6h", "--push", "--yes")
        assert first.returncode == 2
        assert "the same command resumes from here" in first.stderr
        sent = set(held(intake))
        assert 0 < len(sent) < 24 * 25
        second = fleet.run("wandb", "--since", "6h", "--push", "--yes")
        assert second.returncode == 0, second.stdout
        assert "resuming the interrupted backfill" in second.stderr
        span = Span(int(began) - 6 * 3600, int(began), STEP)
        assert held(intake) == truth(wandb.projects["acme", "ants"], span)
        repeated = len(intake.write_log) - len(intake.points)
        assert repeated < 60 + len(intake.points) / 24  # less than a batch, which ends at a mark
        assert all(write.replaced in (None, write.value) for write in intake.write_log)

    def test_once_it_is_done_the_same_command_starts_again(self, fleet: Project, intake: Intake) -> None:
        for _ in range(2):
            ran = fleet.run("wandb", *fixed(2), "--push", "--yes")
            assert "resuming" not in ran.stderr
        assert len(intake.write_log) == 2 * len(intake.points)

    def test_what_is_done_only_once_recognises_itself_with_the_span_it_had(
        self, fleet: Project, intake: Intake
    ) -> None:
        command = ("wandb", "--since", "2h", "--push", "--yes")
        assert fleet.run(*command, "--once", "first").returncode == 0
        sent = len(intake.write_log)
        assert sent == len(intake.points) > 0
        requests = len(intake.requests)
        again = fleet.run(*command, "--once", "first", WANDB_API_KEY="a-key-that-nobody-asks-about")
        assert again.returncode == 0, again.stdout
        assert re.search(r"20\S+Z to 20\S+Z was completed at 20\S+Z: nothing is left to do", again.stderr)
        assert len(intake.requests) == requests, "not even a question"
        assert fleet.run(*command, "--once", "second").returncode == 0
        assert len(intake.write_log) == 2 * sent

    def test_what_is_done_once_and_was_interrupted_is_not_done(self, fleet: Project, intake: Intake) -> None:
        intake.faults.add(Fault(status=403), match="/api/v2/series")
        command = ("wandb", *fixed(2), "--push", "--yes", "--once", "first")
        assert fleet.run(*command).returncode == 2
        assert fleet.run(*command).returncode == 0
        assert len(intake.write_log) == len(intake.points) > 0

    def test_a_setting_that_is_left_alone_does_not_make_it_another_one(
        self, fleet: Project, intake: Intake
    ) -> None:
        """A newer version has more settings than the one that completed it."""
        command = ("wandb", *fixed(2), "--push", "--yes", "--once", "first")
        assert fleet.run(*command).returncode == 0
        settings = fleet.root / "collectors" / "wandb" / "settings.py"
        text = settings.read_text()
        head = "class WandbSettings(CollectorSettings):"
        assert head in text
        start = text.index("    model_config", text.index(head))
        settings.write_text(f"{text[:start]}    newer: int = 7\n{text[start:]}")
        assert "nothing is left to do" in fleet.run(*command).stderr
        other = fleet.run(*command, FLEETGAUGE_WANDB_STALE_AFTER="20m")
        assert "nothing is left to do" not in other.stderr
        assert other.returncode == 0, other.stdout

    def test_without_a_store_nothing_can_be_done_only_once(self, fleet: Project) -> None:
        command = ("wandb", *fixed(2), "--push", "--yes", "--once", "first")
        ran = fleet.run(*command, FLEETGAUGE_CHECKPOINTS="")
        assert ran.returncode == 2
        assert "--once needs to remember what was done: set FLEETGAUGE_CHECKPOINTS" in ran.stdout

    def test_what_was_left_out_and_can_be_sent_now_is_sent_from_the_start(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        fleet.set_constant("intake.py", "BATCH_SIZE", "60")
        fleet.set_constant("execution/delivery.py", "SAVE_EVERY", "0")
        intake.historical.remove("wandb.runs.active")
        intake.faults.add(Fault(), times=2, match="/api/v2/series")
        intake.faults.add(Fault(status=403), match="/api/v2/series")
        options = fixed(6)
        assert fleet.run("wandb", *options, "--push", "--yes", "--only-enabled").returncode == 2
        intake.historical.add("wandb.runs.active")
        assert fleet.run("wandb", *options, "--push", "--yes", "--only-enabled").returncode == 0
        assert held(intake) == truth(wandb.projects["acme", "ants"], span_of(options))

    def test_a_second_one_at_the_same_time_fails_instead_of_being_skipped(
        self, fleet: Project, intake: Intake
    ) -> None:
        options = fixed(3)
        seconds: list[subprocess.CompletedProcess[str]] = []

        def start_another(_: object) -> None:
            if not seconds:
                seconds.append(fleet.run("wandb", *options, "--push", "--yes"))

        intake.on("received", start_another)
        assert fleet.run("wandb", *options, "--push", "--yes").returncode == 0
        assert seconds[0].returncode == 1
        assert "is held by process" in seconds[0].stdout

    def test_a_project_that_failed_is_all_that_is_left_to_do(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        fleet.environment["WANDB_PROJECTS"] = "acme/ants,acme/bees"
        options = fixed(3)
        first = fleet.run("wandb", *options, "--push", "--yes")
        assert first.returncode == 1
        assert "lost acme/bees" in first.stdout
        writes = len(intake.write_log)
        wandb.add("acme", "bees", plausible_day(time.time(), runs=20, seed=3))
        assert fleet.run("wandb", *options, "--push", "--yes").returncode == 0
        later = {write.key.tags for write in intake.write_log[writes:]}
        assert {"project:bees" in tags for tags in later} == {True}

    def test_killed_again_and_again_it_ends_as_if_it_had_never_been(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        fleet.set_constant("intake.py", "BATCH_SIZE", "60")
        fleet.set_constant("execution/delivery.py", "SAVE_EVERY", "0")
        seed = time.time_ns()
        chance = random.Random(seed)
        options = fixed(48)
        span = span_of(options)
        asked = {"since": span.since, "until": span.until, "asked": options}
        with CrashHarness(fleet, intake, "wandb") as harness:
            for _ in range(10):
                point = chance.choice(AT_THE_INTAKE + AT_THE_STORE)
                nth = chance.randint(1, 3)
                if point in AT_THE_INTAKE and chance.random() < 0.75:
                    nth += len(NAMES)  # behind the preflight, which asks about each name
                kill = Kill(point, nth)
                assert harness.run(kill, backfill=asked) is None, f"{kill} did not happen, seed {seed}"
            assert harness.kills == 10
            outcome = harness.run(backfill=asked)
        assert outcome is not None
        assert outcome["status"] == "ok", outcome
        assert held(intake) == truth(wandb.projects["acme", "ants"], span)


def record(seq: int, at: float) -> str:
    """A line that a pipeline leaves behind."""
    return json.dumps(
        {
            "schema_version": 1,
            "kind": "xenna",
            "event": "stats",
            "run_id": "r1",
            "seq": seq,
            "timestamp": at,
            "host": "node-1",
            "pid": 7,
            "pipeline_kind": "curate",
            "run_hash": "3f9d",
            "metrics": {"progress": seq / 10},
            "stages": [],
        }
    )


class TestFiles:
    NAME = "xenna.pipeline.progress"

    @pytest.fixture
    def pipelines(self, project: Project, intake: Intake, tmp_path: Path) -> Project:
        """A pipeline that wrote a record a minute for ten hours, and one line of garbage."""
        project.keep("xenna")
        (tmp_path / "store").mkdir()
        self.start = int(time.time()) // 60 * 60 - 13 * 3600
        lines = [record(number + 1, self.start + 60 * number) for number in range(600)]
        (tmp_path / "records.jsonl").write_text("\n".join([*lines[:100], "{garbage", *lines[100:]]) + "\n")
        project.environment |= {
            "DD_APP_KEY": APP_KEY,
            "FLEETGAUGE_CHECKPOINTS": str(tmp_path / "store"),
            "FLEETGAUGE_XENNA_PATHS": str(tmp_path / "*.jsonl"),
        }
        intake.historical.add(self.NAME)
        return project

    def expected(self, since: int, until: int) -> dict[int, float]:
        seconds = {self.start + 60 * number: (number + 1) / 10 for number in range(600)}
        return {second: value for second, value in seconds.items() if since <= second < until}

    def held(self, intake: Intake) -> dict[int, float]:
        return {key.second: value for key, value in intake.points.items() if key.metric == self.NAME}

    def test_a_span_is_read_out_of_files_again_and_what_is_bad_counts_once(
        self, pipelines: Project, intake: Intake, tmp_path: Path
    ) -> None:
        since, until = self.start + 3600, self.start + 5 * 3600
        options = ["--since", iso(since), "--until", iso(until), "--push", "--yes", "--json"]
        document = pipelines.document("xenna", *options)
        [entry] = document["collectors"]
        assert (entry["status"], entry["dropped"]) == ("ok", {"not_json": 1})
        assert self.held(intake) == self.expected(since, until)
        assert intake.names() == [self.NAME]
        assert list((tmp_path / "store").glob("xenna-*.json")) == []

    def test_killed_again_and_again_it_ends_as_if_it_had_never_been(
        self, pipelines: Project, intake: Intake
    ) -> None:
        pipelines.set_constant("intake.py", "BATCH_SIZE", "20")
        pipelines.set_constant("execution/delivery.py", "SAVE_EVERY", "0")
        since, until = self.start + 3600, self.start + 9 * 3600
        asked = {"since": since, "until": until, "asked": ["--since", iso(since), "--until", iso(until)]}
        chance = random.Random(5)
        with CrashHarness(pipelines, intake, "xenna") as harness:
            for _ in range(5):
                point = chance.choice(AT_THE_INTAKE + AT_THE_STORE)
                kill = Kill(point, chance.randint(1, 3))
                assert harness.run(kill, backfill=asked) is None, f"{kill} did not happen"
            outcome = harness.run(backfill=asked)
        assert outcome is not None
        assert outcome["status"] == "ok", outcome
        assert self.held(intake) == self.expected(since, until)
