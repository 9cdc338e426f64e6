"""The past, from the command line to the intake: looked at, allowed, sent, interrupted and gone on with."""

from __future__ import annotations

import csv
import json
import os
import pty
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.wandb.collector import COLLECTOR, samples
from collectors.wandb.evaluate import Rules, evaluate_many
from collectors.wandb.metrics import LIVE_ONLY
from collectors.wandb.runs import Reading
from collectors.wandb.settings import Project as Team
from common import cli
from common.settings import CoreSettings
from common.span import Span
from common.times import iso
from crash_harness import AT_THE_INTAKE, AT_THE_STORE, CrashHarness, Kill
from project import Project
from servers.datadog import Intake
from servers.faults import Fault
from servers.fleet import Row, plausible_day
from servers.wandb import KEY as WANDB_KEY
from servers.wandb import Wandb

STEP = 900
APP_KEY = "test-app-key"
NAMES = {metric.name for metric in COLLECTOR.metrics if metric not in LIVE_ONLY}
Points = dict[tuple[str, int, tuple[str, ...]], float]


@pytest.fixture
def wandb() -> Iterator[Wandb]:
    with Wandb() as server:
        server.add("acme", "ants", plausible_day(time.time(), runs=60))
        yield server


@pytest.fixture
def fleet(project: Project, wandb: Wandb, intake: Intake, tmp_path: Path) -> Project:
    """A copy of the service with W&B, a store, and an application key; ingestion of the past is on."""
    project.keep("wandb")
    store = tmp_path / "store"
    store.mkdir()
    project.environment |= {
        "WANDB_API_KEY": WANDB_KEY,
        "WANDB_PROJECTS": "acme/ants",
        "WANDB_BASE_URL": wandb.url,
        "DD_APP_KEY": APP_KEY,
        "FLEETGAUGE_CHECKPOINTS": str(store),
    }
    intake.historical |= NAMES
    return project


def fixed(hours: float) -> list[str]:
    """The options of a span of so many hours that ended at the last tick."""
    until = int(time.time()) // STEP * STEP
    return ["--since", iso(until - round(hours * 3600)), "--until", iso(until)]


def span_of(options: list[str]) -> Span:
    since, until = (int(time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))) for text in options[1::2])
    return Span(since - time.timezone, until - time.timezone, STEP)


def truth(rows: list[Row], span: Span) -> Points:
    """Every point of a span, from the rows themselves."""
    reading = Reading("github.sky.*", None, 1)
    runs = [run for row in rows if not row.hidden and (run := reading.read(_answered(row), []))]
    found: Points = {}
    for figures in evaluate_many(runs, span.ticks, Rules()):
        for sample in samples(Team("acme", "ants"), figures, live=False):
            found[sample.metric.name, sample.timestamp, sample.tags] = sample.value
    return found


def _answered(row: Row) -> dict[str, Any]:
    node = row.node()
    return {key: value(None) if callable(value) else value for key, value in node.items()}


def held(intake: Intake) -> Points:
    """What the intake holds, without the tags that every point has."""
    common = {"env:test", "service:fleetgauge"}
    return {
        (key.metric, key.second, tuple(tag for tag in key.tags if tag not in common)): value
        for key, value in intake.points.items()
    }


def pushes(intake: Intake) -> int:
    return sum(request.path == "/api/v2/series" for request in intake.requests)


