"""Usage, utilisation and idleness through the collector, over a server on loopback."""

from __future__ import annotations

import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from collectors.wandb import metrics
from support.servers.faults import Fault
from support.servers.fleet import Row, client_config, plausible_day, system_row
from support.servers.wandb import Wandb
from support.wandb_runs import AT, Ran, check, collect, row, settings

ROOT = Path(__file__).resolve().parents[3]
STEP = 900


def running(run_id: str, *busy: float, gpus: int | None = None, **more: Any) -> Row:
    """A run that is active, with GPUs that are so busy."""
    more.setdefault("config", client_config(len(busy) if gpus is None else gpus))
    more.setdefault("system", system_row(*busy))
    return row(run_id, "running", started=more.pop("started", -5), ended=more.pop("ended", -0.01), **more)


def looking(
    server: Wandb, looks: int = 5, memory: dict[str, object] | None = None, **variables: Any
) -> list[Ran]:
    """Ticks one after the other up to AT, each with what the last one remembered."""
    kept = {} if memory is None else memory
    found = []
    for number in range(looks):
        ran = collect(server, at=AT - (looks - 1 - number) * STEP, memory=kept, **variables)
        assert ran.error is None
        kept.clear()
        kept.update(ran.memory)
        found.append(ran)
    return found


def idle(memory: dict[str, object]) -> dict[str, Any]:
    """Return what is stored of idle runs, by project."""
    found = json.loads(json.dumps(memory["idle"]))
    return {project: runs for project, (_, runs) in found.items()}


def values(ran: Ran, metric: Any) -> dict[tuple[str, ...], float]:
    """By the tags beside entity and project."""
    return {
        tuple(tag for tag in sample.tags if not tag.startswith(("entity:", "project:"))): sample.value
        for sample in ran.points
        if sample.metric is metric
    }


class TestUsage:
    def test_groups_are_by_what_is_configured(self, server: Wandb) -> None:
        mine = running("a", 50.0, group="g1", job_type="eval", tags=["x", "team=Red"], sweep="s")
        server.add("acme", "ants", [mine])
        ran = collect(server, FLEETGAUGE_WANDB_GROUP_BY="tag:team=,kind,job_type,group")
        [tags] = values(ran, metrics.USAGE_ACTIVE)
        assert tags == ("group:g1", "job_type:eval", "kind:sweep", "team:red")
        assert set(values(ran, metrics.USAGE_BUSY)) == {tags}

    def test_the_limit_on_groups_holds_per_project_and_sums_stay_complete(self, server: Wandb) -> None:
        for project, gpus in (("ants", 8), ("bees", 2)):
            rows = [running(f"r{n}", *[50.0] * gpus, user=f"u{n}") for n in range(3)]
            server.add("acme", project, [*rows, running("more", 50.0, user="u0")])
        projects: dict[str, Any] = {"WANDB_PROJECTS": "acme/ants,acme/bees"}
        ran = collect(server, FLEETGAUGE_WANDB_MAX_GROUPS="1", FLEETGAUGE_WANDB_GROUP_BY="user", **projects)
        for metric in (metrics.USAGE_GPUS, metrics.USAGE_REPORTING):
            found = {sample.tags[1:]: sample.value for sample in ran.points if sample.metric is metric}
            assert found == {
                ("project:ants", "user:u0"): 9,
                ("project:ants", "user:_other"): 16,
                ("project:bees", "user:u0"): 3,
                ("project:bees", "user:_other"): 4,
            }

    def test_with_both_parts_off_nothing_more_is_asked_or_said(self, server: Wandb) -> None:
        server.add("acme", "ants", plausible_day(AT))
        ran = collect(server, FLEETGAUGE_WANDB_USAGE="false", FLEETGAUGE_WANDB_UTILIZATION="false")
        assert not [one for one in ran.points if one.metric.name.startswith(("wandb.usage", "wandb.idle"))]
        assert metrics.UTILIZATION not in {sample.metric for sample in ran.points}
        assert len(server.requests) == 1

    def test_utilisation_alone_is_by_the_same_groups(self, server: Wandb) -> None:
        server.add("acme", "ants", [running("a", 50.0, user="ann")])
        ran = collect(server, FLEETGAUGE_WANDB_USAGE="false")
        assert values(ran, metrics.USAGE_BUSY) == {("gpu_type:h100", "user:ann"): 0.5}
        assert values(ran, metrics.USAGE_GPUS) == {}


