"""The pods that the chart renders, really run from the image against Datadog, W&B and AWS on loopback."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.times import iso
from support.containers import NODE, USER, Engine, needs_containers, running
from support.project import KEY
from support.release import COLLECTORS, PREFIX, RECORDS, SECRETS, Release
from support.rendering import ROOT, Document, container, of_kind
from support.servers.aws import Aws
from support.servers.datadog import Intake, Push
from support.servers.loopback import Request
from support.servers.wandb import Wandb

pytestmark = [pytest.mark.slow, needs_containers]
TAGS = ("env:production", "service:fleetgauge")
STATELESS = {"state": {"existingClaim": ""}}  # a claim is not for a DaemonSet


@pytest.fixture
def wandb() -> Iterator[Wandb]:
    with Wandb(KEY) as server:
        yield server


@pytest.fixture
def release(image: str, intake: Intake, wandb: Wandb, aws: Aws, tmp_path: Path) -> Release:
    """A release of the chart that reads and writes nothing but loopback."""
    return Release(image, intake, wandb, aws, tmp_path)


class Stop:
    """Holds the first push to the intake, so that a test can look at what is sending it."""

    def __init__(self, intake: Intake) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        intake.on("read", self._hold)

    def _hold(self, _: Push) -> None:
        self.reached.set()
        self.go_on.wait(60)


def test_the_rendered_run_delivers_what_every_collector_found(engine: Engine, release: Release) -> None:
    release.fill()
    with running(engine, release.template("CronJob"), secrets=SECRETS, claims=release.claims) as pod:
        assert pod.wait(120) == 0, pod.log()
        said = pod.log()
    intake = release.intake
    assert "5 ok" in said
    for name in COLLECTORS:
        tags = [f"collector:{name}", "env:production", "service:fleetgauge"]
        assert intake.value("collector.up", tags) == 1
    assert intake.value("wandb.runs.total_recent", ["project:ants", "env:production"])
    assert intake.value("host.memory_gb", host=NODE)
    assert intake.value("xenna.runs.active", ["env:production"]) == 1
    assert {name.partition(".")[0] for name in intake.names()} == {*COLLECTORS, "collector"}
    kept = sorted(path.name for path in (release.folder / "state").glob("*.json"))
    assert [name.partition("-production-fleetgauge-")[0] for name in kept] == COLLECTORS
    assert KEY not in said


PROBE = """\
import os, pathlib
for place in ("/", "/app", "/opt/venv", "/etc", "/run", "/var/tmp", "/records/xenna", "/tmp", "/state"):
    try:
        pathlib.Path(place, "probe").write_text("")
        print(place)
    except OSError:
        pass