class TestPush:
    def test_every_tick_of_the_span_arrives_as_it_was_and_nothing_else(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        options = fixed(30)
        ran = fleet.run("wandb", *options, "--push")
        assert ran.returncode == 0, ran.stderr
        expected = truth(wandb.projects["acme", "ants"], span_of(options))
        assert held(intake) == expected
        assert len({at for _, at, _ in expected}) == 120
        assert len(wandb.requests) == 1
        assert f"{len(expected):,} points in " in ran.stderr
        assert "visible within 14 hours" in ran.stderr
        assert f"wandb: sending, {len(expected)} of {len(expected)}" in ran.stderr

    def test_sending_it_again_changes_nothing(self, fleet: Project, intake: Intake) -> None:
        options = fixed(3)
        assert fleet.run("wandb", *options, "--push").returncode == 0
        before, writes = held(intake), len(intake.write_log)
        assert fleet.run("wandb", *options, "--push").returncode == 0
        assert held(intake) == before
        assert len(intake.write_log) == 2 * writes

    def test_a_live_tick_and_a_backfill_write_the_same_points(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0
        live = {key: value for key, value in held(intake).items() if key[0] in NAMES}
        assert len(live) > 20
        intake.points.clear()
        assert fleet.run("wandb", "--since", "20m", "--push").returncode == 0
        assert {key: value for key, value in held(intake).items() if key in live} == live

    def test_the_live_checkpoint_is_not_moved_and_no_self_metric_is_sent(
        self, fleet: Project, intake: Intake, tmp_path: Path
    ) -> None:
        assert fleet.run("wandb", *fixed(3), "--push").returncode == 0
        assert not [name for name in intake.names() if name.startswith("collector.")]
        assert not (tmp_path / "store" / "wandb.json").exists()

    def test_parts_in_parallel_add_up_to_the_whole(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        options = fixed(5)
        started = [fleet.start("wandb", *options, "--push", "--slice", f"{part}/3") for part in range(2)]
        last = fleet.run("wandb", *options, "--push", "--slice", "/3", JOB_COMPLETION_INDEX="2")
        assert [*(run.wait(60) for run in started), last.returncode] == [0, 0, 0]
        for run in started:
            run.communicate()
        assert held(intake) == truth(wandb.projects["acme", "ants"], span_of(options))
        assert len(intake.write_log) == len(intake.points)

    def test_without_a_store_it_is_sent_all_the_same(self, fleet: Project, intake: Intake) -> None:
        ran = fleet.run("wandb", *fixed(2), "--push", FLEETGAUGE_CHECKPOINTS="")
        assert ran.returncode == 0, ran.stderr
        assert len({at for _, at, _ in held(intake)}) == 8


class TestPreflight:
    def test_where_ingestion_is_off_nothing_is_sent_and_the_command_is_named(
        self, fleet: Project, intake: Intake
    ) -> None:
        intake.historical -= {"wandb.runs.active", "wandb.sweep.active_sweeps"}
        ran = fleet.run("wandb", "--since", "3h", "--push")
        assert ran.returncode == 2
        assert pushes(intake) == 0
        assert "wandb.runs.active" in ran.stdout
        assert "wandb.sweep.active_sweeps" in ran.stdout
        assert "wandb.runs.failed_24h" not in ran.stdout
        assert "run_collector.py wandb --since 3h --push --enable-historical" in ran.stdout
        part = fleet.run("wandb", *fixed(3), "--push", "--slice", "0/2")
        assert "--slice 0/2 --push --enable-historical" in part.stdout

    def test_only_what_is_enabled_can_be_sent(self, fleet: Project, intake: Intake) -> None:
        intake.historical &= {"wandb.runs.active", "wandb.runs.failed_24h"}
        ran = fleet.run("wandb", *fixed(3), "--push", "--only-enabled")
        assert ran.returncode == 0, ran.stderr
        assert intake.names() == ["wandb.runs.active", "wandb.runs.failed_24h"]
        assert len(intake.points) == 24
        assert "24 points in 2 series" in ran.stderr
        assert (
            "Historical Metrics Ingestion is off, and they are left out, for wandb.push_to_main" in ran.stderr
        )

    def test_where_nothing_is_enabled_nothing_is_sent_and_that_is_no_success(
        self, fleet: Project, intake: Intake
    ) -> None:
        intake.historical.clear()
        ran = fleet.run("wandb", *fixed(3), "--push", "--only-enabled")
        assert ran.returncode == 2
        assert "Historical Metrics Ingestion is off for all metrics: nothing was sent" in ran.stdout

    def test_more_series_than_the_cap_are_refused(self, fleet: Project, intake: Intake) -> None:
        ran = fleet.run("wandb", *fixed(3), "--push", FLEETGAUGE_SERIES_CAP="7")
        assert ran.returncode == 2
        assert re.search(r"would send \d+ series, more than FLEETGAUGE_SERIES_CAP \(7\)", ran.stdout)
        assert not intake.requests

    def test_more_steps_than_can_be_computed_are_refused(self, fleet: Project, wandb: Wandb) -> None:
        ran = fleet.run("wandb", "--since", "30d", "--step", "1s")
        assert ran.returncode == 2
        assert "has 2,592,000 steps of 1 s, more than 500,000: widen --step" in ran.stdout
        assert not wandb.requests

    def test_it_can_be_turned_on_first(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0  # a metric must exist
        intake.historical.clear()
        ran = fleet.run("wandb", *fixed(3), "--push", "--enable-historical")
        assert ran.returncode == 0, ran.stdout
        assert "wandb.runs.active" in intake.historical
        assert len(intake.series("wandb.runs.active").popitem()[1]) == 13

    def test_each_refusal_is_told_with_its_reason(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0
        intake.historical.clear()
        intake.tag_configured = {"wandb.runs.active"}
        pushed = pushes(intake)
        ran = fleet.run("wandb", "--since", "3h", "--push", "--enable-historical")
        assert ran.returncode == 2
        assert re.search(r"wandb\.runs\.active: .*tag configuration", ran.stdout)
        assert pushes(intake) == pushed
        again = fleet.run("wandb", "--since", "3h", "--push", "--enable-historical", "--only-enabled")
        assert again.returncode == 0
        assert re.search(r"wandb\.runs\.active: .*not turned on: it has a tag configuration", again.stderr)
        assert len(intake.series("wandb.runs.active").popitem()[1]) == 1
        assert len(intake.series("wandb.runs.failed_24h").popitem()[1]) >= 12

    def test_without_an_application_key_it_says_where_it_looked(self, fleet: Project, intake: Intake) -> None:
        ran = fleet.run("wandb", "--since", "3h", "--push", DD_APP_KEY="")
        assert ran.returncode == 2
        assert "DD_APP_KEY" in ran.stdout
        assert "the environment" in ran.stdout
        assert pushes(intake) == 0

    def test_the_last_hour_needs_neither_the_key_nor_the_switch(self, fleet: Project, intake: Intake) -> None:
        intake.historical.clear()
        ran = fleet.run("wandb", "--since", "50m", "--push", DD_APP_KEY="")
        assert ran.returncode == 0, ran.stdout
        assert len(intake.series("wandb.runs.active").popitem()[1]) in {3, 4}

    def test_only_a_pushed_backfill_is_given_the_application_key(
        self, project: Project, tmp_path: Path
    ) -> None:
        project.add(
            "nosy",
            """
            (Path('seen') / str(time.time_ns())).write_text(str(dict(os.environ)))
            yield VALUE(1, context.at)
            """,
        )
        (project.root / "seen").mkdir()
        project.run("nosy", "--push", DD_APP_KEY=APP_KEY)
        project.run("nosy", DD_APP_KEY=APP_KEY)
        seen = [path.read_text() for path in (project.root / "seen").iterdir()]
        assert len(seen) == 2
        assert not [text for text in seen if APP_KEY in text]


TOY_PAST = """, past=lambda context, span: lambda: (
    item
    for at in span.ticks
    if at > context.state.get("at", 0)
    for item in (*([TOTAL(1, at)] if at < span.since + 3600 else []), VALUE(1, at), Mark({"at": at}))
)"""


def test_a_metric_that_is_still_off_and_has_no_points_left_is_not_taken_for_on(
    project: Project, intake: Intake, tmp_path: Path
) -> None:
    project.add("toy", "yield VALUE(1, context.at)", options=TOY_PAST)
    project.set_constant("delivery.py", "BATCH", "2")
    project.environment |= {"DD_APP_KEY": APP_KEY, "FLEETGAUGE_CHECKPOINTS": str(tmp_path)}
    intake.historical = {"toy.value"}
    intake.faults.add(Fault(), times=5, match="/api/v2/series")
    intake.faults.add(Fault(status=403), match="/api/v2/series")
    options = [*fixed(6), "--push", "--only-enabled"]
    assert project.run("toy", *options).returncode == 1
    ran = project.run("toy", *options)
    assert ran.returncode == 0, ran.stdout
    assert "beginning anew" not in ran.stderr
    assert len(intake.write_log) == len(intake.points) == 24


def test_whoever_has_seen_enough_of_the_output_sees_no_traceback(fleet: Project) -> None:
    run = fleet.start("wandb", *fixed(30), "--json")
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.read(10)
    run.stdout.close()
    assert "Traceback" not in run.stderr.read()
    run.stderr.close()
    assert run.wait(60) == 141


class TestThePresentOnly:
    def test_a_collector_that_knows_only_the_present_says_so(self, project: Project) -> None:
        project.keep("host")
        ran = project.run("host", "--since", "7d")
        assert ran.returncode == 2
        assert "the past of host cannot be asked: it can only look at what is there now" in ran.stdout

    def test_under_all_it_is_skipped(self, fleet: Project) -> None:
        fleet.keep("host")
        ran = fleet.run("all", "--since", "1h")
        assert ran.returncode == 0, ran.stdout
        assert "host: skipped" in ran.stdout
        assert "wandb: ok" in ran.stdout


def on_a_terminal(project: Project, answer: bytes | signal.Signals, *arguments: str) -> tuple[int, str]:
    """Run with a terminal for its input and its messages; the exit code, and what the terminal showed.

    When it asks, it is answered with a line or a signal.
    """
    master, slave = pty.openpty()
    run = subprocess.Popen(
        project.command(*arguments),
        env={**project.environment, "TERM": "xterm", "COLUMNS": "120"},
        stdin=slave,
        stdout=subprocess.DEVNULL,
        stderr=slave,
        cwd=project.directory,
        start_new_session=True,
    )
    os.close(slave)
    shown, answered = b"", False
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        shown += chunk
        if b"[y/N]" in shown and not answered:
            answered = True
            if isinstance(answer, signal.Signals):
                run.send_signal(answer)
            else:
                os.write(master, answer)
    os.close(master)
    return run.wait(60), shown.decode(errors="replace")


class TestAPerson:
    def test_is_asked_and_may_decline(self, fleet: Project, intake: Intake) -> None:
        code, shown = on_a_terminal(fleet, b"n\n", "wandb", *fixed(3), "--push")
        assert re.search(r"wandb: [\d,]+ points in \d+ series, .* to .*; .*\r?\nSend it\? \[y/N\]", shown)
        assert (code, pushes(intake)) == (0, 0)

    def test_is_asked_before_anything_is_turned_on(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0
        intake.historical.clear()
        code, shown = on_a_terminal(fleet, b"n\n", "wandb", *fixed(3), "--push", "--enable-historical")
        assert "Historical Metrics Ingestion will be turned on for wandb.push_to_main" in shown
        assert (code, intake.historical) == (0, set())

    def test_who_does_not_answer_is_not_waited_for_beyond_the_deadline(
        self, fleet: Project, intake: Intake
    ) -> None:
        code, shown = on_a_terminal(fleet, b"", "wandb", *fixed(3), "--push", "--timeout", "4")
        assert "[y/N]" in shown
        assert (code, pushes(intake)) == (1, 0)

    def test_is_asked_and_may_agree(self, fleet: Project, intake: Intake) -> None:
        code, _ = on_a_terminal(fleet, b"y\n", "wandb", *fixed(3), "--push")
        assert (code, len(intake.series("wandb.runs.active").popitem()[1])) == (0, 12)

    def test_is_not_asked_who_said_yes(self, fleet: Project, intake: Intake) -> None:
        code, shown = on_a_terminal(fleet, b"", "wandb", *fixed(3), "--push", "--yes")
        assert (code, "[y/N]" in shown, "wandb: sending" in shown) == (0, False, True)
        assert len(intake.series("wandb.runs.active").popitem()[1]) == 12

    def test_may_interrupt_instead_of_answering(self, fleet: Project, intake: Intake) -> None:
        code, _ = on_a_terminal(fleet, signal.SIGINT, "wandb", *fixed(3), "--push")
        assert (code, pushes(intake)) == (130, 0)


class TestInterrupted:
    def test_the_same_command_goes_on_with_the_span_it_began_with(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        fleet.set_constant("delivery.py", "BATCH", "60")
        intake.faults.add(Fault(), times=5, match="/api/v2/series")
        intake.faults.add(Fault(status=403), match="/api/v2/series")
        began = time.time()
        first = fleet.run("wandb", "--since", "6h", "--push")
        assert first.returncode == 1
        assert "the same command goes on from here" in first.stderr
        sent = set(held(intake))
        assert 0 < len(sent) < 24 * 25
        second = fleet.run("wandb", "--since", "6h", "--push")
        assert second.returncode == 0, second.stdout
        assert "going on with what was begun" in second.stderr
        span = Span(int(began) - 6 * 3600, int(began), STEP)
        assert held(intake) == truth(wandb.projects["acme", "ants"], span)
        assert len(intake.write_log) == len(intake.points)

    def test_once_it_is_done_the_same_command_begins_anew(self, fleet: Project, intake: Intake) -> None:
        for _ in range(2):
            ran = fleet.run("wandb", *fixed(2), "--push")
            assert "going on" not in ran.stderr
        assert len(intake.write_log) == 2 * len(intake.points)

    def test_what_was_left_out_and_can_be_sent_now_is_sent_from_the_start(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        fleet.set_constant("delivery.py", "BATCH", "60")
        intake.historical.remove("wandb.runs.active")
        intake.faults.add(Fault(), times=2, match="/api/v2/series")
        intake.faults.add(Fault(status=403), match="/api/v2/series")
        options = fixed(6)
        assert fleet.run("wandb", *options, "--push", "--only-enabled").returncode == 1
        intake.historical.add("wandb.runs.active")
        assert fleet.run("wandb", *options, "--push", "--only-enabled").returncode == 0
        assert held(intake) == truth(wandb.projects["acme", "ants"], span_of(options))

    def test_a_second_one_at_the_same_time_fails_instead_of_being_skipped(
        self, fleet: Project, intake: Intake
    ) -> None:
        options = fixed(3)
        seconds: list[subprocess.CompletedProcess[str]] = []

        def start_another(_: object) -> None:
            if not seconds:
                seconds.append(fleet.run("wandb", *options, "--push"))

        intake.on("received", start_another)
        assert fleet.run("wandb", *options, "--push").returncode == 0
        assert seconds[0].returncode == 1
        assert "is held by process" in seconds[0].stdout

    def test_a_project_that_failed_is_all_that_is_left_to_do(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        fleet.environment["WANDB_PROJECTS"] = "acme/ants,acme/bees"
        options = fixed(3)
        first = fleet.run("wandb", *options, "--push")
        assert first.returncode == 1
        assert "lost acme/bees" in first.stdout
        writes = len(intake.write_log)
        wandb.add("acme", "bees", plausible_day(time.time(), runs=20, seed=3))
        assert fleet.run("wandb", *options, "--push").returncode == 0
        later = {write.key.tags for write in intake.write_log[writes:]}
        assert all("project:bees" in tags for tags in later)

    def test_killed_again_and_again_it_ends_as_if_it_had_never_been(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        fleet.set_constant("delivery.py", "BATCH", "60")
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


def test_a_dry_run_shows_the_past_and_sends_nothing(fleet: Project, wandb: Wandb, intake: Intake) -> None:
    options = fixed(30)
    ran = fleet.run("wandb", *options, "--json", DD_APP_KEY="", DD_API_KEY="")
    document = json.loads(ran.stdout)
    [entry] = document["collectors"]
    found = {(one["metric"], one["timestamp"], tuple(one["tags"])): one["value"] for one in entry["samples"]}
    assert found == truth(wandb.projects["acme", "ants"], span_of(options))
    assert entry["status"] == "ok"
    assert not intake.requests


class TestLooking:
    def test_the_table_has_a_row_per_series(self, fleet: Project, intake: Intake) -> None:
        ran = fleet.run("wandb", *fixed(30), DD_APP_KEY="", COLUMNS="220")
        assert ran.returncode == 0, ran.stderr
        [row] = [line.split() for line in ran.stdout.splitlines() if "wandb.runs.active" in line]
        assert row[0] == "wandb.runs.active"
        assert row[-2:] == ["120", "run"]
        assert "nothing sent (dry run)" in ran.stdout
        assert not intake.requests

    def test_every_point_can_be_had_as_csv(self, fleet: Project, wandb: Wandb, tmp_path: Path) -> None:
        options, path = fixed(5), tmp_path / "points.csv"
        assert fleet.run("wandb", *options, "--csv", str(path)).returncode == 0
        with path.open() as lines:
            rows = list(csv.DictReader(lines))
        found = {
            (row["metric"], int(row["timestamp"]), tuple(row["tags"].split())): float(row["value"])
            for row in rows
        }
        assert found == truth(wandb.projects["acme", "ants"], span_of(options))
        assert rows[0]["time"] == iso(int(rows[0]["timestamp"]))

    def test_a_page_draws_every_metric_of_the_part_that_was_asked_for(
        self, fleet: Project, tmp_path: Path
    ) -> None:
        path = tmp_path / "week.html"
        ran = fleet.run("wandb", *fixed(30), "--slice", "1/3", "--html", str(path), FLEETGAUGE_STEP="1800")
        assert ran.returncode == 0, ran.stderr
        page = path.read_text().replace("<wbr>", "")
        assert not [name for name in NAMES if f">{name}<" not in page]
        assert "<dd>30 min<small>20 ticks</small></dd>" in page

    @pytest.mark.parametrize("option", ["--csv", "--html"])
    def test_a_file_that_cannot_be_written_is_said_before_anything_is_read(
        self, fleet: Project, wandb: Wandb, tmp_path: Path, option: str
    ) -> None:
        ran = fleet.run("wandb", "--since", "1h", option, str(tmp_path / "none" / "file"))
        assert ran.returncode == 2
        assert f"{option}: {tmp_path}/none/file cannot be written" in ran.stderr
        assert not wandb.requests


def test_the_parent_and_the_settings_know_the_same_step() -> None:
    assert CoreSettings.model_fields["step"].default == STEP == cli.STEP


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
        options = ["--since", iso(since), "--until", iso(until), "--push", "--json"]
        document = pipelines.document("xenna", *options)
        [entry] = document["collectors"]
        assert (entry["status"], entry["dropped"]) == ("ok", {"not_json": 1})
        assert self.held(intake) == self.expected(since, until)
        assert intake.names() == [self.NAME]
        assert not (tmp_path / "store" / "xenna.json").exists()

    def test_killed_again_and_again_it_ends_as_if_it_had_never_been(
        self, pipelines: Project, intake: Intake
    ) -> None:
        pipelines.set_constant("delivery.py", "BATCH", "20")
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
