"""The configuration file: whatever stands at the path, an answer that names it, and never what it holds."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common import registry
from common.collector import load_collector
from common.config.configuration import Configuration
from common.config.file import MAX_BYTES, ConfigurationFile, is_deeper, read_tables
from common.config.settings import CoreSettings, DatadogSettings, Settings, load
from common.errors import ConfigurationError
from support.project import ROOT
from support.standins import everything

CANARY = "canary-secret-value"
DEEP = "more than 8 tables and lists inside each other"


def refused(path: Path, content: bytes | str) -> str:
    """What is said of a file with this content."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigurationError) as caught:
        read_tables(str(path))
    assert CANARY not in everything(caught.value)
    return str(caught.value)


def test_none_is_an_empty_one() -> None:
    assert ConfigurationFile.read(None) == ConfigurationFile(None, {})


def test_toml_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text('env = "dev"\n[host]\n')
    assert ConfigurationFile.read(str(path)) == ConfigurationFile(str(path), {"env": "dev", "host": {}})
    (tmp_path / "link").symlink_to(path)  # as Kubernetes mounts a ConfigMap
    assert read_tables(str(tmp_path / "link")) == {"env": "dev", "host": {}}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = f"{tmp_path}/absent.toml"
    with pytest.raises(ConfigurationError) as caught:
        read_tables(path)
    assert str(caught.value) == f"cannot read the configuration file {path}: No such file or directory"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"env = ", "Invalid value (at end of document)"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        (b'api_key = "canary-secret-value\n', "Illegal character '\\n' (at line 1, column 31)"),
        (
            b"[canary-secret-value]\n[canary-secret-value]",
            "Cannot declare a key twice (at line 2, column 21)",
        ),
        (b"[a]\nstep = 1" + b"0" * 5000, "Exceeds the limit (4300 digits)"),
    ],
)
def test_a_file_that_is_not_toml_is_told_where_and_not_quoted(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "f.toml"
    assert refused(path, content).startswith(f"the configuration file {path} is not TOML: {said}")


HOSTILE = {
    "lists": "x = " + "[" * 100_000,
    "tables": "x = " + "{a = " * 40_000,
    "a long key": "x" + ".x" * 100_000 + " = 1",
    "a long quoted key": '"\\""' + ' . "\\""' * 20_000 + " = 1",
    "a long table": "[x" + ".'x'" * 60_000 + "]",
    "lists that end": "x = " + "[" * 90 + "]" * 90,
    "a key that is not too long to read": "x" + ".x" * 10 + " = 1",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_nested_too_deep_is_refused(tmp_path: Path, content: str) -> None:
    assert refused(tmp_path / "f.toml", content) == f"the configuration file {tmp_path}/f.toml: {DEEP}"


def test_a_name_with_dots_in_a_value_is_none_of_that(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text('[wandb]\nbase_url = "https://a.b.c.d.e.f.g.h.i.j"\nprojects = ["a/b.c.d.e"]\n')
    assert read_tables(str(path))["wandb"]["base_url"] == "https://a.b.c.d.e.f.g.h.i.j"


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text("#" * MAX_BYTES)
    assert read_tables(str(path)) == {}
    assert refused(path, "#" * (MAX_BYTES + 1)).endswith("is larger than 262,144 bytes")


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(ConfigurationError) as caught:
            read_tables(str(path))
        assert str(caught.value) == f"the configuration file {path} is not a regular file"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary() | st.text("x=[]{}.'\"\n #\\1", max_size=200).map(str.encode))
def test_whatever_it_holds_it_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f.toml"
    path.write_bytes(content)
    try:
        said = str(read_tables(str(path)).keys())
    except ConfigurationError as error:
        said = str(error).replace(str(path), "the path")
    assert said.startswith(("dict_keys(", "the configuration file the path"))


def test_the_example_loads_as_it_is_and_says_every_default() -> None:
    text = (ROOT / "docs" / "fleetgauge.example.toml").read_text()
    core = Configuration({}, str(ROOT / "docs" / "fleetgauge.example.toml")).core
    assert core.model_dump() == CoreSettings().model_dump()
    tables = tomllib.loads(re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE))
    assert tables["wandb"].pop("user_hash_key") == ""  # set, but empty, it is an error
    file = ConfigurationFile("example", tables)
    models: dict[str | None, type[Settings]] = {None: CoreSettings, "datadog": DatadogSettings}
    for table, model in (models | {name: load_collector(name).settings for name in registry.names()}).items():
        required = [str(info.validation_alias) for info in model.model_fields.values() if info.is_required()]
        environ = dict.fromkeys(required, "a-value") | ({"WANDB_PROJECTS": "a/b"} if table == "wandb" else {})
        told = load(model, table, environ=environ, file=file)
        for name, info in model.model_fields.items():
            if str(info.validation_alias) not in environ:
                assert (name, getattr(told, name)) == (name, info.default)
        assert set(tables[table] if table else tables) >= set(model.model_fields) - {"user_hash_key"}


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4])
def test_what_is_inside_each_other_is_counted_in_tables_and_lists(depth: int) -> None:
    tables: dict[str, object] = {"a": 1}
    lists: list[object] = [1]
    for _ in range(depth):
        tables, lists = {"a": tables, "b": 1}, [lists, 1]
    assert is_deeper(tables, 3) is (depth > 3)
    assert is_deeper({"a": lists}, 4) is (depth > 3)