"""


def test_while_it_runs_it_can_write_two_places_and_has_no_rights(engine: Engine, release: Release) -> None:
    release.fill()
    stop = Stop(release.intake)
    with running(engine, release.template("CronJob"), secrets=SECRETS, claims=release.claims) as pod:
        assert stop.reached.wait(60), pod.log()
        process = pod.state["State"]["Pid"]
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines()
        )
        mounts = [line.split() for line in Path(f"/proc/{process}/mountinfo").read_text().splitlines()]
        limit = memory_limit(process)
        written = engine.run("podman", "exec", pod.container, "/opt/venv/bin/python", "-c", PROBE).stdout
        stop.go_on.set()
        assert pod.wait(120) == 0, pod.log()
    assert status["Uid"].split() == status["Gid"].split() == [str(USER)] * 4
    assert {int(status[key], 16) for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    [root] = [options for _, _, _, _, place, options, *_ in mounts if place == "/"]
    assert "ro" in root.split(",")
    assert limit == 384 * 2**20
    assert written.split() == ["/tmp", "/state"]  # noqa: S108


def memory_limit(process: int) -> int:
    """What the kernel enforces, with control groups of either version."""
    groups = [line.split(":") for line in Path(f"/proc/{process}/cgroup").read_text().splitlines()]
    for _, controllers, path in groups:
        if controllers == "memory":
            return int(Path(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes").read_text())
    [(_, _, path)] = [group for group in groups if not group[1]]
    return int(Path(f"/sys/fs/cgroup{path}/memory.max").read_text())


def test_the_rendered_backfill_delivers_every_part_of_the_past(engine: Engine, release: Release) -> None:
    release.fill()
    until = int(time.time()) // 900 * 900
    span = {"since": iso(until - 6 * 3600), "until": iso(until), "slices": 2, "enableHistorical": True}
    key = {"appKeySecret": {"name": "app-key", "key": "key"}}
    template = release.template("Job", {"backfill": {"enabled": True, **span, **key}})
    secrets = {**SECRETS, "app-key": {"key": release.intake.app_key}}
    with running(engine, release.template("CronJob"), secrets=SECRETS, claims=release.claims) as pod:
        assert pod.wait(120) == 0, pod.log()  # a metric must exist before its past is taken
    environment = template["spec"]["containers"][0]["env"]
    for part in ("0", "1"):
        environment[:] = [one for one in environment if one["name"] != "JOB_COMPLETION_INDEX"]
        environment.append({"name": "JOB_COMPLETION_INDEX", "value": part})  # as the Job controller does
        with running(engine, template, secrets=secrets, claims=release.claims) as pod:
            assert pod.wait(120) == 0, pod.log()
            assert release.intake.app_key not in pod.log()
    [points] = release.intake.series("wandb.runs.total_recent").values()
    assert [at for at in sorted(points) if at <= until] == list(range(until - 6 * 3600 + 900, until + 1, 900))


def test_with_the_intake_down_it_fails_within_the_deadline(engine: Engine, release: Release) -> None:
    release.fill()
    release.intake.close()
    short = {"timeout": 5, "schedule": "*/5 * * * *"}
    [job] = [cron["spec"]["jobTemplate"]["spec"] for cron in of_kind(release.render(short), "CronJob")]
    with running(engine, job["template"], secrets=SECRETS, claims=release.claims) as pod:
        assert pod.wait(job["activeDeadlineSeconds"]) == 1
        said = pod.log()
    assert "cannot reach 127.0.0.1" in said
    assert "5 failed" in said
    assert "Traceback" not in said


def test_sigterm_ends_it_cleanly_and_the_next_run_continues(engine: Engine, release: Release) -> None:
    release.fill()
    stop = Stop(release.intake)
    template = release.template("CronJob")
    with running(engine, template, secrets=SECRETS, claims=release.claims) as pod:
        assert stop.reached.wait(60), pod.log()
        pod.terminate()
        stop.go_on.set()
        assert pod.wait(pod.grace) == 143, pod.log()
        assert pod.state["State"]["OOMKilled"] is False
        assert "Traceback" not in pod.log()
    with running(engine, template, secrets=SECRETS, claims=release.claims) as pod:
        assert pod.wait(120) == 0, pod.log()


def test_with_a_role_and_s3_it_asks_aws_for_exactly_what_the_policy_allows(
    engine: Engine, release: Release
) -> None:
    release.fill()
    release.aws.make_bucket("acme-fleetgauge")
    client = release.aws.moto_client("s3")
    for path in (release.folder / "records" / "xenna").iterdir():
        client.put_object(Bucket="acme-fleetgauge", Key=f"records/{path.name}", Body=path.read_bytes())
    client.close()
    changes = {
        "state": {"s3": "s3://acme-fleetgauge/state", "existingClaim": ""},
        "collectors": {"xenna": {"settings": {"paths": ["s3://acme-fleetgauge/records/"]}}},
        "extraEnv": [],
    }
    template = as_eks_mounts_a_role(release.template("CronJob", changes), release.folder)
    for _ in range(2):
        with running(engine, template, claims=release.claims) as pod:
            assert pod.wait(120) == 0, pod.log()
    asked = {operation(request) for request in release.aws.requests}
    policy = json.loads((ROOT / "docs" / "iam-policy.json").read_text())
    allowed = {action for statement in policy["Statement"] for action in listed(statement["Action"])}
    assert asked == {"sts:AssumeRoleWithWebIdentity"} | allowed


def listed(action: str | list[str]) -> list[str]:
    return [action] if isinstance(action, str) else action


def operation(request: Request) -> str:
    """The right that a request to AWS needs."""
    target = request.headers.get("X-Amz-Target", "")
    if target:
        return target.replace(".", ":")
    if b"Action=AssumeRoleWithWebIdentity" in request.body:
        return "sts:AssumeRoleWithWebIdentity"
    assert "x-amz-copy-source" not in request.headers
    if "list-type=2" in request.target:
        return "s3:ListBucket"
    return {"GET": "s3:GetObject", "PUT": "s3:PutObject"}[request.method]


def as_eks_mounts_a_role(template: Document, folder: Path) -> Document:
    """The pod as the identity webhook of EKS changes it when its service account has a role."""
    place = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
    (folder / "identity").mkdir()
    (folder / "identity" / "token").write_text("a-token-that-aws-trusts")
    os.chown(folder / "identity" / "token", 0, USER)  # as fsGroup has the kubelet do
    (folder / "identity" / "token").chmod(0o640)
    container(template)["env"] += [
        {"name": "AWS_ROLE_ARN", "value": "arn:aws:iam::123456789012:role/fleetgauge"},
        {"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": f"{place}/token"},
    ]
    container(template)["volumeMounts"].append({"name": "token", "mountPath": place, "readOnly": True})
    directory = {"path": str(folder / "identity"), "type": "Directory"}
    template["spec"]["volumes"].append({"name": "token", "hostPath": directory})
    return template


def test_helm_test_says_whether_all_is_well_and_sends_nothing(engine: Engine, release: Release) -> None:
    release.fill()
    with running(engine, release.template("Test"), secrets=SECRETS, claims=release.claims) as pod:
        assert pod.wait(120) == 0, pod.log()
        assert f"the API key is valid at {release.intake.url}" in pod.log()
    assert release.intake.points == {}
    release.aws.put_secret(f"{PREFIX}/wandb", {"WANDB_ENTITY": "acme"})
    with running(engine, release.template("Test"), secrets=SECRETS, claims=release.claims) as pod:
        assert pod.wait(120) == 2, pod.log()
        assert (
            f"WANDB_API_KEY is not set; looked in: the environment; the AWS secret {PREFIX}/wandb"
            in pod.log()
        )


def test_the_daemonset_measures_its_node_again_and_again_until_told_to_end(
    engine: Engine, release: Release
) -> None:
    release.fill()
    ticks: list[float] = []
    several = threading.Event()

    def count(_: Push) -> None:
        ticks[:] = release.intake.series("host.load_1m").get((TAGS, NODE), {})
        if len(ticks) > 2:
            several.set()

    release.intake.on("applied", count)
    others = {name: {"enabled": False} for name in COLLECTORS}
    changes = {"daemonSet": {"enabled": True, "every": "1s"}, "collectors": others, **STATELESS}
    template = release.template("DaemonSet", changes)
    with running(engine, template, secrets=SECRETS, claims=release.claims) as pod:
        assert several.wait(60), pod.log()
        probe = container(template)["readinessProbe"]["exec"]["command"]
        assert engine.run("podman", "exec", pod.container, *probe).returncode == 0
        assert pod.stop() == 143, pod.log()
    assert set(release.intake.series("host.load_1m")) == {(TAGS, NODE)}


def four_fifths(template: Document) -> Document:
    """Resources with that much of a template's memory."""
    memory = container(template)["resources"]["limits"]["memory"]
    return {"limits": {"memory": f"{int(memory.removesuffix('Mi')) * 4 // 5}Mi"}}


