"""Collectors are folders; listing them imports none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from common import registry
from common.collector import load_collector
from common.errors import ConfigurationError
from common.registry import Declaration


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "good": '"""Reads good things.\n\nAt length."""\n\nSECRETS = ("GOOD_KEY", "OTHER_KEY")\n',
        "annotated": '"""Typed."""\nSECRETS: tuple[str, ...] = ("A_KEY",)\n',
        "plain": "import not_installed\n",
        "broken": "def (:\n",
        "computed": "SECRETS = tuple(x for x in y)\n",
    }.items():
        folder = tmp_path / "collectors" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(text)
        (folder / "collector.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "collectors" / "bare").mkdir()
    (tmp_path / "collectors" / "bare" / "collector.py").write_text("")
    (tmp_path / "collectors" / "no_collector").mkdir()
    return tmp_path


def test_every_folder_with_a_collector_is_one(root: Path) -> None:
    assert registry.names(root) == ["annotated", "bare", "broken", "computed", "good", "plain"]


def test_the_project_has_its_own() -> None:
    assert "host" in registry.names()
    declared = registry.declaration("host")
    assert declared.summary == "CPUs, memory, disks and GPUs of the node this runs on."
    assert declared.secrets == ()
    assert "SLURM_JOB_PARTITION" in declared.environment
    assert "SLURM_JWT" not in declared.environment


def test_a_broken_collector_does_not_break_the_list(root: Path) -> None:
    assert {name: registry.declaration(name, root) for name in registry.names(root)} == {
        "good": Declaration("Reads good things.", ("GOOD_KEY", "OTHER_KEY")),
        "annotated": Declaration("Typed.", ("A_KEY",)),
        "plain": Declaration(""),
        "broken": Declaration("(its __init__.py cannot be read: SyntaxError)"),
        "computed": Declaration("(its __init__.py cannot be read: ValueError)"),
        "bare": Declaration("(its __init__.py cannot be read: FileNotFoundError)"),
    }


class TestExpand:
    KNOWN = ("host", "wandb", "xenna")

    def test_all_is_every_one_and_a_name_counts_once(self) -> None:
        known = list(self.KNOWN)
        assert registry.expand(["all"], known) == known
        assert registry.expand(["xenna", "host", "xenna"], known) == ["xenna", "host"]

    def test_an_unknown_name_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            registry.expand(["host", "wanbd"], list(self.KNOWN))
        assert str(caught.value) == (
            "there is no collector 'wanbd' (did you mean 'wandb'?); there are: host, wandb, xenna"
        )

    def test_a_name_like_nothing_has_no_hint(self) -> None:
        with pytest.raises(ConfigurationError, match=r"^there is no collector 'zzz'; there are: "):
            registry.expand(["zzz"], list(self.KNOWN))

    @pytest.mark.parametrize("asked", [["all", "host"], ["host", "all"]])
    def test_all_beside_a_name_is_refused(self, asked: list[str]) -> None:
        with pytest.raises(ConfigurationError, match="`all` stands alone"):
            registry.expand(asked, list(self.KNOWN))


class TestLoad:
    def test_one_collector_is_imported(self) -> None:
        assert load_collector("host").name == "host"

    def test_one_that_cannot_be_imported_says_so(self) -> None:
        with pytest.raises(ConfigurationError, match=r"^collector absent cannot be imported: .*locks/"):
            load_collector("absent")

    def test_the_project_is_found_from_anywhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(registry.ROOT)])
        load_collector("host")
        assert sys.path[0] == str(registry.ROOT)
