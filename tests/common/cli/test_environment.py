"""Which variables the child of a collector sees: its own, shared ones, and credentials it needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common import registry
from common.cli.supervise import CHILD, child_environment
from support.project import KEY, Project

SHARED = {"PATH", "DD_ENV", "DD_API_KEY", "HTTPS_PROXY", "FLEETGAUGE_STEP", "FLEETGAUGE_DD_URL"}
AWS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
FOREIGN = {"DD_APP_KEY", "FLEETGAUGE_PROVISION_NOTIFY", "SLURM_JWT", "LD_PRELOAD", "OTHER"}
OWN = {
    "data_plane": {"FLEETGAUGE_DATA_PLANE_PATHS"},
    "gpu_memory": {"FLEETGAUGE_GPU_MEMORY_PATHS"},
    "host": {"FLEETGAUGE_HOST_PATHS", "SLURM_JOB_PARTITION"},
    "wandb": {"WANDB_API_KEY", "WANDB_PROJECTS", "FLEETGAUGE_WANDB_USER_HASH_KEY"},
    "xenna": {"FLEETGAUGE_XENNA_PATHS"},
}
EVERY = SHARED | AWS | FOREIGN | {variable for names in OWN.values() for variable in names}


@pytest.mark.parametrize("name", registry.names())
def test_child_has_its_own_and_shared_variables_and_no_others(name: str) -> None:
    given = child_environment(name, dict.fromkeys(EVERY, "x"), None)
    assert given.keys() == SHARED | OWN[name] | {CHILD, *AWS & given.keys()}
    assert given[CHILD] == name


@pytest.mark.parametrize(
    ("name", "environ", "config", "expected"),
    [
        ("host", {}, None, False),
        ("host", {}, "fleetgauge.toml", True),
        ("host", {"FLEETGAUGE_SECRET_PREFIX": " "}, None, False),
        ("host", {"FLEETGAUGE_SECRET_PREFIX": "test"}, None, True),
        ("host", {"FLEETGAUGE_STATE": "/data"}, None, False),
        ("host", {"FLEETGAUGE_STATE": "s3://bucket"}, None, True),
        ("xenna", {"FLEETGAUGE_XENNA_PATHS": "/data"}, None, False),
        ("xenna", {"FLEETGAUGE_XENNA_PATHS": "/data,s3://bucket"}, None, True),
        ("xenna", {"FLEETGAUGE_GPU_MEMORY_PATHS": "s3://bucket"}, None, False),
    ],
)
def test_child_has_aws_credentials_only_where_it_may_need_them(
    name: str, environ: dict[str, str], config: str | None, expected: bool
) -> None:
    given = child_environment(name, {**dict.fromkeys(AWS, "x"), **environ}, config)
    assert given.keys() & AWS == (AWS if expected else set())


LIST = "Path(context.settings.path).write_text(json.dumps(dict(os.environ)))\nyield VALUE(1, context.now)"


@pytest.mark.slow
def test_each_child_that_is_started_has_that_environment(project: Project, tmp_path: Path) -> None:
    names = ("queue", "queue_depth", "depth")  # a variable belongs to the longest name
    for name in names:
        project.add(name, LIST, settings="path: Text", init="SECRETS = ('THEIR_TOKEN',)" * (name == "queue"))
    paths = {f"FLEETGAUGE_{name.upper()}_PATH": str(tmp_path / name) for name in names}
    given = {**paths, **dict.fromkeys(("QUEUE_OWN", "QUEUE_DEPTH_OWN", "DEPTH_OWN", "THEIR_TOKEN"), "1")}
    given |= dict.fromkeys((*FOREIGN - {"LD_PRELOAD"}, *AWS), "1")
    given |= {"FLEETGAUGE_STEP": "60", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    assert project.run("all", "--push", **given).returncode == 0
    shared = {*project.environment, "FLEETGAUGE_STEP", "HTTPS_PROXY", "NO_PROXY"}
    for name in names:
        found = json.loads((tmp_path / name).read_text())
        own = {f"FLEETGAUGE_{name.upper()}_PATH", f"{name.upper()}_OWN"}
        own |= {"THEIR_TOKEN"} if name == "queue" else set()
        assert found.keys() - {"LC_CTYPE"} == shared | own | {CHILD}  # Python itself sets LC_CTYPE
        assert found["DD_API_KEY"] == KEY
