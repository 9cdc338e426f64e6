"""Projects and pages side by side: what is asked when, what failures cost whom, and that no order matters."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from collectors.wandb import collector, schedule
from collectors.wandb.api import Answer, Api, Ask
from collectors.wandb.query import touched_since
from collectors.wandb.runs import RunReader
from collectors.wandb.schedule import Request, Schedule
from collectors.wandb.settings import Project
from common.errors import ConfigurationError, DeadlineExceededError, SourceError
from common.net.retry import Deadline
from support.servers.faults import Fault
from support.servers.wandb import HANGS, KEY, Query, Wandb
from support.wandb_runs import AT, Ran, collect, context, row, rows

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def server() -> Iterator[Wandb]:
    with Wandb() as running:
        yield running


def many(server: Wandb, number: int, runs: int = 1) -> str:
    """So many projects, each with its own number of runs; returns the setting that names them."""
    for place in range(number):
        server.add("acme", f"p{place}", rows(runs + place % 3))
    return ",".join(f"acme/p{place}" for place in range(number))


def completed(ran: Ran) -> dict[str, float]:
    return {
        sample.tags[1].removeprefix("project:"): sample.value
        for sample in ran.points
        if sample.metric.name == "wandb.runs.completed_24h"
    }


class TestSideBySide:
    def test_projects_are_read_side_by_side_and_never_by_more_than_is_set(self, server: Wandb) -> None:
        server.latency = lambda _: 0.02
        projects = many(server, 40)
        ran = collect(server, WANDB_PROJECTS=projects, FLEETGAUGE_WANDB_CONNECTIONS="5")
        assert completed(ran) == {f"p{place}": 1 + place % 3 for place in range(40)}
        assert server.most_at_once == 5
        assert server.connections <= 5

    def test_pages_of_one_project_are_read_side_by_side(self, server: Wandb) -> None:
        server.latency = lambda _: 0.02
        server.add("acme", "ants", rows(300))
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert ran.value("runs.completed_24h") == 300
        assert server.most_at_once == 4

    def test_one_connection_asks_one_by_one(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(100))
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10", FLEETGAUGE_WANDB_CONNECTIONS="1")
        assert ran.value("runs.completed_24h") == 100
        assert (server.most_at_once, server.connections) == (1, 1)

    def test_without_a_total_pages_come_one_by_one(self, server: Wandb) -> None:
        server.remove("RunConnection.totalCount")
        server.add("acme", "ants", rows(100))
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert (ran.value("runs.completed_24h"), server.most_at_once) == (100, 1)

    def test_every_first_page_comes_before_any_second(self, server: Wandb) -> None:
        server.latency = lambda _: 0.005
        projects = many(server, 20, runs=30)
        collect(server, WANDB_PROJECTS=projects, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        second = next(
            place for place, query in enumerate(server.requests) if query.variables["after"] is not None
        )
        first = {query.variables["project"] for query in server.requests[: second + 4]}  # four start as one
        assert len(first) == 20

    def test_no_project_holds_all_connections_while_another_waits(self, server: Wandb) -> None:
        server.latency = lambda _: 0.005
        server.add("acme", "large", rows(400))
        projects = many(server, 3, runs=30)
        collect(server, WANDB_PROJECTS=f"acme/large,{projects}", FLEETGAUGE_WANDB_PAGE_SIZE="10")
        asked = [query.variables["project"] for query in server.requests]
        last_of_the_small = max(place for place, name in enumerate(asked) if name != "large")
        assert last_of_the_small <= 30

    @pytest.mark.parametrize("seed", range(4))
    def test_who_answers_first_changes_nothing(self, server: Wandb, seed: int) -> None:
        projects = many(server, 8, runs=25)
        for place in (3, 7, 11):
            server.projects["acme", "p2"][place].hidden = True
        server.projects["acme", "p5"][9].state = "exploded"
        orderly = collect(
            server,
            WANDB_PROJECTS=f"{projects},acme/gone",
            FLEETGAUGE_WANDB_PAGE_SIZE="7",
            FLEETGAUGE_WANDB_CONNECTIONS="1",
        )
        chance = Random(seed)
        server.latency = lambda _: chance.uniform(0, 0.02)
        ran = collect(server, WANDB_PROJECTS=f"{projects},acme/gone", FLEETGAUGE_WANDB_PAGE_SIZE="7")
        assert ran.points == orderly.points
        assert (ran.dropped, ran.report.lost) == (orderly.dropped, orderly.report.lost)

    def test_a_thousand_projects_of_one_run_each_are_all_delivered(self, server: Wandb) -> None:
        names = [f"p{place}" for place in range(1000)]
        for name in names:
            server.add("acme", name, rows(1))
        ran = collect(server, WANDB_PROJECTS=",".join(f"acme/{name}" for name in names))
        assert completed(ran) == dict.fromkeys(names, 1)
        assert ran.report.requests == 1000


class TestTime:
    @pytest.mark.slow
    @pytest.mark.parametrize("place", [0, 9])
    def test_a_project_that_hangs_costs_itself_whatever_its_place(self, server: Wandb, place: int) -> None:
        projects = many(server, 9).split(",")
        projects.insert(place, "acme/hangs")
        server.add("acme", "hangs")
        server.refused["acme", "hangs"] = (HANGS, "")
        ran = collect(server, deadline=4, WANDB_PROJECTS=",".join(projects))
        assert len(completed(ran)) == 9
        [lost] = ran.report.lost
        assert lost.startswith("acme/hangs: ")

    def test_what_is_not_whole_in_time_is_not_sent_and_says_what_to_raise(self, server: Wandb) -> None:
        ran, taken = Ran(), list[object]()
        server.on("read", lambda _: ran.sleep(10))  # so long does every request take, for whoever asks
        server.add("acme", "ants", rows(2000))
        given = context(server, ran, 300, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        told = "of 2,000 rows; raise --timeout or FLEETGAUGE_WANDB_CONNECTIONS"
        with pytest.raises(DeadlineExceededError, match=told):
            taken.extend(collector.collect(given, ran.sleep))
        assert taken == []

    def test_no_thread_outlives_the_run_however_it_ends(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(30))
        collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        server.add("acme", "hangs")
        server.refused["acme", "hangs"] = (HANGS, "")
        both: dict[str, Any] = {"WANDB_PROJECTS": "acme/ants,acme/hangs"}
        collect(server, deadline=0.3, **both)
        left_alone = iter(collector.collect(context(server, Ran(), 60, **both)))
        next(left_alone)
        left_alone.close()  # type: ignore[attr-defined]  # a generator, as the caller may close it
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith("wandb-")] == []

    def test_sigterm_ends_it_while_all_connections_hang(self, server: Wandb) -> None:
        server.add("acme", "hangs")
        server.refused["acme", "hangs"] = (HANGS, "")
        arrived = threading.Event()
        server.on("read", lambda _: arrived.set())
        environ = {
            "PATH": "/usr/bin:/bin",
            "WANDB_API_KEY": KEY,
            "WANDB_PROJECTS": "acme/hangs",
            "WANDB_BASE_URL": server.url,
        }
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "run_collector.py"), "wandb"],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert arrived.wait(30)
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=20)  # a read would hang for 45 s
        finally:
            process.kill()
        assert process.returncode == 143
        assert KEY not in said


class TestOverload:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("status", "said"),
        [(502, "bad gateway"), (504, "gateway timeout"), (500, "context deadline exceeded"), (None, "")],
    )
    def test_a_server_too_slow_for_many_rows_is_asked_for_fewer(
        self, server: Wandb, status: int | None, said: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if status is None:
            monkeypatch.setattr("common.net.http.READ_TIMEOUT", 2.0)
        server.add("acme", "ants", rows(600))
        server.too_many = (60, status, said)
        ran = collect(server)
        assert (ran.value("runs.completed_24h"), ran.value("runs.unseen"), ran.dropped) == (600, 0, {})
        assert ran.report.requests <= 40

    @pytest.mark.parametrize(("connections", "asked"), [("1", [60]), ("4", [60, 30, 31])])
    def test_answers_that_are_under_way_together_share_the_memory_of_one(
        self, server: Wandb, monkeypatch: pytest.MonkeyPatch, connections: str, asked: list[int]
    ) -> None:
        server.add("acme", "ants", rows(60))
        monkeypatch.setattr(schedule, "MAX_ANSWER_BYTES", 60_000)
        options = {"FLEETGAUGE_WANDB_CONNECTIONS": connections, "FLEETGAUGE_WANDB_PAGE_SIZE": "60"}
        assert collect(server, 60, **options).value("runs.completed_24h") == 60
        assert [query.variables["first"] for query in server.requests] == asked

    def test_what_works_is_remembered_for_the_rest_of_the_listing(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1200))
        server.too_many = (60, 504, "")
        collect(server)
        failed = [query.variables["first"] for query in server.requests if query.status == 504]
        assert failed[:4] == [500, 250, 125, 62]
        assert len(failed) <= 10
        for place, query in enumerate(server.requests):
            before = [
                one.variables["first"] for one in server.requests[: max(0, place - 4)] if one.status == 504
            ]
            assert query.variables["first"] < min(before, default=501)

    def test_at_the_smallest_size_it_is_waited_out_and_no_run_is_blamed(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(50))
        server.faults.add(Fault(status=504), times=14)
        ran = collect(server, deadline=300)
        assert (ran.value("runs.completed_24h"), ran.dropped) == (50, {})

    def test_where_it_lasts_the_error_names_the_setting(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(50))
        server.faults.add(Fault(status=504), times=None)
        ran = collect(server)
        assert isinstance(ran.error, SourceError)
        assert "answered 504" in str(ran.error)
        assert "FLEETGAUGE_WANDB_PAGE_SIZE" in str(ran.error)
        assert ran.points == []

    def test_one_that_is_overloaded_costs_the_others_nothing(self, server: Wandb) -> None:
        projects = many(server, 3)
        server.add("acme", "heavy", rows(2))
        server.refused["acme", "heavy"] = (504, "")
        ran = collect(server, WANDB_PROJECTS=f"acme/heavy,{projects}")
        assert len(completed(ran)) == 3
        [lost] = ran.report.lost
        assert lost.startswith("acme/heavy: ")


class TestRefusals:
    @pytest.mark.parametrize("status", [401, 403, 404])
    @pytest.mark.parametrize("place", [0, 3])
    def test_one_project_that_is_refused_costs_itself(self, server: Wandb, status: int, place: int) -> None:
        projects = many(server, 3).split(",")
        projects.insert(place, "acme/closed")
        server.refused["acme", "closed"] = (status, "project not found")
        ran = collect(server, WANDB_PROJECTS=",".join(projects))
        assert ran.error is None
        assert len(completed(ran)) == 3
        [lost] = ran.report.lost
        assert lost.startswith("acme/closed: ")
        assert f"answered {status}" in lost
        assert "WANDB_BASE_URL" not in lost
        viewers = [query for query in server.requests if "query Viewer" in query.body.decode()]
        assert len(viewers) == 1

    def test_where_all_are_refused_it_is_configuration(self, server: Wandb) -> None:
        for name in ("ants", "bees"):
            server.refused["acme", name] = (403, "permission denied")
        ran = collect(server, WANDB_PROJECTS="acme/ants,acme/bees")
        assert isinstance(ran.error, ConfigurationError)
        assert "permission denied" in str(ran.error)
        assert "(and 1 more could not be read)" in str(ran.error)

    def test_where_one_is_refused_and_the_others_fail_it_is_the_source(self, server: Wandb) -> None:
        server.refused["acme", "ants"] = (403, "permission denied")
        server.refused["acme", "bees"] = (422, "no thanks")
        ran = collect(server, WANDB_PROJECTS="acme/ants,acme/bees")
        assert isinstance(ran.error, SourceError)

    def test_an_error_that_says_so_beside_no_project_is_a_refusal_too(self, server: Wandb) -> None:
        projects = many(server, 2)
        answer = '{"errors": [{"message": "permission denied"}], "data": {"viewer": null, "project": null}}'
        server.faults.add(Fault(body=answer))
        ran = collect(server, WANDB_PROJECTS=projects, FLEETGAUGE_WANDB_CONNECTIONS="1")
        assert len(completed(ran)) == 1
        assert "permission denied" in ran.report.lost[0]

    def test_an_unexpected_exception_is_one_projects_loss(self, server: Wandb) -> None:
        many(server, 3)
        asked = context(server, Ran())
        http = asked.network.http(server.url, 4)

        class Defective(Api):
            def page(self, ask: Ask, deadline: Deadline) -> Answer:
                if ask.project.name == "p1":
                    raise ZeroDivisionError("a defect")
                return super().page(ask, deadline)

        api = Defective(asked.settings, RunReader("github.sky.*", None, 1), http)
        schedule = Schedule(api, http, asked.settings, Deadline(20), time.sleep, asked.report.progress)
        requests = [Request(Project("acme", f"p{place}"), touched_since(AT - 86_400)) for place in range(3)]
        found = {project.name: result for project, result in schedule.read(requests)}
        assert isinstance(found["p1"], ZeroDivisionError)
        assert not isinstance(found["p0"], Exception)
        assert not isinstance(found["p2"], Exception)


class TestPoliteness:
    def test_after_a_429_all_connections_wait_and_half_as_many_go_on(self, server: Wandb) -> None:
        projects = many(server, 30)
        server.latency = lambda _: 0.01
        server.faults.add(Fault())
        server.faults.add(Fault(status=429, headers={"Retry-After": "7"}))
        at_once: list[int] = []
        server.on("read", lambda _: at_once.append(server.at_once))
        ran = collect(server, WANDB_PROJECTS=projects)
        assert len(completed(ran)) == 30
        [wait] = ran.waits
        assert 6 < wait <= 7.5
        assert max(at_once[8:]) <= 2

    def test_after_429s_that_do_not_say_how_long_all_wait_longer_each_time(
        self, server: Wandb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(random, "uniform", lambda _, most: most)
        server.add("acme", "ants", rows(5))
        server.faults.add(Fault(status=429), times=5)
        ran = collect(server, deadline=300)
        assert ran.value("runs.completed_24h") == 5
        assert len(ran.waits) == 5
        assert 4 < ran.waits[-1] <= 8

    @pytest.mark.parametrize("left", ["0", "1"])
    def test_the_servers_count_of_requests_is_kept_to(self, server: Wandb, left: str) -> None:
        projects = many(server, 6)
        server.headers = {"RateLimit-Remaining": left, "RateLimit-Reset": "5"}
        ran = collect(server, WANDB_PROJECTS=projects)
        assert len(completed(ran)) == 6
        assert ran.waits
        assert all(4 < wait <= 5 for wait in ran.waits)

    def test_a_server_that_still_takes_many_is_not_waited_for(self, server: Wandb) -> None:
        projects = many(server, 6)
        server.headers = {"RateLimit-Remaining": "100", "RateLimit-Reset": "5"}
        assert collect(server, WANDB_PROJECTS=projects).waits == []

    def test_a_pause_holds_between_the_starts_of_all_connections(self, server: Wandb) -> None:
        projects = many(server, 8)
        ran = collect(server, WANDB_PROJECTS=projects, FLEETGAUGE_WANDB_PAUSE="2s")
        assert len(completed(ran)) == 8
        assert len(ran.waits) == 7
        assert sum(ran.waits) == pytest.approx(14, abs=2)


class TestDrift:
    def drifting(self, server: Wandb, *, leave: bool, come: bool, times: int = 1) -> None:
        """Sixty runs and old zombies; with the first answers zombies end, and older runs are resumed."""
        zombies = [row(f"z{place}", "running", started=-900, ended=-800) for place in range(12)]
        resumed = [row(f"old{place}", started=-950, ended=-940) for place in range(12)]
        server.add("acme", "ants", [*zombies, *resumed, *rows(60)])
        left = iter(range(times))

        def drift(query: Query) -> None:
            place = next(left, None)
            if place is not None and query.variables:
                for one in zombies[6 * place : 6 * place + 6] if leave else []:
                    one.state = "crashed"
                for one in resumed[6 * place : 6 * place + 6] if come else []:
                    one.state, one.heartbeat_at = "running", AT - 5

        server.drift = drift

    @pytest.mark.parametrize("lacking", [(), ("RunConnection.totalCount",), ("RunEdge.cursor",)])
    @pytest.mark.parametrize("connections", ["1", "4"])
    @pytest.mark.parametrize(
        ("leave", "come", "times"), [(True, False, 1), (False, True, 1), (True, True, 1), (True, True, 2)]
    )
    def test_rows_that_leave_and_come_between_pages_hide_no_run(
        self, server: Wandb, leave: bool, come: bool, times: int, connections: str, lacking: tuple[str, ...]
    ) -> None:
        server.remove(*lacking)
        self.drifting(server, leave=leave, come=come, times=times)
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10", FLEETGAUGE_WANDB_CONNECTIONS=connections)
        assert ran.error is None
        assert ran.value("runs.completed_24h") == 60

    @pytest.mark.parametrize("connections", ["1", "4"])
    @pytest.mark.parametrize("change", [8, 12, 16, 20, 24, 28])
    def test_beside_a_run_that_cannot_be_served_none_is_hidden_either(
        self, server: Wandb, change: int, connections: str
    ) -> None:
        self.drifting(server, leave=True, come=True)
        server.projects["acme", "ants"][50].unservable = True
        begin = server.drift
        server.drift = lambda query: begin(query) if len(server.requests) >= change else None
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10", FLEETGAUGE_WANDB_CONNECTIONS=connections)
        assert ran.error is None
        assert (ran.value("runs.completed_24h"), ran.dropped) == (59, {"unserved_run": 1})

    def test_rows_that_never_stand_still_lose_the_project(self, server: Wandb) -> None:
        listed = server.add("acme", "ants", rows(60))

        def drift(_: Query) -> None:
            listed.pop(0)
            listed.append(row(f"new{len(server.requests)}", started=-1))

        server.drift = drift
        server.add("acme", "bees", rows(3))
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10", WANDB_PROJECTS="acme/ants,acme/bees")
        assert completed(ran) == {"bees": 3}
        assert "acme/ants move while they are read" in ran.report.lost[0]

    def test_a_listing_that_ends_early_twice_is_lost(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(60))
        server.ends_at = 29
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert isinstance(ran.error, SourceError)
        assert "ended twice at row 30 of 60" in str(ran.error)
        assert ran.points == []

    def test_one_that_ended_early_once_is_whole(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(60))
        server.ends_at = 9

        def mend(_: Query) -> None:
            server.ends_at = None

        server.drift = mend
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert (ran.value("runs.completed_24h"), ran.value("runs.unseen")) == (60, 0)
