"""Realistic mistakes: each ends with the right exit code and a message that names the setting to change.

No message has a class name, a line of our source or a traceback.
"""

from __future__ import annotations

import io
import json
import logging
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from common.cli.main import main
from common.options import Mode, Options
from common.run.run import run
from common.show import table
from support.record_folder import MAKERS
from support.rendering import RefusedError, needs_helm, render, scenario
from support.servers.datadog import Intake
from support.servers.fleet import plausible_day
from support.servers.wandb import KEY, Wandb

OF_OURS = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b|Traceback|(?<!run_collector)\.py\b|, line \d+, in ")


class Mistake(NamedTuple):
    """A command line, what is wrong in its environment, the exit code, and what the output must name."""

    argv: str
    names: str
    wrong: Mapping[str, str | None] = {}
    code: int = 2


def env(argv: str, name: str, value: str | None, code: int = 2) -> Mistake:
    """Return the mistake of one variable."""
    return Mistake(argv, name, {name: value}, code)


AWS = {"FLEETGAUGE_SECRET_PREFIX": "a/b", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
COMMAND_LINE = [
    Mistake("wnadb", "wandb"),
    Mistake("", "wandb"),
    Mistake("wandb --psuh", "--push"),
    Mistake("wandb --since yesterday", "--since"),
    Mistake("wandb --since 1d --until 2d", "--until"),
    Mistake("wandb --since 2026-11-14T00:10Z --until 2026-11-14T00:20Z --step 1h", "--step"),
    Mistake("wandb --timeout soon", "--timeout"),
    Mistake("wandb --every 0s", "--every"),
    Mistake("wandb --every 15m --since 1d", "--every"),
    Mistake("wandb --shard 3/2", "--shard"),
    Mistake("wandb --shard /2", "JOB_COMPLETION_INDEX"),
    Mistake("host --shard 0/2", "--shard"),
    Mistake("wandb --since 1d --slice 0/2", "--slice"),
    Mistake("wandb --csv points.csv", "--csv"),
    Mistake("wandb --since 1d --csv /none/points.csv", "--csv"),
    Mistake("wandb --html /proc/page.html", "--html"),
    Mistake("wandb --config /none/fleetgauge.toml", "/none/fleetgauge.toml"),
    Mistake("wandb --since 1d --json --html page.html", "--json"),
    Mistake("wandb --since 1d --push", "--yes"),
    Mistake("wandb --since 1d --enable-historical", "--push"),
    Mistake("wandb --explain wandb.runs.actve", "wandb.runs.active"),
    Mistake("wandb --explain wandb.runs.active projekt=ants", "projekt"),
    Mistake("host --explain host.load_1m", "--explain"),
    Mistake("host --since 1d", "host"),
]
WANDB = [
    env("wandb", "WANDB_API_KEY", None),
    env("wandb", "WANDB_API_KEY", "x" * 40),
    env("wandb", "WANDB_API_KEY", "my key"),
    env("wandb", "WANDB_PROJECTS", None),
    env("wandb", "WANDB_PROJECTS", "ants"),
    env("wandb", "WANDB_PROJECTS", "acme/bees"),
    Mistake(
        "wandb", "WANDB_ENTITY", {"WANDB_PROJECTS": None, "WANDB_ENTITY": "acne", "WANDB_PROJECT": "ants"}
    ),
    env("wandb", "WANDB_BASE_URL", "api.wandb.ai"),
    env("wandb", "WANDB_BASE_URL", "https://api.wandb.example"),
    env("wandb --timeout 1s", "WANDB_BASE_URL", "http://127.0.0.1:1", code=1),
    env("wandb", "WANDB_BASE_URL", "{datadog}"),
    env("wandb", "FLEETGAUGE_WANDB_PAGE_SIZE", "0"),
    env("wandb", "FLEETGAUGE_WANDB_PAGE_SIZE", "many"),
    env("wandb", "FLEETGAUGE_WANDB_WINDOW", "a fortnight"),
    env("wandb", "FLEETGAUGE_WANDB_GPU_PRICES", "h100:2"),
    env("wandb", "FLEETGAUGE_WANDB_GROUP_BY", "colour"),
    Mistake("wandb", "FLEETGAUGE_WANDB_PAGE_SIZE", {"FLEETGAUGE_WANDB_PAGESIZE": "5"}),
    env("wandb", "FLEETGAUGE_NODE_LOCAL", "true"),
    env("wandb", "FLEETGAUGE_NODE_LOCAL", "perhaps"),
    *(env("host", "FLEETGAUGE_NODE_NAME", name) for name in ("my node", "localhost")),
]
SHARED = [
    env("wandb", "FLEETGAUGE_STEP", "0s"),
    env("wandb", "FLEETGAUGE_SERIES_CAP", "-1"),
    Mistake("wandb", "FLEETGAUGE_SERIES_CAP", {"FLEETGAUGE_SERIES_CAP": "3"}, code=1),
    env("wandb", "FLEETGAUGE_STATE", "/none/at/all", code=1),
    env("wandb", "FLEETGAUGE_STATE", "s3://"),
    env("wandb --check", "FLEETGAUGE_STATE", "/none/at/all", code=1),
    env("wandb", "HTTPS_PROXY", "proxy.example:3128"),
    Mistake(
        "wandb --timeout 1s",
        "HTTPS_PROXY",
        {"HTTPS_PROXY": "http://127.0.0.1:1", "WANDB_BASE_URL": "https://api.wandb.example"},
        code=1,
    ),
    env("wandb --check", "DD_API_KEY", None),
    env("wandb --check", "DD_API_KEY", "0" * 32),
    env("wandb --check", "DD_ENV", None),
    Mistake("wandb --check", "DD_SITE", {"DD_SITE": "datadoghq.co", "FLEETGAUGE_DD_URL": None}),
    env("wandb --check", "FLEETGAUGE_DD_URL", "intake"),
    env("wandb --check", "FLEETGAUGE_DD_URL", "{wandb}"),
    env("wandb --check --since 1d", "DD_APP_KEY", None),
    env("wandb --check --since 1d", "DD_APP_KEY", "0" * 40),
    Mistake("wandb", "AWS_REGION", {"FLEETGAUGE_SECRET_PREFIX": "a/b"}),
    Mistake("wandb", "AWS_ACCESS_KEY_ID", {"FLEETGAUGE_SECRET_PREFIX": "a/b", "AWS_REGION": "us-east-1"}),
    Mistake("wandb", "AWS_REGION", {**AWS, "AWS_REGION": "us-moon-1"}),
]
RECORDS = [
    env("xenna", "FLEETGAUGE_XENNA_PATHS", None),
    env("xenna", "FLEETGAUGE_XENNA_PATHS", "/none/at/all", code=1),
    env("xenna", "FLEETGAUGE_XENNA_PATHS", "{folder}", code=1),
    env("xenna", "FLEETGAUGE_XENNA_LOOKBACK", "2d"),
    Mistake("xenna", "FLEETGAUGE_STEP", {"FLEETGAUGE_XENNA_PATHS": "{folder}", "FLEETGAUGE_STEP": "30m"}),
]
TOML = {
    "[wandb\npage_size = 5": "page_size",
    "[wanbd]\npage_size = 5": "wandb",
    "[wandb]\npagesize = 5": "page_size",
    '[wandb]\npage_size = "many"': "page_size",
    "step = 0": "step",
    "[wandb]\npage_size = 5\npage_size = 6": "overwrite",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """W&B and Datadog on loopback, as variables of a good configuration."""
    with Wandb() as wandb, Intake() as intake:
        wandb.add("acme", "ants", plausible_day(time.time(), runs=20))
        yield {
            "WANDB_API_KEY": KEY,
            "WANDB_PROJECTS": "acme/ants",
            "WANDB_BASE_URL": wandb.url,
            "DD_ENV": "test",
            "DD_API_KEY": intake.key,
            "FLEETGAUGE_DD_URL": intake.url,
        }


Try = Callable[[str, Mapping[str, str | None]], tuple[int, str]]


@pytest.fixture
def attempt(servers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Try]:
    """Run a command line in this process, with changes to a good configuration; its exit code and output."""
    lookup = socket.getaddrinfo

    def loopback_only(host: str, *arguments: Any, **options: Any) -> Any:  # Any: as the original
        if host != "127.0.0.1":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return lookup(host, *arguments, **options)

    def attempt(argv: str, wrong: Mapping[str, str | None]) -> tuple[int, str]:
        places = {
            "{folder}": str(tmp_path),
            "{wandb}": servers["WANDB_BASE_URL"],
            "{datadog}": servers["FLEETGAUGE_DD_URL"],
        }
        changed = {name: places.get(value or "", value) for name, value in {**servers, **wrong}.items()}
        environ = {name: value for name, value in changed.items() if value is not None}
        for name, value in environ.items():
            if name.startswith("AWS_"):  # which boto3 reads for itself
                monkeypatch.setenv(name, value)
        output = io.StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            try:
                code = main(argv.split(), environ)
            except SystemExit as ended:  # of the parser
                code = int(ended.code or 0)
        return code, output.getvalue()

    monkeypatch.setattr(socket, "getaddrinfo", loopback_only)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield attempt
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(capture=False)


def judge(found: tuple[int, str], code: int, names: str) -> None:
    assert found[0] == code, found[1]
    assert names in found[1], found[1]
    assert OF_OURS.findall(found[1]) == [], found[1]


@pytest.mark.parametrize("mistake", [*COMMAND_LINE, *WANDB, *SHARED, *RECORDS], ids=str)
def test_mistake_is_answered_by_the_name_of_what_to_change(
    mistake: Mistake, attempt: Try, tmp_path: Path
) -> None:
    record = MAKERS["data_plane"]("ants", 1, int(time.time()) - 120)
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    judge(attempt(mistake.argv, mistake.wrong), mistake.code, mistake.names)


@pytest.mark.parametrize("text", TOML)
def test_mistake_in_a_file_names_the_file_and_the_key(text: str, attempt: Try, tmp_path: Path) -> None:
    path = tmp_path / "fleetgauge.toml"
    path.write_text(text)
    found = attempt(f"wandb --config {path}", {})
    judge(found, 2, str(path))
    assert TOML[text] in found[1] or "line" in found[1]


def test_clock_that_is_wrong_is_named(servers: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("")
    environ = {**servers, "FLEETGAUGE_XENNA_PATHS": str(tmp_path)}
    outcome = run("xenna", Options(Mode.PUSH, timeout=10), environ, clock=lambda: time.time() - 7200)
    output = io.StringIO()
    table.show(table.Output(output), [outcome], {})
    judge((1 if outcome.error else 0, output.getvalue()), 1, "clock")


@needs_helm
@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"schedule": "every minute"}, "schedule"),
        ({"collectros": {}}, "collectros"),
        ({"image": {"tag": 5}}, "image"),
    ],
)
def test_mistake_in_a_value_of_the_chart_names_it(change: dict[str, Any], names: str) -> None:
    with pytest.raises(RefusedError, match=names):
        render(scenario("default"), change)
