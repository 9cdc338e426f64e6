"""Settings as a person writes and reads them: `7d`, `/`, `true`, secrets masked, and where each is from."""

from __future__ import annotations

from typing import get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from common.config.settings import Duration, Settings, variables
from common.logs import redact
from common.times import duration

MASK = "********"


def written(value: object, info: FieldInfo) -> str:
    """A value as it is written in a variable; nothing where there is none."""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, int) and get_args(Duration)[-1] in info.metadata:
        return duration(value)
    return "" if value is None else str(value).removesuffix(".0")


def in_force(settings: Settings) -> list[dict[str, object]]:
    """Every setting, its value and where that was found."""
    told: list[dict[str, object]] = []
    for name, variable in variables(type(settings)).items():
        value = redact(written(getattr(settings, name), type(settings).model_fields[name]))
        origin = settings.origins.get(variable, "default" if value else "not set")
        told.append({"setting": variable, "value": value, "from": redact(origin)})
    return told
