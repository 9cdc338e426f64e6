"""Pods of values that a platform team sets, really run from the image as the chart renders them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.containers import USER, Engine, needs_containers, running
from support.project import KEY, ROOT
from support.release import PREFIX, SECRETS, Release
from support.rendering import Document, container, of_kind, pod_templates, render
from support.servers.aws import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Aws
from support.servers.datadog import Intake
from support.servers.loopback import Answer, LoopbackServer, Request
from support.servers.wandb import Wandb

pytestmark = [pytest.mark.slow, needs_containers]
TOKEN = "a-token-that-the-agent-trusts"
ALONE = {"collectors": {name: {"enabled": False} for name in ("data_plane", "gpu_memory", "host", "xenna")}}


@pytest.fixture
def release(image: str, intake: Intake, aws: Aws, tmp_path: Path) -> Iterator[Release]:
    """A release with W&B alone, that reads and writes nothing but loopback."""
    with Wandb(KEY) as wandb:
        made = Release(image, intake, wandb, aws, tmp_path)
        made.fill()
        yield made


def test_install_of_the_readme_runs_to_exit_0(engine: Engine, release: Release) -> None:
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
    for again in (False, True):
        with running(engine, release.template("Job", changes), secrets=secrets) as pod:
            assert pod.wait(240) == 0, pod.log()
            assert release.intake.app_key not in pod.log()
        boards = release.intake.documents.dashboards.values()
        assert boards
        assert all("monitoring/fleetgauge" in board["description"] for board in boards)
        if not again:
            first = {board["id"] for board in boards}
        assert {board["id"] for board in boards} == first


def test_a_backfill_whose_job_is_made_again_sends_the_same_points(engine: Engine, release: Release) -> None:
    template = release.template("Job", ALONE, {"backfill": {"enabled": True, "since": "45m"}})
    sent = []
    for _ in range(2):
        before = len(release.intake.write_log)
        with running(engine, template, secrets=SECRETS, claims=release.claims) as pod:
            assert pod.wait(120) == 0, pod.log()
        writes = release.intake.write_log[before:]
        sent.append({(one.key, one.value) for one in writes if one.key.metric.startswith("wandb.")})
    assert sent[0] == sent[1] != set()


def test_what_runs_first_and_variables_from_elsewhere_are_part_of_a_run(
    engine: Engine, release: Release, image: str
) -> None:
    first = {
        "name": "first",
        "image": image,
        "args": ["--version"],
        "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
    }
    changes = {
        "collectors": {"wandb": {"settings": {"projects": []}}},
        "extraEnvFrom": [{"configMapRef": {"name": "projects"}}],
        "initContainers": [first],
        "global": {"imagePullSecrets": ["mirror"]},
        "commonLabels": {"team": "platform"},
    }
    template = release.template("CronJob", ALONE, changes)
    held = {**SECRETS, "projects": {"WANDB_PROJECTS": "acme/ants"}}
    with running(engine, template, secrets=held, claims=release.claims) as pod:
        assert pod.wait(120) == 0, pod.log()
    assert release.intake.value("wandb.runs.total_recent", ["project:ants", "env:production"])


def test_a_store_that_is_read_only_leaves_w_and_b_running(engine: Engine, release: Release) -> None:
    template = release.template("CronJob", ALONE)
    for mount in container(template)["volumeMounts"]:
        mount["readOnly"] = mount["name"] == "state"
    with running(engine, template, secrets=SECRETS, claims=release.claims) as pod:
        assert pod.wait(120) == 1, pod.log()
        assert "Read-only file system" in pod.log()
    assert release.intake.value("wandb.runs.total_recent", ["project:ants", "env:production"])


class Agent(LoopbackServer[Request]):
    """The agent of EKS Pod Identity: a role's keys for whoever has the token."""

    request_type = Request

    def respond(self, request: Request) -> Answer:
        if request.headers["Authorization"] != TOKEN:
            return Answer(401)
        until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        keys = {"AccessKeyId": ACCESS_KEY_ID, "SecretAccessKey": SECRET_ACCESS_KEY, "Token": "t"}
        return Answer.json(200, {**keys, "Expiration": until})


def test_with_eks_pod_identity_a_run_has_the_role_of_its_account(engine: Engine, release: Release) -> None:
    place = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount"
    folder = release.folder / "identity"
    folder.mkdir()
    (folder / "eks-pod-identity-token").write_text(TOKEN)
    (folder / "eks-pod-identity-token").chmod(0o644)
    folder.chmod(0o755)
    template = release.template("CronJob", ALONE, {"aws": {"podIdentity": True}, "extraEnv": []})
    with Agent() as agent:
        container(template)["env"] += [  # as the webhook of EKS does
            {"name": "AWS_CONTAINER_CREDENTIALS_FULL_URI", "value": f"{agent.url}/v1/credentials"},
            {"name": "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "value": f"{place}/eks-pod-identity-token"},
        ]
        mount = {"name": "token", "mountPath": place, "readOnly": True}
        container(template)["volumeMounts"].append(mount)
        directory = {"path": str(folder), "type": "Directory"}
        template["spec"]["volumes"].append({"name": "token", "hostPath": directory})
        with running(engine, template, claims=release.claims) as pod:
            assert pod.wait(120) == 0, pod.log()
            assert "1 ok" in pod.log()
        assert agent.requests
    assert template["spec"]["securityContext"]["fsGroup"] == USER, "which lets it read the token"
