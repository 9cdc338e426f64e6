"""The pods that the chart renders, really run from the image against Datadog, W&B and AWS on loopback."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from common.times import iso, tick
from support.containers import NODE, USER, Engine, needs_containers, running
from support.project import KEY
from support.record_files import SPAN, write_records
from support.rendering import ROOT, Document, container, of_kind, pod_templates, render, scenario
from support.servers.aws import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Aws
from support.servers.datadog import Intake, Push
from support.servers.fleet import plausible_day
from support.servers.loopback import Answer, LoopbackServer, Request
from support.servers.wandb import Wandb

pytestmark = [pytest.mark.slow, needs_containers]
TAGS = ("env:production", "service:fleetgauge")
TOKEN = "a-token-that-aws-trusts"
PREFIX = "production/datadog/collectors"
COLLECTORS = ["data_plane", "gpu_memory", "host", "wandb", "xenna"]
RECORDS = ["xenna", "gpu_memory", "data_plane"]
SECRETS = {"aws": {"secret": SECRET_ACCESS_KEY}}


class Release:
    """The values of a release with every collector, and the servers and volumes they lead to."""

    def __init__(self, image: str, intake: Intake, wandb: Wandb, aws: Aws, folder: Path) -> None:
        self.intake = intake
        self.aws = aws
        self.folder = folder
        self._wandb = wandb
        (folder / "state").mkdir()
        os.chown(folder / "state", USER, USER)  # as fsGroup has the kubelet do
        folder.chmod(0o755)
        aws.put_secret(f"{PREFIX}/datadog", {"DD_API_KEY": KEY})
        aws.put_secret(f"{PREFIX}/wandb", {"WANDB_API_KEY": KEY})
        repository, _, tag = image.rpartition(":")
        claims = {name: {"claimName": f"{name.replace('_', '-')}-records"} for name in RECORDS}
        volumes = {name: {"persistentVolumeClaim": claim} for name, claim in claims.items()}
        self.values: Document = {
            "image": {"repository": repository, "tag": tag},
            "datadog": {"url": intake.url},
            "aws": {"endpointUrl": aws.url},
            "collectors": {
                "wandb": {"settings": {"projects": ["acme/ants"], "base_url": wandb.url}},
                "host": {"enabled": True},
                **{name: {"enabled": True, "volume": volume} for name, volume in volumes.items()},
            },
            "state": {"existingClaim": "fleetgauge-state"},
            "extraEnv": [
                {"name": "AWS_ACCESS_KEY_ID", "value": ACCESS_KEY_ID},
                {
                    "name": "AWS_SECRET_ACCESS_KEY",
                    "valueFrom": {"secretKeyRef": {"name": "aws", "key": "secret"}},
                },
            ],
        }

    def fill(self, writers: int = 1, runs: int = 60, now: float | None = None) -> None:
        """Give it something to read: so many writers of each kind of records, and runs in W&B."""
        now = time.time() if now is None else now
        write_records(self.folder / "records", writers, int(now))
        self._wandb.add("acme", "ants", plausible_day(now, runs))

    @property
    def claims(self) -> dict[str, Path]:
        """The directories that stand for volumes, by claim."""
        records = {f"{name.replace('_', '-')}-records": self.folder / "records" / name for name in RECORDS}
        return {"fleetgauge-state": self.folder / "state", **records}

    def template(self, kind: str, *changes: dict[str, Any]) -> Document:
        documents = render(scenario("default"), self.values, *changes)
        [found] = pod_templates(of_kind(documents, kind)).values()
        return found


@pytest.fixture
def release(image: str, intake: Intake, aws: Aws, tmp_path: Path) -> Iterator[Release]:
    """A release of the chart that reads and writes nothing but loopback."""
    with Wandb(KEY) as wandb:
        yield Release(image, intake, wandb, aws, tmp_path)


PROBE = """\
import os, pathlib
for place in ("/", "/app", "/opt/venv", "/etc", "/run", "/var/tmp", "/records/xenna", "/tmp", "/state"):
    try:
        pathlib.Path(place, "probe").write_text("")
        print(place)
    except OSError:
        pass
