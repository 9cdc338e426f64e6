"""Fixtures every test may use: the loopback servers and a copy of the service."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from common import logs, signals
from fleetgauge.compute import nvml, user_config
from support.backfills import APP_KEY, NAMES
from support.browser import CHROMIUM, Browser
from support.containers import Engine, build
from support.project import KEY, Project
from support.requirements import (  # noqa: F401  # hooks of pytest, which finds them here
    pytest_addoption,
    pytest_sessionfinish,
    pytest_terminal_summary,
    skip_without,
)
from support.servers.aws import Aws
from support.servers.datadog import Intake
from support.servers.fleet import plausible_day
from support.servers.wandb import KEY as WANDB_KEY
from support.servers.wandb import Wandb

# How long an example takes, or the first one that builds the tables of Unicode, says nothing of the code.
# CI tries the same examples each time: only the change may make a difference.
settings.register_profile(
    "thorough",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.register_profile("quick", settings.get_profile("thorough"))  # see reduce_examples
settings.load_profile("thorough")


def reduce_examples(items: list[pytest.Item]) -> None:
    """Give every property a tenth of its examples, of those that its own settings name too."""
    functions = [item for item in items if isinstance(item, pytest.Function)]
    owners = {(item.function, "_hypothesis_internal_use_settings") for item in functions}
    owners |= {(item.cls, "settings") for item in functions}  # of a state machine
    for owner, name in owners:
        given = getattr(owner, name, None)
        if isinstance(given, settings):
            setattr(owner, name, settings(given, max_examples=max(1, given.max_examples // 10)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes run tests, those of the image are for one, which builds it, and begin at once.

    All others of a file stay together as well: they share what takes long to start.
    """
    if config.getoption("--hypothesis-profile") == "quick":
        reduce_examples(items)
    groups = {item: "image" if "image" in getattr(item, "fixturenames", ()) else "" for item in items}
    items.sort(key=lambda item: not groups[item])
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups[item] or item.nodeid.partition("::")[0]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Give back what a test and its fixtures of every scope changed in this process, which others share.

    Logging and signals are set up once per process, and secrets are redacted in all of it.
    """
    loggers = [logging.getLogger(), *map(logging.getLogger, logs.OURS)]
    levels, handlers = [logger.level for logger in loggers], loggers[0].handlers[:]
    stopping = {number: signal.getsignal(number) for number in signals.NAMES}
    secrets, logs.remembered = logs.remembered, set()
    result = yield
    logs.remembered = secrets
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    for number, handler in stopping.items():
        signal.signal(number, handler)
    return result


@pytest.fixture
def intake() -> Iterator[Intake]:
    """A Datadog intake of this test's own."""
    with Intake(key=KEY) as server:
        yield server


@pytest.fixture(scope="session")
def _aws() -> Iterator[Aws]:
    with Aws() as server:
        yield server


@pytest.fixture
def aws(_aws: Aws) -> Aws:
    """AWS with nothing in it. Starting moto takes seconds, so that all tests share one."""
    _aws.reset()
    return _aws


@pytest.fixture
def project(tmp_path: Path, intake: Intake) -> Project:
    """A copy of the service that pushes to this test's intake."""
    root = tmp_path / "service"
    root.mkdir()
    return Project(root, {"DD_ENV": "test", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": intake.url})


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all pages."""
    if CHROMIUM is None:
        skip_without("chromium", "pages are drawn in it")
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """podman and buildah, for tests that are marked as needing them."""
    return Engine(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="session")
def image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image that the Dockerfile makes; built once, because that takes longer than any test of it."""
    reference = build(engine, tmp_path_factory.mktemp("build"))
    yield reference
    engine.run("podman", "rmi", "--force", reference)


@pytest.fixture
def wandb() -> Iterator[Wandb]:
    with Wandb() as server:
        server.add("acme", "ants", plausible_day(time.time(), runs=60))
        yield server


@pytest.fixture
def fleet(project: Project, wandb: Wandb, intake: Intake, tmp_path: Path) -> Project:
    """A copy of the service with W&B, a store, and an application key; ingestion of the past is on."""
    project.keep("wandb")
    store = tmp_path / "store"
    store.mkdir()
    project.environment |= {
        "WANDB_API_KEY": WANDB_KEY,
        "WANDB_PROJECTS": "acme/ants",
        "WANDB_BASE_URL": wandb.url,
        "DD_APP_KEY": APP_KEY,
        "FLEETGAUGE_STATE": str(store),
    }
    intake.historical |= NAMES
    return project


@pytest.fixture
def nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of the compute metadata was missed so far, and no driver left behind in a question."""
    monkeypatch.setattr(user_config, "logged", set())
    monkeypatch.setattr(nvml, "abandoned", None)
