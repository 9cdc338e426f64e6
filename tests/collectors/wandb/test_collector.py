"""The collector as a whole: settings, projects, what it emits, and the command line over a demo's fleet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from collectors.wandb import metrics
from collectors.wandb.collector import COLLECTOR
from collectors.wandb.groups import Owners
from collectors.wandb.ledger import Ledger
from collectors.wandb.runs import RunReader
from collectors.wandb.settings import Project, WandbSettings
from common.config.sources import ConfigurationFile, load
from common.errors import ConfigurationError, DeadlineExceededError, NotConfiguredError, SourceError
from support.points import points
from support.servers.faults import Fault
from support.servers.fleet import Row, plausible_day
from support.servers.wandb import KEY, Wandb
from support.wandb_runs import AT, HOUR, check, collect, row, rows

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def server() -> Iterator[Wandb]:
    with Wandb() as running:
        yield running


def loaded(**variables: str) -> WandbSettings:
    return load(WandbSettings, "wandb", environ=variables, file=ConfigurationFile())


class TestSettings:
    def test_several_projects_or_one(self) -> None:
        several = loaded(WANDB_API_KEY=KEY, WANDB_PROJECTS="acme/ants, acme/bees,acme/ants", WANDB_ENTITY="x")
        assert several.chosen() == [Project("acme", "ants"), Project("acme", "bees")]
        one = loaded(WANDB_API_KEY=KEY, WANDB_ENTITY="acme", WANDB_PROJECT="ants")
        assert one.chosen() == [Project("acme", "ants")]

    @pytest.mark.parametrize(
        "variables",
        [{}, {"WANDB_ENTITY": "acme"}, {"WANDB_PROJECT": "ants"}, {"WANDB_PROJECTS": " , "}],
    )
    def test_without_a_project_it_is_not_configured(self, variables: dict[str, str]) -> None:
        with pytest.raises(NotConfiguredError, match=r"WANDB_PROJECTS \(or WANDB_ENTITY and WANDB_PROJECT\)"):
            loaded(WANDB_API_KEY=KEY, **variables)

    def test_without_a_key_it_is_not_configured(self) -> None:
        with pytest.raises(NotConfiguredError, match="WANDB_API_KEY is not set"):
            loaded(WANDB_PROJECTS="acme/ants")

    @pytest.mark.parametrize("project", ["ants", "acme/", "/ants", "acme/ants/runs"])
    def test_a_project_is_written_with_its_entity(self, project: str) -> None:
        with pytest.raises(ConfigurationError, match="write entity/project") as caught:
            loaded(WANDB_API_KEY=KEY, WANDB_PROJECTS=project)
        assert not isinstance(caught.value, NotConfiguredError)

    def test_the_defaults_are_those_of_the_specification(self) -> None:
        made = loaded(WANDB_API_KEY=KEY, WANDB_PROJECTS="acme/ants")
        assert (made.window, made.stale_after, made.page_size, made.pause) == (86_400, 900, 500, 0)
        assert (made.push_to_main, made.gpu_count_key, made.assumed_gpus) == ("github.sky.*", None, 1)
        assert made.base_url == "https://api.wandb.ai"

    def test_settings_reach_the_numbers(self, server: Wandb) -> None:
        config = {"world": {"value": 16}}
        server.add(
            "acme",
            "ants",
            [
                row("a", started=-4, ended=-3, config=config, name="ci.x"),
                row("b", started=-2, ended=-1, name="ci.y"),
                row("c", "running", started=-1, ended=-0.5),
            ],
        )
        ran = collect(
            server,
            FLEETGAUGE_WANDB_WINDOW="2h",
            FLEETGAUGE_WANDB_STALE_AFTER="1h",
            FLEETGAUGE_WANDB_PUSH_TO_MAIN="ci.*",
            FLEETGAUGE_WANDB_GPU_COUNT_KEY="world",
            FLEETGAUGE_WANDB_ASSUMED_GPUS="3",
        )
        assert ran.value("push_to_main.runs_completed_24h") == 1
        assert ran.value("runs.active") == 1
        assert ran.value("training.gpus_in_use") == 3
        assert ran.value("training.total_gpu_hours_24h") == 6

    def test_a_longer_window_reads_further_back(self, server: Wandb) -> None:
        server.add("acme", "ants", [row("a", started=-40, ended=-30)])
        assert collect(server).value("runs.completed_24h") == 0
        assert collect(server, FLEETGAUGE_WANDB_WINDOW="48h").value("runs.completed_24h") == 1


class TestProjects:
    def test_every_sample_is_of_the_tick_and_tagged_with_entity_and_project(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(2))
        server.add("other", "bees", rows(3))
        ran = collect(server, WANDB_PROJECTS="acme/ants,other/bees")
        assert ran.value("runs.completed_24h", "entity:acme", "project:ants") == 2
        assert ran.value("runs.completed_24h", "entity:other", "project:bees") == 3
        assert {sample.timestamp for sample in ran.points} == {AT}
        assert {sample.host for sample in ran.points} == {None}
        assert all(any(tag.startswith("entity:") for tag in sample.tags) for sample in ran.points)

    @pytest.mark.parametrize("place", [0, 1])
    def test_one_that_fails_costs_only_itself(self, server: Wandb, place: int) -> None:
        server.add("acme", "ants", rows(2))
        projects = ["acme/ants"]
        projects.insert(place, "acme/gone")
        ran = collect(server, WANDB_PROJECTS=",".join(projects))
        assert ran.error is None
        assert ran.value("runs.completed_24h", "project:ants") == 2
        assert len(ran.report.lost) == 1
        assert ran.report.lost[0].startswith("acme/gone: ")

    def test_one_that_there_is_no_time_for_is_lost_and_the_others_stand(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(2))
        ran = collect(server, WANDB_PROJECTS="acme/ants,acme/bees", FLEETGAUGE_WANDB_PAUSE="10m")
        assert ran.error is None
        assert ran.value("runs.completed_24h", "project:ants") == 2
        assert [unit.partition(":")[0] for unit in ran.report.lost] == ["acme/bees"]

    def test_if_all_fail_the_run_has_failed(self, server: Wandb) -> None:
        ran = collect(server, WANDB_PROJECTS="acme/gone,acme/lost")
        assert isinstance(ran.error, ConfigurationError)
        assert "acme/gone" in str(ran.error)
        assert (ran.points, ran.report.lost) == ([], [])

    def test_a_refused_key_ends_it_for_all(self, server: Wandb) -> None:
        server.bad_key_status = 401
        ran = collect(
            server,
            WANDB_PROJECTS=",".join(f"acme/p{number}" for number in range(30)),
            WANDB_API_KEY="another-key-another-key-another-key",
        )
        assert isinstance(ran.error, ConfigurationError)
        assert "check WANDB_API_KEY and WANDB_BASE_URL" in str(ran.error)
        assert ran.report.requests <= 6

    def test_time_that_is_over_is_over_for_all(self, server: Wandb) -> None:
        ran = collect(server, deadline=-1, WANDB_PROJECTS="acme/ants,acme/bees")
        assert isinstance(ran.error, DeadlineExceededError)
        assert ran.report.requests == 0


class TestNumbers:
    def test_an_empty_project_is_all_zeros_and_no_failure(self, server: Wandb) -> None:
        server.add("acme", "ants")
        ran = collect(server)
        assert ran.error is None
        assert {sample.value for sample in ran.points} == {0}
        assert ran.value("runs.active") == ran.value("runs.unseen") == 0
        assert ran.value("push_to_main.success_rate_pct") is None

    def test_long_runs_zombies_and_bad_rows_are_each_what_they_are(self, server: Wandb) -> None:
        server.add(
            "acme",
            "ants",
            [
                row("long", "running", started=-300, ended=-0.01, gpu_count=8),
                row("zombie", "running", started=-900, ended=-800, gpu_count=8),
                row("died", "crashed", started=-100, ended=-1, gpu_count=2),
                row("skewed", "finished", started=-1, ended=-2),
                row("naive", "finished", ended=-1, compute_seconds=HOUR),
                Row("unreadable", "failed", "soon", AT - 10.0, "x"),
                row("old", "finished", started=-60, ended=-50),
            ],
        )
        server.projects["acme", "ants"][4].created_at = "2026-11-14T20:00:00.25"
        ran = collect(server)
        assert ran.value("runs.active") == 1
        assert ran.value("runs.stale") == 1
        assert (ran.value("runs.failed_24h"), ran.value("runs.crashed_24h")) == (1, 1)
        assert ran.value("runs.completed_24h") == 2
        assert ran.value("runs.total_recent") == 4
        assert ran.value("training.avg_duration_hours") == (99 + 1) / 2
        hours = 24 * 8 + 23 * 2 + 1
        assert ran.value("training.total_gpu_hours_24h") == pytest.approx(hours, rel=1e-12)
        assert ran.dropped == {"negative_duration": 1, "bad_timestamp": 1}

    @hypothesis_settings(max_examples=25, deadline=None)
    @given(st.integers(0, 10**6), st.integers(1, 60), st.integers(0, 5), st.booleans())
    def test_however_it_is_paged_the_numbers_are_those_of_the_rows(
        self, seed: int, page_size: int, repeated: int, cursors: bool
    ) -> None:
        fleet = plausible_day(AT, runs=60, seed=seed)
        with Wandb() as server:
            server.repeated, server.cursor_on_empty_pages = repeated, cursors
            server.add("acme", "ants", fleet)
            ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE=str(page_size))
        reading = RunReader("github.sky.*", None, 1, Owners(("user", "gpu_type")))
        shown = [one.node() for one in fleet if not one.hidden]
        for node in shown:
            node["config"], node["summaryMetrics"] = node["config"](None), node["summaryMetrics"](None)
        runs = [run for node in shown if (run := reading.read(node, [])) is not None]
        options = loaded(WANDB_API_KEY=KEY, WANDB_PROJECTS="acme/ants")
        ledger = Ledger(Project("acme", "ants"), runs, range(AT, AT + 1), options, live=True)
        expected = {*points(series for stretch in ledger.stretches() for series in stretch)}
        measured = {metrics.UNSEEN, *metrics.OBSERVED}
        found = {point for point in ran.points if point.metric not in measured}
        assert found == expected
        assert ran.value("runs.unseen") == 2

    def test_what_waits_or_is_stale_does_not_depend_on_a_tick_that_was_missed(self, server: Wandb) -> None:
        server.add(
            "acme",
            "ants",
            [
                row("waits", "pending", started=-24.5, ended=None),
                row("waits longer", "pending", started=-24 * 29, ended=None),
                row("forgotten", "pending", started=-24 * 31, ended=None),
                row("stale", "preempting", started=-900, ended=-24.5),
            ],
        )
        in_time = collect(server, sent_until=AT - 900)
        late = collect(server, sent_until=AT - 3 * 900)
        for ran in (in_time, late):
            assert (ran.value("runs.pending"), ran.value("runs.stale")) == (2, 1)
            assert ran.value("runs.oldest_pending_seconds") == 24 * 29 * HOUR


class TestDeclarations:
    def test_what_is_declared_is_emitted_and_what_is_emitted_is_declared(self, server: Wandb) -> None:
        server.add("acme", "ants", plausible_day(AT))
        prices: dict[str, Any] = {"FLEETGAUGE_WANDB_GPU_PRICES": "h100=2.49"}
        memory: dict[str, object] = {}
        for at in range(AT - HOUR, AT + 1, 900):
            ran = collect(server, at=at, memory=memory, **prices)
            memory = ran.memory
        assert {sample.metric for sample in ran.points} == set(COLLECTOR.metrics)

    def test_the_twenty_names_users_know_are_there(self) -> None:
        names = {metric.name for metric in COLLECTOR.metrics}
        assert names >= {
            "wandb.runs.active",
            "wandb.runs.completed_24h",
            "wandb.runs.failed_24h",
            "wandb.runs.total_recent",
            "wandb.training.avg_duration_hours",
            "wandb.training.total_gpu_hours_24h",
            "wandb.push_to_main.runs_completed_24h",
            "wandb.push_to_main.runs_failed_24h",
            "wandb.push_to_main.success_rate_pct",
            "wandb.push_to_main.avg_duration_hours",
            "wandb.push_to_main.overview.steps_per_second",
            "wandb.push_to_main.overview.epoch_steps_per_second",
            "wandb.push_to_main.overview.sps",
            "wandb.push_to_main.timing_cumulative.sps",
            "wandb.push_to_main.timing_per_epoch.sps",
            "wandb.sweep.runs_total_24h",
            "wandb.sweep.runs_completed_24h",
            "wandb.sweep.runs_failed_24h",
            "wandb.sweep.runs_active",
            "wandb.sweep.success_rate_pct",
        }
        assert len(names) == len(COLLECTOR.metrics) == 56


class TestCheck:
    def test_it_says_what_the_key_can_read(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1200))
        ran = check(server)
        assert ran.findings == [
            "the key can read acme/ants, which has 1,200 runs to look at",
            "usernames are sent as they are",
        ]
        [asked] = [request.variables for request in server.requests]
        assert (asked["first"], asked["after"]) == (1, None)

    def test_it_says_that_a_server_rejects_what_it_was_not_asked_for(self, server: Wandb) -> None:
        said = '{"errors": [{"message": "Cannot query field \\"tags\\""}]}'
        server.faults.add(Fault(status=400, body=said), times=None)
        ran = check(server)
        assert isinstance(ran.error, SourceError)
        assert len(server.requests) == 2  # it was left out, and rejected again

    def test_it_says_that_usernames_are_hashed(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1))
        assert check(server, FLEETGAUGE_WANDB_USER_HASH_KEY="k" * 16).findings[1:] == [
            "usernames are sent as keyed hashes"
        ]

    def test_it_says_what_the_server_lacks(self, server: Wandb) -> None:
        server.remove("Run.runInfo", "RunConnection.totalCount")
        server.add("acme", "ants")
        ran = check(server)
        assert ran.findings[0] == "the key can read acme/ants"
        assert [finding.split(": ")[1] for finding in ran.findings[1:-1]] == ["runInfo", "totalCount"]

    def test_it_names_every_project_that_cannot_be_read(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(2))
        ran = check(server, WANDB_PROJECTS="acme/aunts,acme/ants,acme/beets")
        assert ran.findings[0] == "the key can read acme/ants, which has 2 runs to look at"
        assert isinstance(ran.error, ConfigurationError)
        assert [name in str(ran.error) for name in ("acme/aunts", "acme/ants", "acme/beets")] == [
            True,
            False,
            True,
        ]

    def test_it_raises_for_what_is_not_good(self, server: Wandb) -> None:
        assert isinstance(check(server).error, ConfigurationError)
        server.faults.add(Fault(status=500), times=None)
        assert isinstance(check(server).error, SourceError)


def dry_run(server: Wandb, **environ: str) -> subprocess.CompletedProcess[str]:
    """What a person sees who looks at the runs of a server, as JSON."""
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "run_collector.py"), "wandb", "--json"],
        env={"PATH": os.environ["PATH"], "WANDB_API_KEY": KEY, "WANDB_BASE_URL": server.url, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class TestCommandLine:
    def test_a_dry_run_over_the_demo_prints_exactly_the_declared_metrics(self, server: Wandb) -> None:
        import time

        server.add("acme", "ants", plausible_day(time.time()))
        done = dry_run(server, WANDB_PROJECTS="acme/ants", FLEETGAUGE_WANDB_GPU_PRICES="h100=2.49")
        assert done.returncode == 0
        [outcome] = json.loads(done.stdout)["collectors"]
        assert outcome["status"] == "ok"
        idle = {
            metrics.USAGE_IDLE,
            metrics.IDLE_COST,
            metrics.IDLE_GPUS,
            metrics.IDLE_SECONDS,
        }  # need a store
        expected = {metric.name for metric in COLLECTOR.metrics if metric not in idle}
        assert {one["metric"] for one in outcome["samples"]} == expected
        assert outcome["dropped"] == {"bad_summary": 1}
        assert KEY not in done.stdout + done.stderr

    def test_more_series_than_the_cap_are_said_with_its_name(self, server: Wandb) -> None:
        for place in range(20):
            server.add("acme", f"p{place}", rows(1))
        done = dry_run(server, WANDB_PROJECTS="acme/*", FLEETGAUGE_SERIES_CAP="100")
        [outcome] = json.loads(done.stdout)["collectors"]
        beyond = outcome["dropped"]["series_cap"]
        assert (beyond >= 280, outcome["status"], done.returncode) == (True, "partial", 1)
        assert f"lost {beyond} series: there are more than FLEETGAUGE_SERIES_CAP allows" in done.stderr