"""


def test_run_delivers_what_every_collector_found_and_has_no_rights(engine: Engine, release: Release) -> None:
    release.fill()
    reached, go_on = threading.Event(), threading.Event()

    def hold(_: Push) -> None:
        """Keep what is sending, so that it can be looked at."""
        reached.set()
        go_on.wait(60)

    release.intake.on("read", hold)
    with running(engine, release.template("CronJob"), secrets=SECRETS, claims=release.claims) as pod:
        assert reached.wait(60), pod.log()
        process = pod.state["State"]["Pid"]
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines)
        mounts = [line.split() for line in Path(f"/proc/{process}/mountinfo").read_text().splitlines()]
        limit = memory_limit(process)
        written = engine.run("podman", "exec", pod.container, "/opt/venv/bin/python", "-c", PROBE).stdout
        go_on.set()
        assert pod.wait(120) == 0, pod.log()
        said = pod.log()
    assert status["Uid"].split() == status["Gid"].split() == [str(USER)] * 4
    assert {int(status[key], 16) for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    [root] = [options for _, _, _, _, place, options, *_ in mounts if place == "/"]
    assert "ro" in root.split(",")
    assert limit == 384 * 2**20
    assert written.split() == ["/tmp", "/state"]  # noqa: S108

    intake = release.intake
    assert "5 ok" in said
    for name in COLLECTORS:
        assert intake.value("collector.up", [f"collector:{name}", *TAGS]) == 1
    assert intake.value("wandb.runs.total_recent", ["project:ants", "env:production"])
    assert intake.value("host.memory_gb", host=NODE)
    assert intake.value("xenna.runs.active", ["env:production"]) == 1
    assert {name.partition(".")[0] for name in intake.names()} == {*COLLECTORS, "collector"}
    kept = sorted(path.name for path in (release.folder / "state").glob("*.json"))
    assert [name.partition("-production-fleetgauge-")[0] for name in kept] == COLLECTORS
    assert KEY not in said


def memory_limit(process: int) -> int:
    """What the kernel enforces, with control groups of either version."""
    groups = [line.split(":") for line in Path(f"/proc/{process}/cgroup").read_text().splitlines()]
    for _, controllers, path in groups:
        if controllers == "memory":
            return int(Path(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes").read_text())
    [(_, _, path)] = [group for group in groups if not group[1]]
    return int(Path(f"/sys/fs/cgroup{path}/memory.max").read_text())


def test_install_of_the_readme_runs_to_exit_0(engine: Engine, release: Release) -> None:
    release.fill()
    installed: Document = {}
    for path, value in re.findall(r"--set ([\w.]+)=(\S+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        section, key = path.split(".")
        installed.setdefault(section, {})[key] = value
    assert installed["aws"]["secretPrefix"] == PREFIX
    wandb = release.values["collectors"]["wandb"]["settings"]["base_url"]
    keys = {"WANDB_API_KEY": KEY, "WANDB_PROJECTS": "acme/ants", "WANDB_BASE_URL": wandb}
    release.aws.put_secret(f"{PREFIX}/wandb", keys)
    loopback = {key: release.values[key] for key in ("image", "datadog", "aws", "extraEnv")}
    [template] = pod_templates(of_kind(render(installed, loopback), "CronJob")).values()
    with running(engine, template, secrets=SECRETS) as pod:
        assert pod.wait(120) == 0, pod.log()
    assert release.intake.value("wandb.runs.total_recent", ["project:ants", "env:production"])


def test_dashboards_are_pushed_under_the_key_of_the_release(engine: Engine, release: Release) -> None:
    changes = {"dashboards": {"enabled": True, "appKeySecret": {"name": "app-key", "key": "key"}}}
    secrets = {**SECRETS, "app-key": {"key": release.intake.app_key}}
    found = []
    for _ in range(2):
        with running(engine, release.template("Job", changes), secrets=secrets) as pod:
            assert pod.wait(240) == 0, pod.log()
            assert release.intake.app_key not in pod.log()
        boards = release.intake.documents.dashboards.values()
        assert all("monitoring/fleetgauge" in board["description"] for board in boards)
        found.append({board["id"] for board in boards})
    assert found[0] == found[1] != set()


def test_backfill_delivers_every_part_of_the_past_and_again_the_same(
    engine: Engine, release: Release
) -> None:
    release.fill()
    until = int(time.time()) // 900 * 900
    span = {"since": iso(until - 6 * 3600), "until": iso(until), "slices": 2, "enableHistorical": True}
    key = {"appKeySecret": {"name": "app-key", "key": "key"}}
    template = release.template("Job", {"backfill": {"enabled": True, **span, **key}})
    secrets = {**SECRETS, "app-key": {"key": release.intake.app_key}}
    with running(engine, release.template("CronJob"), secrets=SECRETS, claims=release.claims) as pod:
        assert pod.wait(120) == 0, pod.log()  # a metric must exist before its past is taken
    environment = container(template)["env"]
    sent = []
    for part in ("0", "1", "1"):  # a Job that is made again repeats its parts
        before = len(release.intake.write_log)
        environment[:] = [one for one in environment if one["name"] != "JOB_COMPLETION_INDEX"]
        environment.append({"name": "JOB_COMPLETION_INDEX", "value": part})  # as the Job controller does
        with running(engine, template, secrets=secrets, claims=release.claims) as pod:
            assert pod.wait(120) == 0, pod.log()
            assert release.intake.app_key not in pod.log()
        writes = release.intake.write_log[before:]
        sent.append({(one.key, one.value) for one in writes if one.key.metric.startswith("wandb.")})
    assert sent[1] == sent[2] != sent[0] != set()
    [points] = release.intake.series("wandb.runs.total_recent").values()
    assert [at for at in sorted(points) if at <= until] == list(range(until - 6 * 3600 + 900, until + 1, 900))


class Agent(LoopbackServer[Request]):
    """The agent of EKS Pod Identity: a role's keys for whoever has the token."""

    def respond(self, request: Request) -> Answer:
        if request.headers["Authorization"] != TOKEN:
            return Answer(401)
        until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        keys = {"AccessKeyId": ACCESS_KEY_ID, "SecretAccessKey": SECRET_ACCESS_KEY, "Token": "t"}
        return Answer.json(200, {**keys, "Expiration": until})


