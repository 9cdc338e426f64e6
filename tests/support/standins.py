"""Stand-ins for what the core is given: a clock that only sleeping moves, settings, an instant and keys."""

from __future__ import annotations

import traceback

from common.config.settings import CoreSettings, DatadogSettings
from common.config.sources import Configuration

NOW = 1_800_000_000
KEY = "canary-key-0123456789abcdef"
APP_KEY = "canary-application-key-fedcba9876543210"


class Time:
    """A clock that only sleeping moves, and the naps taken on it."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


def core_settings(**environ: str) -> CoreSettings:
    return Configuration({"DD_ENV": "test", **environ}, None).core


def datadog_settings(**environ: str) -> DatadogSettings:
    return Configuration({"DD_API_KEY": KEY, **environ}, None).datadog


def everything(error: BaseException) -> str:
    """All that a person could come to see of an error: its text, its repr and its causes."""
    return "".join([*traceback.format_exception(error), repr(error)])
