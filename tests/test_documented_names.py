"""What the documents tell people to type and to look for: commands, options, settings, metrics."""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.cli.arguments import parser
from common.collector import load_collector
from common.config.settings import CoreSettings, DatadogSettings, Settings, variables
from common.datadog.provision_settings import ProvisionSettings
from common.registry import names
from scripts import demo, generate, metric_examples
from support.documents import FOREIGN, PAGES, PRESENT, Command, commands, name_of, spans
from support.project import ROOT
from support.servers.aws import Aws
from support.servers.datadog import Intake
from support.servers.wandb import Wandb

COMMANDS = [command for page in PAGES for command in commands(page)]
# Pages that a test of their own follows step by step, and scripts that another test runs.
FOLLOWED = {"CONTRIBUTING.md", "docs/adding-a-collector.md"}
SCRIPTS = {f"scripts/{name}" for name in ("build", "demo", "generate", "lint", "release", "setup", "test")}
SCRIPTS |= {"scripts/provision.py"}
RUNNABLE = {"scripts/run_collector.py", "fleetgauge.gpu_memory"}
# Options of helm, docker and pytest.
FOREIGN_OPTIONS = {"--atomic", "--build-arg", "--namespace", "--set", "--upgrade", "--values", "--wait"}
FOREIGN_OPTIONS |= {"--hypothesis-profile"}
RUN = [one for one in COMMANDS if one.program in RUNNABLE and one.page not in FOLLOWED]

ABSENT = {"collector.units_lost", "collector.shards"}  # in the demo
METRICS = {metric.name for family in generate.families().values() for metric in family}


def test_every_command_is_run_by_a_test_or_is_the_readers_own() -> None:
    programs = {one.program for one in COMMANDS if one.page not in FOLLOWED}
    assert programs - RUNNABLE - SCRIPTS - {*FOREIGN, "shell"} == set()


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of the demo, whose servers are up."""
    folder = tmp_path_factory.mktemp("demo")
    servers = Aws(), Intake(key=demo.KEY, app_key=demo.APP_KEY), Wandb(key=demo.KEY)
    with servers[0] as aws, servers[1] as intake, servers[2] as wandb:
        yield demo.prepare(folder, aws, intake, wandb)


@pytest.mark.slow
@pytest.mark.parametrize("command", RUN, ids=lambda one: f"{one.page}:{' '.join(one.words)}")
def test_a_command_of_the_documents_does_not_fail(
    command: Command, demonstrated: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "tests" / "data" / "stormlog" / "gpu-sink", tmp_path / "telemetry")
    words = shlex.split(" ".join(command.words))
    if command.program == "fleetgauge.gpu_memory":
        arguments = ["-m", *words[2:]]
    else:
        place = next(at for at, word in enumerate(words) if word.endswith("run_collector.py"))
        arguments = [str(ROOT / "scripts" / "run_collector.py"), *words[place + 1 :]]
    if {"--since", "--push"} <= {*arguments}:  # a person would be asked, and would have turned it on
        arguments += ["--yes", "--enable-historical"]
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**demonstrated, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr


def typed(page: Path) -> Iterator[str]:
    """What a page shows as typed: commands of its blocks, and code in its text."""
    yield from (command.text for command in commands(page))
    yield from spans(page)


@functools.cache
def known_options() -> set[str]:
    """The options of our commands and scripts, and those of helm, docker and pytest that the pages show."""
    helped = [parser().format_help(), demo.parser().format_help()]
    for arguments in (["--help"], ["report", "--help"], ["export", "--help"]):
        command = [sys.executable, "-m", "fleetgauge.gpu_memory", *arguments]
        helped.append(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    scripts = [*ROOT.glob("scripts/*"), *ROOT.glob("benchmarks/*.py")]
    helped += [path.read_text() for path in scripts if path.is_file()]
    return FOREIGN_OPTIONS | {*re.findall(r"--[a-z][a-z-]+", "".join(helped))}


@functools.cache
def known_settings() -> set[str]:
    models: list[type[Settings]] = [CoreSettings, DatadogSettings, ProvisionSettings]
    models += [load_collector(name).settings for name in names()]
    of_pages = {"FLEETGAUGE_QUEUE_URL", "FLEETGAUGE_STEPS_PATHS", "FLEETGAUGE_STEPS_SETTLE"}
    return of_pages.union(*(variables(model).values() for model in models))


@pytest.mark.parametrize("page", PRESENT, ids=name_of)
def test_every_option_setting_and_command_line_exists(page: Path) -> None:
    ours = re.compile("--|.*(run_collector|scripts/|fleetgauge.gpu_memory)")
    for text in typed(page):
        assert {*re.findall(r"\bFLEETGAUGE_[A-Z_]*[A-Z]\b(?![*<.…])", text)} <= known_settings(), text
        if ours.match(text) and not re.search("helm|kubectl|docker", text):
            assert {*re.findall(r"(?<![\w-])--[a-z][a-z-]+(?![\w.])", text)} <= known_options(), text
    for text in spans(page):
        if match := re.search(r"run_collector\.py ([^|…]*)$", text):
            line = match[1].replace("NAME", "host").partition("  ")[0]
            parser().parse_args(shlex.split(line))
        if match := re.search(r"scripts/demo( [^|]*)?$", text):
            demo.parser().parse_args(shlex.split(match[1] or ""))


@pytest.mark.parametrize("page", PRESENT, ids=name_of)
def test_every_metric_exists(page: Path) -> None:
    families = "|".join(["collector", *names()])
    for text in spans(page):
        named = re.fullmatch(rf"(?:{families})\.[a-z_0-9.]*[a-z0-9]", text)
        # Modules and values of the chart are called so too; no metric of wandb has only two parts.
        if not named or text.endswith((".py", ".md")) or re.fullmatch(r"wandb\.\w+", text):
            continue
        module = (ROOT / "collectors" / text.replace(".", "/")).with_suffix(".py")
        assert text in METRICS or module.exists(), text


def test_the_page_of_metrics_has_a_value_of_the_demo_for_each() -> None:
    assert METRICS - {*metric_examples.values()} <= ABSENT
    assert {*metric_examples.values()} <= METRICS
