"""Which credentials a child is given, for every kind of run there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.job import DATADOG, Backfill, Job, Mode
from common.process.environment import child_environment, configured

SECRETS = {"WANDB_API_KEY", "DD_API_KEY", "DD_APP_KEY"}
PAST = Backfill(since=0, until=900, asked=("--since", "1970-01-01"))


@pytest.mark.parametrize(
    ("collector", "mode", "backfill", "expected"),
    [
        ("wandb", Mode.DRY_RUN, None, {"WANDB_API_KEY"}),
        ("wandb", Mode.DRY_RUN, PAST, {"WANDB_API_KEY"}),
        ("wandb", Mode.CHECK, None, {"WANDB_API_KEY"}),
        ("wandb", Mode.CHECK, PAST, {"WANDB_API_KEY"}),
        ("wandb", Mode.PUSH, None, {"WANDB_API_KEY", "DD_API_KEY"}),
        ("wandb", Mode.PUSH, PAST, {"WANDB_API_KEY", "DD_API_KEY", "DD_APP_KEY"}),
        ("wandb", Mode.REPORT, None, {"DD_API_KEY"}),
        (DATADOG, Mode.CHECK, None, {"DD_API_KEY"}),
        (DATADOG, Mode.CHECK, PAST, {"DD_API_KEY", "DD_APP_KEY"}),
        ("wandb", Mode.SETTINGS, None, {"WANDB_API_KEY"}),
        (DATADOG, Mode.SETTINGS, None, {"DD_API_KEY", "DD_APP_KEY"}),
        ("host", Mode.DRY_RUN, None, set()),
        ("host", Mode.DRY_RUN, PAST, set()),
    ],
)
def test_a_child_is_given_the_keys_that_its_run_needs_and_no_other(
    collector: str, mode: Mode, backfill: Backfill | None, expected: set[str]
) -> None:
    job = Job(collector, mode, timeout=60, backfill=backfill)
    given = child_environment(job, dict.fromkeys(SECRETS, "a key"))
    assert given.keys() & SECRETS == expected


def test_a_child_is_given_its_own_settings_and_shared_ones_but_not_those_of_others() -> None:
    names = [
        "FLEETGAUGE_HOST_DISKS",
        "FLEETGAUGE_STEP",
        "FLEETGAUGE_WANDB_DAYS",
        "FLEETGAUGE_PROVISION_NOTIFY",
    ]
    job = Job("host", Mode.DRY_RUN, timeout=60)
    given = child_environment(job, dict.fromkeys(names, "a value"))
    assert {name for name in names if name in given} == {"FLEETGAUGE_HOST_DISKS", "FLEETGAUGE_STEP"}


GIVEN = {"AWS_SESSION_TOKEN": "a token", "HTTPS_PROXY": "http://proxy", "NO_PROXY": "x"}
OF_WANDB = ("WANDB_API_KEY", "FLEETGAUGE_WANDB_USER_HASH_KEY")
PROXY = {"HTTPS_PROXY", "NO_PROXY"}


@pytest.mark.parametrize(
    ("collector", "environ", "expected"),
    [
        ("host", {}, set()),
        ("host", {"FLEETGAUGE_SECRET_PREFIX": "test"}, set()),
        ("host", {"FLEETGAUGE_STATE": "/data"}, set()),
        ("host", {"FLEETGAUGE_STATE": "s3://bucket"}, {*GIVEN}),
        ("xenna", {"FLEETGAUGE_XENNA_PATHS": "/data"}, set()),
        ("xenna", {"FLEETGAUGE_XENNA_PATHS": "/data,s3://bucket"}, {*GIVEN}),
        ("xenna", {"FLEETGAUGE_GPU_MEMORY_PATHS": "s3://bucket"}, set()),
        ("wandb", {}, PROXY),
        ("wandb", {"FLEETGAUGE_SECRET_PREFIX": "test"}, {*GIVEN}),
        ("wandb", {"FLEETGAUGE_SECRET_PREFIX": "test", "WANDB_API_KEY": "a key"}, {*GIVEN}),
        ("wandb", {"FLEETGAUGE_SECRET_PREFIX": "test", **dict.fromkeys(OF_WANDB, "a key")}, PROXY),
    ],
)
def test_a_child_reaches_aws_and_the_proxy_only_where_it_has_to(
    collector: str, environ: dict[str, str], expected: set[str]
) -> None:
    job = Job(collector, Mode.DRY_RUN, timeout=60)
    assert child_environment(job, {**GIVEN, **environ}).keys() & GIVEN.keys() == expected


def test_push_reaches_aws_for_keys_that_it_is_not_given() -> None:
    job = Job("host", Mode.PUSH, timeout=60)
    keys = dict.fromkeys(("DD_API_KEY", "DD_APP_KEY"), "a key")
    assert child_environment(job, {**GIVEN, **keys}).keys() & GIVEN.keys() == PROXY
    given = child_environment(job, {**GIVEN, **keys, "FLEETGAUGE_SECRET_PREFIX": "test"})
    assert given.keys() >= GIVEN.keys()
    assert "DD_APP_KEY" not in given


def test_a_setting_is_looked_for_in_the_environment_and_then_in_the_file(tmp_path: Path) -> None:
    config = tmp_path / "fleetgauge.toml"
    config.write_text('step = "5m"\nhost = 3\n[xenna]\nstep = "7m"\n')
    job = Job("xenna", Mode.PUSH, timeout=60, config=str(config))
    assert configured(job, {"FLEETGAUGE_STEP": " 1m "}, "step") == "1m"
    assert configured(job, {}, "step") == "5m"
    assert configured(job, {}, "step", "xenna") == "7m"
    assert configured(job, {"FLEETGAUGE_XENNA_STEP": "2m"}, "step", "xenna") == "2m"
    assert [configured(job, {}, "step", name) for name in ("wandb", "host")] == ["", ""]
    assert configured(Job("xenna", Mode.PUSH, timeout=60), {}, "step") == ""
    config.write_text("[")
    assert configured(job, {}, "step") == ""
