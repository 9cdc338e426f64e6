"""A W&B that records what it is asked to do, and the real recordings."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SAMPLES = Path(__file__).parents[2] / "data" / "stormlog"

Calls = list[tuple[object, ...]]


@pytest.fixture
def samples() -> Path:
    """Recordings of real sessions, as the tracker left them."""
    return SAMPLES


@pytest.fixture
def calls() -> Calls:
    """Everything that W&B was asked to do, in order."""
    return []


@pytest.fixture
def run(calls: Calls) -> SimpleNamespace:
    """A W&B run."""
    return SimpleNamespace(
        log=lambda payload: calls.append(("log", payload)),
        summary=SimpleNamespace(update=lambda fields: calls.append(("summary", dict(fields)))),
        define_metric=lambda name, **options: calls.append(("define_metric", name, options)),
        log_artifact=lambda artifact: calls.append(("artifact", *artifact.described)),
        finish=lambda: calls.append(("finish",)),
    )


class _Artifact:
    def __init__(self, name: str, type: str) -> None:  # noqa: A002  (W&B's name)
        self.described: list[object] = [name, type]

    def add_file(self, local_path: str, name: str) -> None:
        assert Path(local_path).is_file()
        self.described.append(("file", local_path, name))

    def add_dir(self, local_path: str, name: str) -> None:
        assert Path(local_path).is_dir()
        self.described.append(("directory", local_path, name))


@pytest.fixture
def wandb(calls: Calls, run: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, in place of the real one."""

    def init(**options: object) -> SimpleNamespace:
        calls.append(("init", options))
        return run

    module = ModuleType("wandb")
    module.__dict__.update(
        run=None,
        init=init,
        Artifact=_Artifact,
        Html=lambda text: ("Html", text),
        Table=lambda columns, data: ("Table", columns, data),
        plot=SimpleNamespace(line_series=lambda **options: ("line_series", options)),
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module