def test_a_busy_tick_leaves_a_fifth_of_its_memory_unused(engine: Engine, release: Release) -> None:
    release.fill(writers=100, runs=5000)
    template = release.template("CronJob", {"resources": four_fifths(release.template("CronJob"))})
    with running(engine, template, secrets=SECRETS, claims=release.claims) as pod:
        assert pod.wait(300) == 0, pod.log()
        assert pod.state["State"]["OOMKilled"] is False
    assert len(release.intake.points) > 250_000


def test_a_node_leaves_a_fifth_of_its_memory_unused(engine: Engine, release: Release) -> None:
    others = {name: {"enabled": False} for name in COLLECTORS}
    node = {"daemonSet": {"enabled": True}, "collectors": others, **STATELESS}
    less = {"daemonSet": {"enabled": True, "resources": four_fifths(release.template("DaemonSet", node))}}
    template = release.template("DaemonSet", node, less)
    template["spec"]["restartPolicy"] = "Never"
    container(template)["args"] = ["host", "--push"]
    with running(engine, template, secrets=SECRETS) as pod:
        assert pod.wait(60) == 0, pod.log()


def test_node_reads_its_records_within_four_fifths_of_its_memory(engine: Engine, release: Release) -> None:
    release.fill(writers=8)
    places = {name: release.folder / "records" / name for name in RECORDS}
    local = {name: {"volume": {"hostPath": {"path": str(place)}}} for name, place in places.items()}
    release.values["collectors"] = {"wandb": {"enabled": False}, **local}
    node: Document = {"enabled": True, "collectors": ["host", *RECORDS], "every": "5s"}
    changes = {"daemonSet": node, **STATELESS}
    less = {"daemonSet": {"resources": four_fifths(release.template("DaemonSet", changes))}}
    several = threading.Event()

    def count(_: Push) -> None:
        reports = release.intake.series("collector.up").values()
        if sum(len(ticks) > 1 for ticks in reports) == len(node["collectors"]):
            several.set()

    release.intake.on("applied", count)
    template = release.template("DaemonSet", changes, less)
    with running(engine, template, secrets=SECRETS, claims=release.claims) as pod:
        assert several.wait(120), pod.log()
        assert pod.state["State"]["OOMKilled"] is False
        assert pod.stop() == 143, pod.log()
    for name in ("xenna.runs.active", "gpu_memory.ingest.files", "data_plane.ingest.files"):
        assert release.intake.value(name, host=NODE) == 8
    for name in ("xenna.pipeline.progress", "data_plane.keys_outstanding"):
        assert {host for _, host in release.intake.series(name)} == {NODE}
