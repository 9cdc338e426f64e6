"""Which credentials a child is given, for every kind of run there is."""

from __future__ import annotations

import pytest

from common.job import DATADOG, Backfill, Job, Mode
from common.process.environment import child_environment

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
        ("host", Mode.DRY_RUN, None, set()),
    ],
)
def test_a_child_is_given_the_keys_that_its_run_needs_and_no_other(
    collector: str, mode: Mode, backfill: Backfill | None, expected: set[str]
) -> None:
    job = Job(collector, mode, now=900, timeout=60, backfill=backfill)
    given = child_environment(job, dict.fromkeys(SECRETS, "a key"))
    assert given.keys() & SECRETS == expected


def test_a_child_is_given_its_own_settings_and_shared_ones_but_not_those_of_others() -> None:
    names = [
        "FLEETGAUGE_HOST_DISKS",
        "FLEETGAUGE_STEP",
        "FLEETGAUGE_WANDB_DAYS",
        "FLEETGAUGE_PROVISION_NOTIFY",
    ]
    job = Job("host", Mode.DRY_RUN, now=900, timeout=60)
    given = child_environment(job, dict.fromkeys(names, "a value"))
    assert {name for name in names if name in given} == {"FLEETGAUGE_HOST_DISKS", "FLEETGAUGE_STEP"}
