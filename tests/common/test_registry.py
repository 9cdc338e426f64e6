"""Collectors are folders; listing them imports none."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common import registry
from common.collector import load_collector
from common.config.settings import CollectorSettings, secret_variables, variables
from common.errors import ConfigurationError
from common.registry import Declaration

MODEL = """\
from __future__ import annotations
from typing import Annotated
from pydantic import Field
from common.config import settings
from common.config.settings import CollectorSettings, Secret, Text, named

class ToySettings(CollectorSettings):
{fields}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "good": '"""Reads good things.\n\nAt length."""\n\nENVIRONMENT = ("SLURM_JOB_ID", "LANG")\n',
        "plain": "import not_installed\n",
        "broken": "def (:\n",
        "computed": "ENVIRONMENT = tuple(x for x in y)\n",
        "number": "ENVIRONMENT = 5\n",
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
    assert registry.names(root) == ["bare", "broken", "computed", "good", "number", "plain"]


def test_the_project_has_its_own() -> None:
    assert "host" in registry.names()
    declared = registry.declaration("host")
    assert declared.summary == "CPUs, memory, disks and GPUs of the node this runs on."
    assert declared.secrets == ()
    assert "SLURM_JOB_PARTITION" in declared.environment
    assert "SLURM_JWT" not in declared.environment


def test_a_broken_collector_does_not_break_the_list(root: Path) -> None:
    assert {name: registry.declaration(name, root) for name in registry.names(root)} == {
        "good": Declaration("Reads good things.", (), ("SLURM_JOB_ID", "LANG")),
        "plain": Declaration(""),
        "broken": Declaration("(its __init__.py cannot be read: SyntaxError)"),
        "computed": Declaration("(its __init__.py cannot be read: ValueError)"),
        "number": Declaration("(its __init__.py cannot be read: TypeError)"),
        "bare": Declaration("(its __init__.py cannot be read: FileNotFoundError)"),
    }


@pytest.mark.parametrize("name", registry.names())
def test_whether_a_collector_is_of_a_node_is_read_from_its_source(name: str) -> None:
    assert registry.per_node(name) is load_collector(name).per_node


def test_a_collector_that_cannot_be_read_is_of_no_node(root: Path) -> None:
    (root / "collectors/good/collector.py").write_text("COLLECTOR = Collector(per_node=True")
    assert not registry.per_node("good", root)
    assert not registry.per_node("absent", root)


class TestSecrets:
    @pytest.mark.parametrize("name", registry.names())
    def test_what_is_read_from_the_source_is_what_the_model_says(self, name: str) -> None:
        assert list(registry.declaration(name).secrets) == secret_variables(load_collector(name).settings)

    def test_those_of_wandb_are_its_key_and_the_one_that_hides_names(self) -> None:
        assert registry.declaration("wandb").secrets == ("WANDB_API_KEY", "FLEETGAUGE_WANDB_USER_HASH_KEY")

    def test_a_file_that_cannot_be_read_does_not_hide_the_secrets_of_another(self, root: Path) -> None:
        folder = root / "collectors" / "broken"
        (folder / "settings.py").write_text(MODEL.format(fields="    token: Secret"))
        (folder / "mended.py").write_text("class Secret(:\n")
        assert registry.declaration("broken", root).secrets == ("FLEETGAUGE_TOKEN",)

    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_however_a_model_is_written(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        """Real models, made from source, are compared with what is read from the same source."""
        names = data.draw(st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,8}[a-z]", fullmatch=True), unique=True))
        kinds = ("Secret", "Secret | None", "settings.Secret", "Text", "int", "Text | None")
        lines = [
            data.draw(st.sampled_from(FIELDS)).format(
                name=f"field_{name}", kind=data.draw(st.sampled_from(kinds)), upper=name.upper()
            )
            for name in names
        ]
        place = data.draw(st.integers(0, len(lines)))
        if data.draw(st.booleans()):
            lines.insert(place, "model_config = named('FLEETGAUGE_TOY_')")
        folder = tmp_path_factory.mktemp("toy") / "collectors" / "toy"
        folder.mkdir(parents=True)
        file = folder / "collector.py"
        file.write_text(MODEL.format(fields="\n".join(f"    {line}" for line in ['"""Toys."""', *lines])))
        model: type[CollectorSettings] = runpy.run_path(str(file), run_name="toy")["ToySettings"]
        assert list(registry.declaration("toy", folder.parent.parent).secrets) == secret_variables(model)


FIELDS = (
    "{name}: {kind}",
    "{name}: {kind} = Field(description='Secret, or not.')",
    "{name}: {kind} = Field(validation_alias='{upper}_KEY', description=\"It's one.\")",
    "{name}: {kind} = Field(\n        description='One.  Secret',\n        validation_alias=\"{upper}\")",
    "{name}: Annotated[{kind}, Field(validation_alias='{upper}')]",
)


class TestOwner:
    KNOWN = ("host", "host_queue", "wandb")

    @pytest.mark.parametrize(
        ("variable", "owner"),
        [
            ("FLEETGAUGE_HOST_PATHS", "host"),
            ("FLEETGAUGE_HOST_QUEUE_PATH", "host_queue"),
            ("HOST_QUEUE_TOKEN", "host_queue"),
            ("FLEETGAUGE_HOST_QUEUES", "host"),
            ("FLEETGAUGE_HOST_QUEUE", "host"),
            ("WANDB_API_KEY", "wandb"),
            ("FLEETGAUGE_HOSTS", None),
            ("FLEETGAUGE_HOST", None),
            ("FLEETGAUGE_STEP", None),
            ("MY_WANDB_API_KEY", None),
            ("MY_FLEETGAUGE_HOST_PATHS", None),
            ("", None),
        ],
    )
    def test_a_variable_belongs_to_the_longest_name_it_begins_with(
        self, variable: str, owner: str | None
    ) -> None:
        assert registry.owner(variable, list(self.KNOWN)) == owner
        assert registry.owner(variable, list(reversed(self.KNOWN))) == owner

    @pytest.mark.parametrize("name", registry.names())
    def test_every_variable_of_a_collectors_settings_reaches_its_process(self, name: str) -> None:
        _, secrets, environment = registry.declaration(name)
        for variable in variables(load_collector(name).settings).values():
            named = registry.owner(variable, registry.names()) == name
            assert named or variable in (*secrets, *environment), variable


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
        with pytest.raises(
            ConfigurationError, match=r"^collector absent cannot be imported: .*scripts/setup"
        ):
            load_collector("absent")

    def test_the_project_is_found_from_anywhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(registry.ROOT)])
        load_collector("host")
        assert sys.path[0] == str(registry.ROOT)
