"""What a checkpoint is called: one for each installation, whatever its parts are made of."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from common.state.key import checkpoint_key
from support.standins import core_settings

EU = "https://api.datadoghq.eu"


def key(name: str = "wandb", address: str = EU, *more: str, **environ: str) -> str:
    return checkpoint_key(name, core_settings(**environ), address, *more)


def test_a_person_can_read_what_it_is_of() -> None:
    found = key("host", EU, "node-7", FLEETGAUGE_INSTANCE="ml/fleetgauge")
    assert re.fullmatch("host-test-fleetgauge-api.datadoghq.eu-ml_fleetgauge-node-7-[0-9a-f]{16}", found), (
        found
    )


def test_it_stays_the_same() -> None:
    assert key() == "wandb-test-fleetgauge-api.datadoghq.eu-ab2737e862a52492"


def test_everything_that_tells_installations_apart_is_part_of_it() -> None:
    keys = [
        key(),
        key("xenna"),
        key(address="https://api.datadoghq.com"),
        key(address="http://api.datadoghq.eu"),
        key(DD_ENV="prod"),
        key(DD_SERVICE="other"),
        key(FLEETGAUGE_INSTANCE="a/b"),
        key(FLEETGAUGE_INSTANCE="a_b"),
        key("wandb", EU, "a/b"),
        key("wandb", EU, "a_b"),
        key("wandb", EU, "A_b"),
        key("wandb", EU, "a", "b"),
    ]
    assert len({one.lower() for one in keys}) == len(keys)


PARTS = st.lists(st.text(min_size=1).filter(str.strip), min_size=4, max_size=4)


@given(PARTS, PARTS)
def test_two_installations_never_share_one_and_every_store_takes_its_name(
    one: list[str], other: list[str]
) -> None:
    def of(parts: list[str]) -> str:
        env, service, instance, node = (part.strip().replace("\0", "0") for part in parts)
        core = core_settings().model_copy(update={"env": env, "service": service, "instance": instance})
        return checkpoint_key("c" * 40, core, "https://" + "a" * 200, node, "shard" * 20)

    assert re.fullmatch("[A-Za-z0-9._-]+", of(one))
    assert len(of(one)) < 200
    assert (of(one) == of(other)) == (
        [part.strip().replace("\0", "0") for part in one]
        == [part.strip().replace("\0", "0") for part in other]
    )