@pytest.mark.parametrize("identity", ["role", "agent"])
def test_with_a_role_aws_is_asked_for_exactly_what_the_policy_allows(
    engine: Engine, release: Release, identity: str
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
        "aws": {"podIdentity": identity == "agent"},
        "extraEnv": [],
    }
    with Agent() as agent:
        variables = {
            "role": {
                "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/fleetgauge",
                "AWS_WEB_IDENTITY_TOKEN_FILE": "/identity/token",
            },
            "agent": {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{agent.url}/v1/credentials",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/identity/token",
            },
        }
        template = as_eks_changes_a_pod(release, release.template("CronJob", changes), variables[identity])
        for _ in range(2):
            with running(engine, template, claims=release.claims) as pod:
                assert pod.wait(120) == 0, pod.log()
        assert bool(agent.requests) is (identity == "agent")
    asked = {operation(request) for request in release.aws.requests}
    policy = json.loads((ROOT / "docs" / "iam-policy.json").read_text())
    actions = [statement["Action"] for statement in policy["Statement"]]
    allowed = {name for action in actions for name in ([action] if isinstance(action, str) else action)}
    assert asked == allowed | ({"sts:AssumeRoleWithWebIdentity"} if identity == "role" else set())


def as_eks_changes_a_pod(release: Release, template: Document, variables: dict[str, str]) -> Document:
    """The pod as the webhooks of EKS change it: a token, and variables that say what it is for."""
    folder = release.folder / "identity"
    folder.mkdir()
    (folder / "token").write_text(TOKEN)
    os.chown(folder / "token", 0, USER)  # as fsGroup has the kubelet do
    (folder / "token").chmod(0o640)
    folder.chmod(0o755)
    container(template)["env"] += [{"name": name, "value": text} for name, text in variables.items()]
    mount = {"name": "token", "mountPath": "/identity", "readOnly": True}
    container(template)["volumeMounts"].append(mount)
    directory = {"path": str(folder), "type": "Directory"}
    template["spec"]["volumes"].append({"name": "token", "hostPath": directory})
    return template


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


def four_fifths(template: Document) -> Document:
    """Resources with that much of a template's memory."""
    memory = container(template)["resources"]["limits"]["memory"]
    return {"limits": {"memory": f"{int(memory.removesuffix('Mi')) * 4 // 5}Mi"}}


def test_a_busy_tick_leaves_a_fifth_of_its_memory_unused(engine: Engine, release: Release) -> None:
    # A first push ends a minute before the tick, and what is newer waits for the next one.
    release.fill(writers=100, runs=5000, now=tick(time.time(), SPAN))
    template = release.template("CronJob", {"resources": four_fifths(release.template("CronJob"))})
    with running(engine, template, secrets=SECRETS, claims=release.claims) as pod:
        assert pod.wait(300) == 0, pod.log()
        assert pod.state["State"]["OOMKilled"] is False
    assert len(release.intake.points) > 250_000


def test_node_goes_on_with_its_records_in_four_fifths_of_its_memory(engine: Engine, release: Release) -> None:
    release.fill(writers=8)
    places = {name: release.folder / "records" / name for name in RECORDS}
    local = {name: {"volume": {"hostPath": {"path": str(place)}}} for name, place in places.items()}
    release.values["collectors"] = {"wandb": {"enabled": False}, **local}
    node: Document = {"enabled": True, "collectors": ["host", *RECORDS], "every": "5s"}
    changes = {"daemonSet": node, "state": {"existingClaim": ""}}  # a claim is not for a DaemonSet
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
        probe = container(template)["readinessProbe"]["exec"]["command"]
        assert engine.run("podman", "exec", pod.container, *probe).returncode == 0
        assert pod.state["State"]["OOMKilled"] is False
        assert pod.stop() == 143, pod.log()
    assert set(release.intake.series("host.load_1m")) == {(TAGS, NODE)}
    for name in ("xenna.runs.active", "gpu_memory.ingest.files", "data_plane.ingest.files"):
        assert release.intake.value(name, host=NODE) == 8
    for name in ("xenna.pipeline.progress", "data_plane.keys_outstanding"):
        assert {host for _, host in release.intake.series(name)} == {NODE}
