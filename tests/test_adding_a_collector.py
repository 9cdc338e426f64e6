"""The first half of docs/adding-a-collector.md, followed to the letter in a copy of the project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from support.rendering import (
    CHART,
    ROOT,
    SCENARIOS,
    RefusedError,
    container,
    needs_helm,
    of_kind,
    pod_templates,
    render,
    scenario,
    variables,
)
from support.servers.faults import Fault
from support.servers.loopback import Answer, LoopbackServer, Request

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "adding-a-collector.md").read_text(encoding="utf-8")
FOLDER = re.findall(r"`(collectors/queue/\w+\.\w+)`.*?```(?:python|markdown)\n(.*?)```", PAGE, re.DOTALL)
HAND_WRITTEN = ("__init__.py", "metrics.py", "collector.py", "README.md")
PARTS = ("README.md", "charts", "collectors", "common", "docs", "fleetgauge", "locks", "scripts")


@dataclass(frozen=True)
class Copy:
    """A copy of the project: everything that is not a test."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> Copy:
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / part, root / part)
        return cls(root)

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}

    def add(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text, encoding="utf-8")

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(self.root / "scripts" / script), *arguments],
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy with the page's folder in it, after scripts/generate."""
    copy = Copy.make(tmp_path_factory.mktemp("followed"))
    for name, text in FOLDER:
        copy.add(name, text)
    ran = copy.run("generate.py")
    assert ran.returncode == 0, ran.stderr
    return copy


def test_the_code_of_the_page_is_as_tidy_as_all_other_code(followed: Copy) -> None:
    ruff, settings = Path(sys.executable).parent / "ruff", ROOT / "pyproject.toml"
    for command in (["check"], ["format", "--diff"]):
        arguments = [str(ruff), *command, "--quiet", "--no-cache", f"--config={settings}", "collectors/queue"]
        ran = subprocess.run(arguments, cwd=followed.root, capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.returncode) == ("", 0)


class Queue(LoopbackServer[Request]):
    """The scheduler of the page: a list of jobs for whoever has the token."""

    request_type = Request

    def respond(self, request: Request) -> Answer:
        if request.headers["Authorization"] != "Bearer canary-token":
            return Answer(401, b"who are you")
        jobs = [{"team": "ants"}, {"team": "bees"}, {"name": "no team"}, {"team": "ants"}]
        return Answer(200, json.dumps(jobs).encode())


def test_the_collector_of_the_page_does_what_the_page_shows(followed: Copy) -> None:
    [shown] = re.findall(r"```console\n\$ export FLEETGAUGE_QUEUE_URL.*?\n.*?\n(.*?)```", PAGE, re.DOTALL)
    with Queue() as queue:
        given = {"FLEETGAUGE_QUEUE_URL": queue.url, "QUEUE_TOKEN": "canary-token"}
        queue.faults.add(Fault(status=503, headers={"Retry-After": "0"}))
        ran = followed.run("run_collector.py", "queue", **given)
        checked = followed.run("run_collector.py", "queue", "--check", **given)
        refused = followed.run("run_collector.py", "queue", **{**given, "QUEUE_TOKEN": "other-token"})
    gone = followed.run("run_collector.py", "queue", "--timeout", "1s", **given)
    printed = re.sub(r"\d\.\d s", "0.0 s", ran.stdout)
    assert (re.sub(r"as of \S+", "as of 2026-11-16T21:00:00Z", printed), ran.returncode) == (shown, 0)
    assert "  collected 2 points of 1 metrics, and sent nothing\n" in checked.stdout
    assert "/jobs?state=waiting answered 401: who are you" in refused.stdout
    assert "(connection refused); check FLEETGAUGE_QUEUE_URL (tried " in gone.stdout
    assert (refused.returncode, gone.returncode) == (1, 1)


def test_removing_the_folder_of_a_collector_leaves_no_trace(tmp_path: Path) -> None:
    copy = Copy.make(tmp_path)
    before = copy.files()
    for name, text in FOLDER:
        copy.add(name, text)
    by_hand = copy.files()
    assert set(by_hand) - set(before) == {f"collectors/queue/{name}" for name in HAND_WRITTEN}
    said = copy.run("generate.py").stderr
    [shown] = re.findall(r"```console\n\$ scripts/generate\n(.*?)```", PAGE, re.DOTALL)
    assert said == shown
    after = copy.files()
    assert {f"wrote: {name}" for name in after if after[name] != by_hand.get(name)} == set(said.splitlines())
    checked = copy.run("generate.py", "--check")
    assert (checked.stderr, checked.returncode) == ("", 0)
    shutil.rmtree(tmp_path / "collectors" / "queue")
    assert copy.run("generate.py").returncode == 0
    assert copy.files() == before