class TestUtilization:
    def test_it_is_the_sum_over_gpus_that_report_and_not_a_mean_of_means(self, server: Wandb) -> None:
        server.add(
            "acme",
            "ants",
            [
                running("a", *[100.0] * 8, user="ann"),
                running("b", 10.0, user="bob"),
                running("c", gpus=4, system={}, user="bob"),
                running("d", gpus=4, system=None, user="cy"),
            ],
        )
        ran = collect(server, FLEETGAUGE_WANDB_GROUP_BY="user")
        assert values(ran, metrics.USAGE_REPORTING) == {("user:ann",): 8, ("user:bob",): 1, ("user:cy",): 0}
        assert values(ran, metrics.USAGE_BUSY) == {("user:ann",): 8, ("user:bob",): 0.1}
        assert values(ran, metrics.USAGE_MEMORY_FILLED) == {
            ("user:ann",): pytest.approx(3.2),
            ("user:bob",): 0.4,
        }
        assert values(ran, metrics.USAGE_REPORTING_MEMORY) == {("user:ann",): 8, ("user:bob",): 1}
        assert values(ran, metrics.USAGE_GPUS) == {("user:ann",): 8, ("user:bob",): 5, ("user:cy",): 4}
        assert ran.value("training.gpu_utilization_pct") == pytest.approx(100 * 8.1 / 9)

    def test_only_what_runs_is_asked_for_in_small_pages(self, server: Wandb) -> None:
        rows = [running(f"r{n:03d}", 50.0, started=-5 + n / 100) for n in range(450)]
        server.add("acme", "ants", [*rows, *(row(f"e{n}", system=system_row(50.0)) for n in range(40))])
        ran = collect(server)
        assert ran.value("usage.gpus_reporting") == 450
        looks = [request for request in server.requests if b"systemMetrics" in request.body]
        assert max(request.variables["first"] for request in looks) == 200
        assert len(looks) <= 5
        assert all('"state": "running"' in request.variables["filters"] for request in looks)

    def test_a_project_without_active_runs_is_not_looked_at(self, server: Wandb) -> None:
        server.add("acme", "ants", [row("a")])
        collect(server)
        assert len(server.requests) == 1

    def test_a_look_that_fails_costs_the_utilisation_of_its_project_alone(self, server: Wandb) -> None:
        server.add("acme", "ants", [running("a", 50.0)])
        server.faults.add(Fault())
        server.faults.add(Fault(status=403))
        ran = collect(server)
        assert ran.error is None
        assert ran.value("usage.gpus_in_use") == 1
        assert ran.value("usage.gpus_reporting") is None
        [lost] = ran.report.lost
        assert lost.startswith("the utilisation of acme/ants: ")


