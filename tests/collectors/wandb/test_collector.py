"""The collector as a whole: settings, projects, what it emits, and the command line over a demo's fleet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from collectors.wandb import collector, metrics
from collectors.wandb.collector import COLLECTOR
from collectors.wandb.ledger import Ledger
from collectors.wandb.runs import RunReader
from collectors.wandb.settings import Project
from common.errors import DeadlineExceededError
from common.window import Window
from support.points import points
from support.servers.fleet import plausible_day
from support.servers.wandb import KEY, Wandb
from support.wandb_runs import AT, Ran, check, collect, context, row, rows, settings
from support.wandb_week import answered

ROOT = Path(__file__).resolve().parents[3]


def test_settings_reach_the_numbers(server: Wandb) -> None:
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
    variables = {"STALE_AFTER": "1h", "PUSH_TO_MAIN": "ci.*", "GPU_COUNT_KEY": "world", "ASSUMED_GPUS": "3"}
    for window, completed, hours in (("2h", 1, 6), ("5h", 2, 16 + 6)):
        options: dict[str, Any] = {f"FLEETGAUGE_WANDB_{name}": text for name, text in variables.items()}
        ran = collect(server, FLEETGAUGE_WANDB_WINDOW=window, **options)
        assert ran.value("push_to_main.runs_completed_24h") == completed
        assert (ran.value("runs.active"), ran.value("training.gpus_in_use")) == (1, 3)
        assert ran.value("training.total_gpu_hours_24h") == hours


class FailingLimit(int):
    """A limit on groups with a defect: a project of three groups cannot be compared with it."""

    def __lt__(self, number: int) -> bool:
        if number == 3:
            raise RuntimeError("a defect")
        return int(self) < number


class TestProjects:
    @pytest.mark.parametrize("days", [0, 3])
    def test_one_whose_metrics_cannot_be_computed_costs_only_itself(self, server: Wandb, days: int) -> None:
        window = Window(AT - days * 86_400, AT, 900) if days else None
        for project, users in (("ants", 1), ("bees", 3), ("cows", 2)):
            server.add("acme", project, [row(f"r{n}", user=f"u{n}", started=-30) for n in range(users)])
        ran = Ran()
        given = context(server, ran, window=window, WANDB_PROJECTS="acme/ants,acme/bees,acme/cows")
        limit = given.settings.model_copy(update={"max_groups": FailingLimit(200)})
        found = points(collector.collect(replace(given, settings=limit)))
        assert [lost.partition(":")[0] for lost in ran.report.lost] == ["acme/bees"]
        for project in ("ants", "cows"):
            alone = collect(server, window=window, WANDB_PROJECTS=f"acme/{project}")
            assert {*alone.points} == {point for point in found if f"project:{project}" in point.tags}
            assert alone.points

    def test_time_that_is_over_is_over_for_all(self, server: Wandb) -> None:
        ran = collect(server, deadline=-1, WANDB_PROJECTS="acme/ants,acme/bees")
        assert isinstance(ran.error, DeadlineExceededError)
        assert ran.report.requests == 0


class TestNumbers:
    @hypothesis_settings(max_examples=25, deadline=None)
    @given(st.integers(0, 10**6), st.integers(1, 60), st.integers(0, 5))
    def test_however_it_is_paged_the_numbers_are_those_of_the_rows(
        self, seed: int, page_size: int, repeated: int
    ) -> None:
        fleet = plausible_day(AT, runs=60, seed=seed)
        with Wandb() as server:
            server.repeated = repeated
            server.add("acme", "ants", fleet)
            ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE=str(page_size))
            options = settings(server)
        reading = RunReader("github.sky.*", None, 1, options.owners)
        shown = [answered(one) for one in fleet if not one.hidden]
        runs = [run for node in shown if (run := reading.read(node, [])) is not None]
        ledger = Ledger(Project("acme", "ants"), runs, range(AT, AT + 1), options, live=True)
        expected = points(series for stretch in ledger.stretches() for series in stretch)
        measured = {metrics.UNSEEN, *metrics.OBSERVED}
        found, truth = (
            {each for each in some if each.metric not in measured} for some in (ran.points, expected)
        )
        assert found == truth
        assert ran.value("runs.unseen") == 2


class TestDeclarations:
    def test_the_twenty_names_users_know_are_there(self) -> None:
        parts = {
            "runs": ("active", "completed_24h", "failed_24h", "total_recent"),
            "training": ("avg_duration_hours", "total_gpu_hours_24h"),
            "push_to_main": (
                *("runs_completed_24h", "runs_failed_24h", "success_rate_pct", "avg_duration_hours"),
                *("overview.steps_per_second", "overview.epoch_steps_per_second", "overview.sps"),
                *("timing_cumulative.sps", "timing_per_epoch.sps"),
            ),
            "sweep": (
                *("runs_total_24h", "runs_completed_24h", "runs_failed_24h", "runs_active"),
                "success_rate_pct",
            ),
        }
        known = {f"wandb.{part}.{name}" for part, names in parts.items() for name in names}
        declared = {metric.name for metric in COLLECTOR.metrics}
        assert (len(known), known - declared) == (20, set())
        assert len(declared) == len(COLLECTOR.metrics)


class TestCheck:
    @pytest.mark.parametrize(
        ("key", "sent"), [("", "as they are"), ("k" * 16, "as keyed hashes")], ids=["plain", "hashed"]
    )
    def test_it_says_what_the_key_can_read_and_how_users_are_sent(
        self, server: Wandb, key: str, sent: str
    ) -> None:
        server.add("acme", "ants", rows(1200))
        hashing: dict[str, Any] = {"FLEETGAUGE_WANDB_USER_HASH_KEY": key} if key else {}
        assert check(server, **hashing).findings == [
            f"usernames are sent {sent}",
            "projects of acme that the key can read: 1, with 1,200 runs to look at",
        ]
        server.bad_key_status = 401
        assert check(server, WANDB_API_KEY="x" * 40, **hashing).findings == [f"usernames are sent {sent}"]

    def test_it_names_every_project_that_cannot_be_read(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(2))
        ran = check(server, WANDB_PROJECTS="acme/aunts,acme/ants,acme/beets")
        assert ran.findings[1:] == ["projects of acme that the key can read: 1, with 2 runs to look at"]
        assert [lost.partition(":")[0] for lost in ran.report.lost] == ["acme/aunts", "acme/beets"]

    def test_it_counts_the_runs_and_names_the_seconds_that_a_run_would_lose(self, server: Wandb) -> None:
        crowd = [row(f"c{index}", started=-2, hidden=index % 3 == 0) for index in range(9)]
        # Its config is also in the listing of active runs.
        active = row("active", "running", ended=-0.01, config="{", system="{")
        listed = server.add("acme", "ants", [row("odd", "exploded"), active, *crowd, *rows(20)])
        listed[-1].unservable = True
        size: dict[str, Any] = {"FLEETGAUGE_WANDB_PAGE_SIZE": "4"}
        checked, ran = check(server, deadline=500, **size), collect(server, deadline=500, **size)
        dropped = {"unknown_state": 1, "unserved_run": 1, "bad_config": 1, "bad_system_metrics": 1}
        assert checked.dropped == ran.dropped == dropped
        assert checked.report.lost == ran.report.lost
        assert "acme/ants, runs created at" in str(checked.report.lost)


def test_a_dry_run_over_the_demo_prints_exactly_the_declared_metrics(server: Wandb) -> None:
    server.add("acme", "ants", plausible_day(time.time()))
    environ = {"PATH": os.environ["PATH"], "WANDB_API_KEY": KEY, "WANDB_BASE_URL": server.url}
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "run_collector.py"), "wandb", "--json"],
        env={**environ, "WANDB_PROJECTS": "acme/ants", "FLEETGAUGE_WANDB_GPU_PRICES": "h100=2.49"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    [outcome] = json.loads(done.stdout)["collectors"]
    assert (outcome["status"], outcome["dropped"]) == ("ok", {"bad_summary": 1})
    # What is idle needs a store.
    idle = {metrics.USAGE_IDLE, metrics.IDLE_COST, metrics.IDLE_GPUS, metrics.IDLE_SECONDS}
    expected = {metric.name for metric in COLLECTOR.metrics if metric not in idle}
    assert {one["metric"] for one in outcome["samples"]} == expected
    assert KEY not in done.stdout + done.stderr
