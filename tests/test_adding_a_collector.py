"""docs/adding-a-collector.md, followed to the letter in a copy of the project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from support.checkout import Checkout
from support.project import KEY
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
from support.servers.datadog import Intake
from support.servers.faults import Fault
from support.servers.loopback import Answer, LoopbackServer, Request

pytestmark = pytest.mark.slow

PAGE, KIND_PAGE = (
    (ROOT / "docs" / "adding-a-collector.md").read_text(encoding="utf-8").split("# Adding a kind of record")
)
FOLDER = re.findall(r"`(collectors/queue/\w+\.\w+)`.*?```(?:python|markdown)\n(.*?)```", PAGE, re.DOTALL)
KIND_MODULES = re.findall(r"```python\n(.*?)```", KIND_PAGE, re.DOTALL)
PARTS = ("README.md", "charts", "collectors", "common", "docs", "fleetgauge", "locks", "scripts")


class Copy(Checkout):
    """Everything that is not a test."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, *PARTS)
        self.chart = root / CHART.relative_to(ROOT)

    def files(self) -> dict[str, bytes]:
        found = (path for part in PARTS for path in [self.root / part, *(self.root / part).rglob("*")])
        kept = (path for path in found if path.is_file() and "__pycache__" not in path.parts)
        return {str(path.relative_to(self.root)): path.read_bytes() for path in kept}

    def add_queue(self, changed: Callable[[str], str] = str) -> None:
        """Add the folder of the page, with its texts changed."""
        for name, text in FOLDER:
            self.add(name, changed(text))

    def add(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text, encoding="utf-8")

    def script(self, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run(f".venv/bin/python scripts/{command}", **environment)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy with the page's collector in it, after scripts/generate, and then its kind of record."""
    copy = Copy(tmp_path_factory.mktemp("followed"))
    copy.add_queue()
    ran = copy.script("generate.py")
    assert ran.returncode == 0, ran.stderr
    for name, text in zip(("__init__", "metrics", "collector"), KIND_MODULES, strict=True):
        copy.add(f"collectors/steps/{name}.py", text)
    return copy


def test_the_code_of_the_page_is_short_and_as_tidy_as_all_other_code(followed: Copy) -> None:
    assert len(KIND_MODULES[-1].splitlines()) < 100
    ruff, settings = Path(sys.executable).parent / "ruff", ROOT / "pyproject.toml"
    folders = ("collectors/queue", "collectors/steps")
    for command in (["check"], ["format", "--diff"]):
        arguments = [str(ruff), *command, "--quiet", "--no-cache", f"--config={settings}", *folders]
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
        ran = followed.script("run_collector.py queue", **given)
        checked = followed.script("run_collector.py queue --check", **given)
        refused = followed.script("run_collector.py queue", **{**given, "QUEUE_TOKEN": "other-token"})
    gone = followed.script("run_collector.py queue --timeout 1s", **given)
    printed = re.sub(r"\d\.\d s", "0.0 s", ran.stdout)
    assert (re.sub(r"as of \S+", "as of 2026-11-16T21:00:00Z", printed), ran.returncode) == (shown, 0)
    assert "  collected 2 points of 1 metrics, and sent nothing\n" in checked.stdout
    assert "/jobs?state=waiting answered 401: who are you" in refused.stdout
    assert "(connection refused); check FLEETGAUGE_QUEUE_URL (tried " in gone.stdout
    assert (refused.returncode, gone.returncode) == (1, 1)


def test_removing_the_folder_of_a_collector_leaves_no_trace(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    before = copy.files()
    copy.add_queue()
    by_hand = copy.files()
    added = {name.rpartition("/")[2] for name in by_hand.keys() - before.keys()}
    assert added == {"__init__.py", "metrics.py", "collector.py", "README.md"}
    said = copy.script("generate.py").stderr
    [shown] = re.findall(r"```console\n\$ scripts/generate\n(.*?)```", PAGE, re.DOTALL)
    assert said == shown
    after = copy.files()
    assert {f"wrote: {name}" for name in after if after[name] != by_hand.get(name)} == set(said.splitlines())
    checked = copy.script("generate.py --check")
    assert (checked.stderr, checked.returncode) == ("", 0)
    shutil.rmtree(tmp_path / "collectors" / "queue")
    assert copy.script("generate.py").returncode == 0
    assert copy.files() == before


@needs_helm
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_release_changes_before_it_is_enabled(followed: Copy, name: str) -> None:
    assert render(scenario(name), chart=followed.chart) == render(scenario(name))


@needs_helm
def test_the_chart_runs_it_with_the_values_of_the_page(followed: Copy) -> None:
    [values] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    documents = render(scenario("default"), yaml.safe_load(values), chart=followed.chart)
    [template] = pod_templates(of_kind(documents, "CronJob")).values()
    assert container(template)["args"][:2] == ["queue", "wandb"]
    assert variables(template)["FLEETGAUGE_QUEUE_URL"] == "https://queue.example"


@pytest.fixture(scope="module")
def declaring(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy whose collector is one of nodes, has a history, and needs no secret."""

    def changed(text: str) -> str:
        text = text.replace("token: Secret = Field(", "token: Secret | None = Field(None, ")
        text = text.replace("collect=collect)", "collect=collect, has_history=True)")
        return text.replace("QUEUE_TOKEN", "GITHUB_TOKEN")

    copy = Copy(tmp_path_factory.mktemp("declaring"))
    copy.add_queue(changed)
    copy.add(FOLDER[0][0], f"{FOLDER[0][1]}\nPER_NODE = True\n")
    assert copy.script("generate.py").returncode == 0
    return copy


@needs_helm
def test_declarations_decide_on_daemonset_and_backfill(declaring: Copy) -> None:
    asked = {
        "backfill": {"enabled": True, "since": "7d", "collectors": ["queue"]},
        "daemonSet": {"enabled": True},
    }
    pods = pod_templates(render(scenario("default"), asked, chart=declaring.chart))
    given = {name.partition("-")[0]: container(pod)["args"] for name, pod in pods.items()}
    assert given["DaemonSet/fleetgauge"][:3] == ["host", "queue", "--push"]
    assert given["Job/fleetgauge"][:2] == ["queue", "--push"]
    assert given["Test/fleetgauge"] == ["wandb", "host", "queue", "--check"]
    for name, pod in pods.items():
        assert ("FLEETGAUGE_NODE_NAME" in variables(pod)) == (not name.startswith("CronJob"))
    enabled = {"collectors": {"queue": {"enabled": True}}}
    with pytest.raises(
        RefusedError, match=r"collectors\.queue\.enabled: the DaemonSet runs it on every node"
    ):
        render(scenario("default"), asked, enabled, chart=declaring.chart)


@needs_helm
def test_optional_secret_comes_from_the_existing_secret_only(declaring: Copy) -> None:
    values = {
        "aws": {"secretPrefix": ""},
        "existingSecret": "keys",
        "collectors": {"queue": {"enabled": True}},
    }
    documents = render(scenario("default"), values, chart=declaring.chart)
    [template] = pod_templates(of_kind(documents, "CronJob")).values()
    found = variables(template)
    assert found["GITHUB_TOKEN"] == {
        "secretKeyRef": {"name": "keys", "key": "GITHUB_TOKEN", "optional": True}
    }
    assert found["WANDB_API_KEY"] == {"secretKeyRef": {"name": "keys", "key": "WANDB_API_KEY"}}
    typed = {"collectors": {"queue": {"settings": {"token": "0123456789"}}}}
    with pytest.raises(RefusedError, match="Additional property token is not allowed"):
        render(scenario("default"), typed, chart=declaring.chart)


def test_a_folder_that_is_incomplete_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.add_queue()
    (tmp_path / "collectors" / "queue" / "README.md").unlink()
    before = copy.files()
    ran = copy.script("generate.py")
    assert "collectors/queue/README.md: write it" in ran.stderr
    assert ran.returncode == 1
    assert copy.files() == before


# A kind of record


def write_steps(folder: Path, name: str, at: int, *steps: tuple[float, object]) -> None:
    folder.mkdir(exist_ok=True)
    head = {"schema_version": 1, "kind": "steps", "event": "stats", "run_id": name, "job": "ants"}
    records = [
        head | {"seq": seq, "timestamp": at + seq, "loss": loss, "tokens": tokens}
        for seq, (loss, tokens) in enumerate(steps)
    ]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    os.utime(path, (at + 100, at + 100))  # so that the first run has all that was dropped


def test_two_pushes_of_a_kind_send_gauges_and_sums_once(followed: Copy, tmp_path: Path) -> None:
    at, records, state = int(time.time()) - 600, tmp_path / "records", tmp_path / "state"
    for folder in (records, state):
        folder.mkdir()
    with Intake(key=KEY) as intake:
        environment = {
            "DD_ENV": "test",
            "DD_API_KEY": KEY,
            "FLEETGAUGE_DD_URL": intake.url,
            "FLEETGAUGE_STEPS_PATHS": str(records),
            "FLEETGAUGE_STATE": str(state),
        }
        followed.script("run_collector.py steps --push", **environment)
        [path] = state.glob("*.json")  # the next run begins at that time, whenever the tick is
        path.write_text(json.dumps(json.loads(path.read_text()) | {"sent_until": at}))
        write_steps(records, "a", at, (9.5, 100), (8.5, 100), (7.5, "many"))
        write_steps(records, "b", at + 1, (5.5, 30), (4.5, 30))
        for dropped in ({"bad_body": 1}, {}):
            ran = followed.script("run_collector.py steps --push --json", **environment)
            [outcome] = json.loads(ran.stdout)["collectors"]
            assert (outcome["status"], outcome["dropped"]) == ("ok", dropped), ran.stderr
        [tokens] = intake.series("steps.tokens").values()
        [loss] = intake.series("steps.loss").values()
    assert tokens == {at: 100, at + 1: 130, at + 2: 30}
    assert loss == {at: 9.5, at + 1: 5.5, at + 2: 4.5}  # of two runs in one second, the larger run_id


def test_check_of_a_kind_prints_what_the_page_shows(followed: Copy, tmp_path: Path) -> None:
    at = int(time.time()) - 600
    write_steps(tmp_path / "records", "a", at, (9.5, 100))
    write_steps(tmp_path / "records", "b", at + 1, (9.5, 100), (8.5, 1))
    with Intake(key=KEY) as intake:
        environment = {"DD_ENV": "test", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": intake.url}
        ran, bad = (
            followed.script("run_collector.py steps --check", **environment, FLEETGAUGE_STEPS_PATHS=str(path))
            for path in (tmp_path / "records", tmp_path / "record")
        )
    [shown] = re.findall(r"```console\n\$ .*? --check\n(.*?)```", KIND_PAGE, re.DOTALL)
    printed = re.sub(r"\d\.\d s", "0.0 s", ran.stdout).replace(f"{tmp_path}/", "")
    assert printed.startswith(shown), ran.stdout + ran.stderr
    assert bad.returncode == 2
    error = f"FLEETGAUGE_STEPS_PATHS: cannot read {tmp_path}/record: it does not exist"
    assert error in bad.stdout + bad.stderr
