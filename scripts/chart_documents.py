"""The parts of the chart that are made from declarations: settings, their schema, and the table of values.

A setting is declared once, in the collector; the chart learns its key, type and variable from there. A value
is declared once, in values.yaml, with its comment; the chart's README learns both from there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic.fields import FieldInfo

from common import registry
from common.collector import load_collector
from common.config.settings import Duration, Settings, Url, secret_variables, variables

CHART = Path(__file__).resolve().parent.parent / "charts" / "fleetgauge"
BEGIN, END = "<!-- values:begin -->\n", "<!-- values:end -->"


def settings_file() -> str:
    """files/settings.yaml: what templates must know of a collector to write its settings to variables."""
    found = {}
    for name in registry.names():
        collector = load_collector(name)
        secrets = secret_variables(collector.settings)
        known = variables(collector.settings).items()
        settable = {key: variable for key, variable in known if variable not in secrets}
        found[name] = {"resumes": collector.resumes, "secrets": secrets, "variables": settable}
    return "# Made by scripts/generate from the code; edit that instead.\n" + yaml.safe_dump(found)


def schema() -> str:
    """values.schema.json, with what it says of collectors renewed."""
    document = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    collectors = {name: load_collector(name) for name in registry.names()}
    document["properties"]["collectors"]["properties"] = {
        name: _collector_schema(collector.settings) for name, collector in collectors.items()
    }
    # What belongs to a node is only ever known of now.
    past = [name for name, collector in collectors.items() if not collector.per_node]
    document["properties"]["backfill"]["properties"]["collectors"]["items"]["enum"] = past
    return json.dumps(document, indent=2) + "\n"


def _collector_schema(model: type[Settings]) -> dict[str, object]:
    names = ("enabled", "schedule", "step", "activeDeadlineSeconds", "timeout", "volume")
    fixed = {name: {"$ref": f"#/definitions/collector/properties/{name}"} for name in names}
    properties = {**fixed, "settings": _settings_schema(model)}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _settings_schema(model: type[Settings]) -> dict[str, object]:
    """What values may hold for one collector: its settings but for secrets, which belong in no file."""
    described = model.model_json_schema(by_alias=False)["properties"]
    fields = {
        key: _field_schema(info, described[key])
        for key, info in model.model_fields.items()
        if info.validation_alias not in secret_variables(model)
    }
    return {"type": "object", "additionalProperties": False, "properties": fields}


# Any: a JSON schema holds any JSON.
def _field_schema(info: FieldInfo, described: Mapping[str, Any]) -> dict[str, object]:
    """One setting as pydantic describes it, without what a person need not write and with units for times."""
    [form] = [form for form in described.get("anyOf", [described]) if form["type"] != "null"]
    known = ("type", "items", "minimum", "maximum")
    found = {"description": info.description} | {key: form[key] for key in known if key in form}
    if form["type"] == "array":
        found["items"] = {"type": "string", "pattern": "^[^,]+$"}  # a variable separates them by commas
    if get_args(Url)[-1] in info.metadata:
        found["pattern"] = "^https?://[^@]+$"  # without credentials
    if get_args(Duration)[-1] in info.metadata:
        return {**found, "type": ["integer", "string"], "pattern": "^([0-9]+|([0-9]+[smhdw])+)$"}
    return found


def readme() -> str:
    """README.md with the table of values renewed."""
    text = (CHART / "README.md").read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    source = (CHART / "values.yaml").read_text(encoding="utf-8")
    source = re.sub(r"^( *)# (\w+):$", r"\1\2:", source, flags=re.MULTILINE)  # required, so only a comment
    table = ["| value | default | meaning |", "| --- | --- | --- |"]
    for path, default, meaning in _rows(yaml.compose(source), yaml.safe_load(source), source.splitlines()):
        shown = "" if default in (None, "") else f"`{json.dumps(default)}`"
        table.append(f"| `{path}` | {shown} | {meaning} |")
    return before + begin + "\n".join(table) + "\n" + rest[rest.index(END) :]


# Any: the nodes of PyYAML are not typed, and values are any JSON.
def _rows(node: Any, values: Any, lines: list[str], prefix: str = "") -> Iterator[tuple[str, object, str]]:
    """Every value, in the order of the file; one without a comment is an error."""
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        comment = _comment_above(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            if comment:
                yield path, None, comment
            yield from _rows(value, values[key.value], lines, f"{path}.")
        elif not comment:
            raise ValueError(f"values.yaml: {path} has no comment")
        else:
            yield path, values[key.value], comment


def _comment_above(lines: list[str], number: int) -> str:
    indent = re.match(" *", lines[number])
    found: list[str] = []
    while number and lines[number - 1].startswith(f"{indent.group() if indent else ''}# "):
        number -= 1
        found.insert(0, lines[number].strip().removeprefix("# "))
    return " ".join(found)


def documents() -> Mapping[Path, str]:
    """Every generated file of the chart, with what it should hold."""
    return {
        CHART / "files" / "settings.yaml": settings_file(),
        CHART / "values.schema.json": schema(),
        CHART / "README.md": readme(),
    }
