"""Settings as a person writes them, and never otherwise than they are."""

from __future__ import annotations

import pytest
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from common.config.settings import Duration, Settings
from common.config.shown import MASK, written


class _Toy(Settings):
    plain: str = ""
    time: Duration = 0


@pytest.mark.parametrize(
    ("value", "field", "text"),
    [
        (604_800, "time", "7d"),
        (5400, "time", "90m"),
        (0, "time", "0s"),
        (604_800, "plain", "604800"),
        (True, "plain", "true"),
        (("/", "/data"), "plain", "/,/data"),
        (5.0, "plain", "5"),
        (1234567.5, "plain", "1234567.5"),
        (0.1234567, "plain", "0.1234567"),
        (None, "plain", ""),
        (SecretStr("a key"), "plain", MASK),
    ],
)
def test_a_value_is_written_as_a_person_would_and_exactly(value: object, field: str, text: str) -> None:
    info: FieldInfo = _Toy.model_fields[field]
    assert written(value, info) == text
