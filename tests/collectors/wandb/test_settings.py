"""The settings of the W&B collector: defaults, and values that are refused."""

from __future__ import annotations

import pytest

from collectors.wandb.settings import Project, WandbSettings
from common.config.sources import Configuration
from common.errors import ConfigurationError, NotConfiguredError

HASH_KEY = "FLEETGAUGE_WANDB_USER_HASH_KEY"


def made(**variables: str) -> WandbSettings:
    environ = {"WANDB_API_KEY": "k", "WANDB_PROJECTS": "acme/ants", **variables}
    return Configuration(environ, None).table(WandbSettings, "wandb")


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("FLEETGAUGE_WANDB_GROUP_BY", "user,team", "write any of user"),
        ("FLEETGAUGE_WANDB_GPU_PRICES", "h100", "write a type and dollars"),
        *(
            ("WANDB_PROJECTS", path, "write entity/project")
            for path in ("acme", "acme/", "a/b/c", "acme/x*", "*/ants")
        ),
    ],
)
def test_value_that_cannot_be_used_is_a_configuration_error(variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        made(**{variable: value})
    assert variable in str(caught.value)


@pytest.mark.parametrize("value", ["", " ", "\t\n"])
def test_blank_hash_key_is_a_configuration_error(value: str) -> None:
    with pytest.raises(ConfigurationError, match="is set but empty") as caught:
        made(**{HASH_KEY: value})
    assert HASH_KEY in str(caught.value)


def test_other_blank_values_are_unset() -> None:
    assert made(FLEETGAUGE_WANDB_GPU_COUNT_KEY=" ", FLEETGAUGE_WANDB_WINDOW="").window == 86400


def test_groups_are_read_only_where_something_is_sent_by_group() -> None:
    off = {"FLEETGAUGE_WANDB_USAGE": "false", "FLEETGAUGE_WANDB_UTILIZATION": "false"}
    assert made(**off).grouping == ()
    assert made(FLEETGAUGE_WANDB_USAGE="false").grouping == ("user", "gpu_type")


@pytest.mark.parametrize(
    "variables", [{}, {"WANDB_ENTITY": "acme"}, {"WANDB_PROJECT": "ants"}, {"WANDB_API_KEY": ""}]
)
def test_without_a_project_or_key_it_is_not_configured(variables: dict[str, str]) -> None:
    with pytest.raises(NotConfiguredError, match="WANDB_"):
        made(**{"WANDB_PROJECTS": " , ", **variables})


def test_projects_are_chosen_once_each_or_by_two_variables() -> None:
    paths = "acme/ants, acme/*,acme/ants"
    assert made(WANDB_PROJECTS=paths).chosen() == [Project("acme", "ants"), Project("acme", "*")]
    found = made(WANDB_PROJECTS="", WANDB_ENTITY="acme", WANDB_PROJECT="ants")
    assert found.chosen() == [Project("acme", "ants")]