class TestRefusals:
    @pytest.mark.parametrize(
        ("field", "by", "tag"),
        [
            ("Run.user", "user", "user"),
            ("User.username", "user", "user"),
            ("Run.group", "group", "group"),
            ("Run.jobType", "job_type", "job_type"),
            ("Run.tags", "tag:team=", "team"),
        ],
    )
    def test_a_field_that_the_server_refuses_is_unknown_and_said(
        self, server: Wandb, field: str, by: str, tag: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.remove(field)
        mine = running("a", 50.0, user="ann", group="g", job_type="train", tags=["team=x"])
        server.add("acme", "ants", [mine])
        ran = collect(server, FLEETGAUGE_WANDB_GROUP_BY=f"{by},gpu_type")
        assert values(ran, metrics.USAGE_GPUS) == {tuple(sorted(("gpu_type:h100", f"{tag}:unknown"))): 1}
        assert ran.value("usage.gpus_busy") == 0.5
        assert "does not know " in caplog.text

    def test_without_system_metrics_only_utilisation_is_missing(
        self, server: Wandb, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.remove("Run.systemMetrics")
        server.add("acme", "ants", [running("a", 50.0, user="ann")])
        ran = collect(server)
        assert ran.error is None
        assert not [one for one in ran.points if one.metric in metrics.OBSERVED]
        assert values(ran, metrics.USAGE_GPUS) == {("gpu_type:h100", "user:ann"): 1}
        assert "systemMetrics: the utilisation of GPUs" in caplog.text
        assert ran.report.lost == []

    def test_what_was_remembered_stays_while_nobody_can_look(self, server: Wandb) -> None:
        server.add("acme", "ants", [running("r1", 0.0)])
        memory: dict[str, object] = {}
        looking(server, looks=1, memory=memory)
        server.remove("Run.systemMetrics")
        ran = collect(server, memory=memory)
        assert "acme/ants" in idle(memory)
        assert ran.memory == memory

    def test_check_says_what_is_refused(self, server: Wandb) -> None:
        server.remove("Run.systemMetrics", "Run.user", "Run.jobType")
        server.add("acme", "ants", [running("a", 50.0)])
        said = check(server).findings
        assert [finding.split(": ")[1] for finding in said[2:]] == ["jobType", "systemMetrics", "user"]


class TestIdle:
    def test_only_reporting_gpus_count(self, server: Wandb) -> None:
        server.add("acme", "ants", [running("r1", *[0.0] * 8, gpus=16)])
        last = looking(server)[-1]
        assert (last.value("usage.gpus_in_use"), last.value("usage.gpus_idle")) == (16, 8)
        assert last.value("idle.run_gpus") == 8

    def test_a_tick_that_is_repeated_says_the_same(self, server: Wandb) -> None:
        server.add("acme", "ants", [running("r1", 0.0), running("r2", 50.0)])
        memory: dict[str, object] = {}
        looking(server, looks=4, memory=memory)
        first = collect(server, memory=memory)
        again = collect(server, memory=memory)
        after = collect(server, memory=first.memory)
        assert first.points == again.points == after.points

    def test_a_project_that_could_not_be_looked_at_is_remembered(self, server: Wandb) -> None:
        server.add("acme", "ants", [running("r1", 0.0, ended=0.6)])
        memory: dict[str, object] = {}
        looking(server, looks=2, memory=memory)
        server.faults.add(Fault())
        server.faults.add(Fault(status=403))
        failed = collect(server, at=AT + STEP, memory=memory)
        assert failed.memory == memory
        later = collect(server, at=AT + 2 * STEP, memory=failed.memory)
        assert idle(later.memory)["acme/ants"]["r1"][:2] == [AT - STEP, AT + 2 * STEP]

    def test_a_project_that_is_read_no_longer_is_forgotten(self, server: Wandb) -> None:
        server.add("acme", "ants", [running("r1", 0.0, ended=2)])
        server.add("acme", "bees", [running("r2", 0.0, ended=2)])
        memory: dict[str, object] = {}
        looking(server, looks=1, memory=memory, WANDB_PROJECTS="acme/*")
        del server.projects["acme", "bees"]
        for tick in (1, 2):
            memory = collect(server, at=AT + tick * STEP, memory=memory, WANDB_PROJECTS="acme/*").memory
            assert {*idle(memory)} == {"acme/ants", "acme/bees"}
        memory = collect(server, at=AT + 3 * STEP, memory=memory, WANDB_PROJECTS="acme/*").memory
        assert {*idle(memory)} == {"acme/ants"}


class TestSeries:
    """What docs/metric-conventions.md says of their number."""

    def test_a_group_has_6_series_11_with_prices_and_an_active_one_5_or_6_more(self, server: Wandb) -> None:
        server.add(
            "acme", "ants", [running("a", 0.0, user="ann"), row("b", config=client_config(1), user="bob")]
        )
        for prices, of_group, of_active in (("", 6, 5), ("h100=1", 11, 6)):
            last = looking(server, FLEETGAUGE_WANDB_GPU_PRICES=prices)[-1]
            assert sum("user:bob" in one.tags for one in last.points) == of_group
            named = sum("run_id:a" in one.tags for one in last.points)
            assert named == 2
            assert sum("user:ann" in one.tags for one in last.points) == of_group + of_active + named


class TestPrivacy:
    def test_with_a_key_no_username_leaves(self, server: Wandb) -> None:
        server.add("acme", "ants", [running("r1", 0.0, user="Ann-Smith"), running("r2", 50.0, user="bob")])
        last = looking(server, FLEETGAUGE_WANDB_USER_HASH_KEY="a-secret-of-its-own")[-1]
        tags = " ".join(tag for sample in last.points for tag in sample.tags)
        assert "smith" not in tags.lower()
        assert "bob" not in tags
        [group] = values(last, metrics.IDLE_GPUS)
        hashed = next(tag for tag in group if tag.startswith("user:"))
        assert any(hashed in tags for tags in values(last, metrics.USAGE_GPUS))
        assert hashed == "user:" + hmac.digest(b"a-secret-of-its-own", b"ann-smith", "sha256").hex()[:12]
        assert "a-secret" not in repr(settings(server, FLEETGAUGE_WANDB_USER_HASH_KEY="a-secret-of-its-own"))