@needs_helm
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_release_changes_before_it_is_enabled(followed: Copy, name: str) -> None:
    assert render(scenario(name), chart=followed.root / CHART.relative_to(ROOT)) == render(scenario(name))


@needs_helm
def test_the_chart_runs_it_with_the_values_of_the_page(followed: Copy) -> None:
    [values] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    documents = render(
        scenario("default"), yaml.safe_load(values), chart=followed.root / CHART.relative_to(ROOT)
    )
    [template] = pod_templates(of_kind(documents, "CronJob")).values()
    assert container(template)["args"][:2] == ["queue", "wandb"]
    assert variables(template)["FLEETGAUGE_QUEUE_URL"] == "https://queue.example"


@needs_helm
def test_declarations_decide_on_daemonset_and_backfill(
    tmp_path: Path,
) -> None:
    copy = Copy.make(tmp_path)
    for name, text in FOLDER:
        text = text.replace("collect=collect)", "collect=collect, has_history=True)")
        copy.add(name, f"{text}\nPER_NODE = True\n" if name.endswith("__init__.py") else text)
    assert copy.run("generate.py").returncode == 0
    chart = tmp_path / CHART.relative_to(ROOT)
    asked = {
        "backfill": {"enabled": True, "since": "7d", "collectors": ["queue"]},
        "daemonSet": {"enabled": True},
    }
    pods = pod_templates(render(scenario("default"), asked, chart=chart))
    given = {name.partition("-")[0]: container(pod)["args"] for name, pod in pods.items()}
    assert given["DaemonSet/fleetgauge"][:3] == ["host", "queue", "--push"]
    assert given["Job/fleetgauge"][:2] == ["queue", "--push"]
    assert given["Test/fleetgauge"] == ["wandb", "host", "queue", "--check"]
    for name, pod in pods.items():
        assert ("FLEETGAUGE_NODE_NAME" in variables(pod)) == (not name.startswith("CronJob"))
    with pytest.raises(
        RefusedError, match=r"collectors\.queue\.enabled: the DaemonSet runs it on every node"
    ):
        render(scenario("default"), asked, {"collectors": {"queue": {"enabled": True}}}, chart=chart)


@needs_helm
def test_optional_secret_comes_from_the_existing_secret_only(tmp_path: Path) -> None:
    copy = Copy.make(tmp_path)
    for name, text in FOLDER:
        text = text.replace("token: Secret = Field(", "token: Secret | None = Field(None, ")
        copy.add(name, text.replace("QUEUE_TOKEN", "GITHUB_TOKEN"))
    assert copy.run("generate.py").returncode == 0
    chart = tmp_path / CHART.relative_to(ROOT)
    values = {
        "aws": {"secretPrefix": ""},
        "existingSecret": "keys",
        "collectors": {"queue": {"enabled": True}},
    }
    [template] = pod_templates(of_kind(render(scenario("default"), values, chart=chart), "CronJob")).values()
    found = variables(template)
    assert found["GITHUB_TOKEN"] == {
        "secretKeyRef": {"name": "keys", "key": "GITHUB_TOKEN", "optional": True}
    }
    assert found["WANDB_API_KEY"] == {"secretKeyRef": {"name": "keys", "key": "WANDB_API_KEY"}}
    typed = {"collectors": {"queue": {"settings": {"token": "0123456789"}}}}
    with pytest.raises(RefusedError, match="Additional property token is not allowed"):
        render(scenario("default"), typed, chart=chart)


def test_a_folder_that_is_not_yet_whole_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    copy = Copy.make(tmp_path)
    for name, text in FOLDER:
        if not name.endswith("README.md"):
            copy.add(name, text)
    before = copy.files()
    ran = copy.run("generate.py")
    assert "collectors/queue/README.md: write it" in ran.stderr
    assert ran.returncode == 1
    assert copy.files() == before
