"""Collectors are folders; what their packages declare is known before they run."""

from __future__ import annotations

from pathlib import Path

import pytest

import collectors
from common import registry
from common.collector import load_collector
from common.config.settings import secret_variables, variables
from common.registry import Declaration


def test_every_folder_with_a_collector_is_one(tmp_path: Path) -> None:
    for name in ("good", "bare", "no_collector"):
        (tmp_path / "collectors" / name).mkdir(parents=True)
    for name in ("good", "bare"):
        (tmp_path / "collectors" / name / "collector.py").write_text("raise RuntimeError('imported')\n")
    assert registry.names(tmp_path) == ["bare", "good"]


@pytest.mark.parametrize("name", registry.names())
def test_package_declares_the_secrets_of_the_settings(name: str) -> None:
    declared = registry.declaration(name)
    assert declared.summary.endswith(".")
    assert list(declared.secrets) == secret_variables(load_collector(name).settings)


def test_package_that_cannot_be_imported_says_so_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "plain_toy": '"""Reads toys.\n\nAt length."""\nENVIRONMENT = ("LANG",)\nPER_NODE = True\n',
        "broken_toy": "def (:\n",
        "lacking_toy": "import not_installed\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    monkeypatch.setattr(collectors, "__path__", [str(tmp_path)])
    assert registry.declaration("plain_toy") == Declaration("Reads toys.", (), ("LANG",), per_node=True)
    assert registry.declaration("broken_toy").summary == "(cannot be imported: SyntaxError)"
    assert registry.declaration("lacking_toy").summary == "(cannot be imported: ModuleNotFoundError)"


class TestOwner:
    KNOWN = ("host", "host_queue", "wandb")

    @pytest.mark.parametrize(
        ("variable", "owner"),
        [
            ("FLEETGAUGE_HOST_PATHS", "host"),
            ("FLEETGAUGE_HOST_QUEUE_PATH", "host_queue"),
            ("HOST_QUEUE_TOKEN", "host_queue"),
            ("FLEETGAUGE_HOST_QUEUE", "host"),
            ("WANDB_API_KEY", "wandb"),
            ("FLEETGAUGE_HOST", None),
            ("FLEETGAUGE_STEP", None),
            ("MY_FLEETGAUGE_HOST_PATHS", None),
        ],
    )
    def test_a_variable_belongs_to_the_longest_name_it_begins_with(
        self, variable: str, owner: str | None
    ) -> None:
        assert registry.owner(variable, list(self.KNOWN)) == owner
        assert registry.owner(variable, list(reversed(self.KNOWN))) == owner

    @pytest.mark.parametrize("name", registry.names())
    def test_every_variable_of_a_collectors_settings_reaches_its_process(self, name: str) -> None:
        declared = registry.declaration(name)
        for variable in variables(load_collector(name).settings).values():
            named = registry.owner(variable, registry.names()) == name
            assert named or variable in (*declared.secrets, *declared.environment), variable


def test_all_is_every_collector_and_a_name_counts_once() -> None:
    known = ["host", "wandb", "xenna"]
    assert registry.expand(["all"], known) == registry.expand(["host", "all"], known) == known
    assert registry.expand(["xenna", "host", "xenna"], known) == ["xenna", "host"]
