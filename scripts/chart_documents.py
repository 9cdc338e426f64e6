"""Generate the parts of the chart that follow from declarations.

Values, schema and variables of collectors come from their settings models, and the tables of values in the
chart's README from the comments in values.yaml.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic.fields import FieldInfo

from common import registry
from common.collector import Collector, load_collector
from common.config.settings import (
    CoreSettings,
    DatadogSettings,
    Duration,
    Settings,
    Url,
    secret_variables,
    variables,
)
from common.records.collector import MAX_STEP, RecordSettings
from fleetgauge import __version__
from scripts.marked import renewed

CHART = Path(__file__).resolve().parent.parent / "charts" / "fleetgauge"
RUN_BY_DEFAULT = {"wandb"}  # others are enabled by the operator
DURATION = "^([0-9]+|([0-9]+[smhdw])+)$"
MAX_LINE = 118
MAX_NAME_LENGTH = 15  # it ends the name of a CronJob: see templates/_names.tpl
TAKEN_NAMES = {"all", "datadog", "tmp", "state"}  # by the command line, the settings and the pod's volumes
PAIRS = {"gpu_prices"}  # lists of key=value that values may also hold as a map
HEADER = """
# A collector runs when it is enabled: with the others, or in a CronJob of its own where it has a `schedule`,
# and then with its own `timeout`. `volume` is a persistentVolumeClaim, nfs, csi or, on nodes, hostPath, and
# is mounted read-only at /records/<collector>. `settings` are those of docs/settings.md.
collectors:
"""
VALUES = """\
  # {summary} Settings: {keys}.
  {name}:
    enabled: {enabled}
    schedule: ""
    timeout:
    volume: {{}}
    settings: {settings}
"""

# Any: the settings model differs per collector.
Collectors = Mapping[str, Collector[Any]]


def found_collectors() -> Collectors:
    """Return every collector by name."""
    for name in registry.names():
        refuse_bad_name(name)
    return {name: load_collector(name) for name in registry.names()}


def refuse_bad_name(name: str) -> None:
    """Raise SystemExit for a name that an object, a volume or a variable cannot have."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > MAX_NAME_LENGTH:
        raise SystemExit(
            f"collectors/{name}: name it in at most {MAX_NAME_LENGTH} small letters, digits and single _"
        )
    of_every_run = [*variables(CoreSettings).values(), *variables(DatadogSettings).values()]
    taken = [*TAKEN_NAMES & {name}, *(each for each in of_every_run if registry.owner(each, [name]))]
    if taken:
        raise SystemExit(f"collectors/{name}: {taken[0]} means something else already; choose another name")


def values(collectors: Collectors) -> str:
    """Return values.yaml with its section of collectors renewed."""
    made = "".join(_collector_values(collector) for collector in collectors.values())
    return renewed(CHART / "values.yaml", "collectors", HEADER + made)


def _collector_values(collector: Collector[Any]) -> str:
    fields = _settable(collector.settings)
    # The chart decides where a volume is mounted, so that it can say where to look.
    settings = {"paths": [f"/records/{collector.name}"]} if _reads_records(collector) else {}
    required = {key for key, info in fields.items() if info.is_required()} - set(settings)
    text = VALUES.format(
        name=collector.name,
        summary=registry.declaration(collector.name).summary,
        enabled=json.dumps(collector.name in RUN_BY_DEFAULT),
        keys=", ".join(f"{key} (required)" if key in required else key for key in fields) or "none",
        settings=json.dumps(settings),
    )
    return "".join(_wrapped(line) for line in text.splitlines())


def _reads_records(collector: Collector[Any]) -> bool:
    return issubclass(collector.settings, RecordSettings)


def _settable(model: type[Settings]) -> dict[str, FieldInfo]:
    """Return the settings of a model without its secrets, which belong in no file."""
    secrets = secret_variables(model)
    return {key: info for key, info in model.model_fields.items() if info.validation_alias not in secrets}


def _wrapped(line: str) -> str:
    """Return a line of YAML, with a long comment wrapped."""
    indent, mark, comment = line.partition("# ")
    if not mark:
        return f"{line}\n"
    return textwrap.fill(comment, 120, initial_indent=indent + mark, subsequent_indent=indent + mark) + "\n"


def settings_file(collectors: Collectors) -> str:
    """Return files/settings.yaml: what templates need to run a collector with its settings."""
    found = {
        name: {
            "per_node": registry.declaration(name).per_node,
            "records": _reads_records(collector),
            "max_step": MAX_STEP if _reads_records(collector) else None,
            "secrets": {  # and whether it cannot run without
                info.validation_alias: info.is_required()
                for info in collector.settings.model_fields.values()
                if info.validation_alias in secret_variables(collector.settings)
            },
            "variables": {key: info.validation_alias for key, info in _settable(collector.settings).items()},
        }
        for name, collector in collectors.items()
    }
    return "# Made by scripts/generate from the code; edit that instead.\n" + yaml.safe_dump(found)


def schema(collectors: Collectors) -> str:
    """Return values.schema.json with its schemas of collectors renewed."""
    document = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    document["properties"]["collectors"]["properties"] = {
        name: _collector_schema(collector.settings) for name, collector in collectors.items()
    }
    past = [name for name, collector in collectors.items() if collector.has_history]
    document["properties"]["backfill"]["properties"]["collectors"]["items"]["enum"] = past
    of_nodes = [
        name
        for name, collector in collectors.items()
        if registry.declaration(name).per_node or _reads_records(collector)
    ]
    document["properties"]["daemonSet"]["properties"]["collectors"]["items"]["enum"] = of_nodes
    _allow_removed(document)
    return _compact(document) + "\n"


def _allow_removed(document: dict[str, Any]) -> None:  # Any: a JSON schema holds any JSON.
    """Let removed values pass the schema: templates/_validate.tpl refuses them with their replacement."""
    removed: dict[str, list[str]] = {}
    for path in yaml.safe_load((CHART / "files" / "removed.yaml").read_text(encoding="utf-8")):
        section, _, key = path.rpartition(".")
        removed.setdefault(section, []).append(key)
    collectors = document["properties"]["collectors"]["properties"]
    for section, keys in removed.items():
        allowed = {f"^({'|'.join(keys)})$": True}
        if section == "collectors.*":
            for collector in collectors.values():
                collector["patternProperties"] = allowed
        else:
            owner = document["properties"][section] if section else document
            owner["patternProperties"] = allowed


def _compact(value: object, indent: str = "") -> str:
    """Return JSON with every object and list that fits on a line on one line."""
    line = json.dumps(value)
    if len(indent) + len(line) <= MAX_LINE or not isinstance(value, dict | list) or not value:
        return line
    inner = indent + "  "
    if isinstance(value, list):
        parts = [inner + _compact(each, inner) for each in value]
    else:
        parts = [f"{inner}{json.dumps(key)}: {_compact(each, inner)}" for key, each in value.items()]
    first, last = "[]" if isinstance(value, list) else "{}"
    return f"{first}\n" + ",\n".join(parts) + f"\n{indent}{last}"


def _collector_schema(model: type[Settings]) -> dict[str, object]:
    names = ("enabled", "schedule", "timeout", "volume")
    fixed = {name: {"$ref": f"#/definitions/collector/properties/{name}"} for name in names}
    properties = {**fixed, "settings": _settings_schema(model)}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _settings_schema(model: type[Settings]) -> dict[str, object]:
    described = model.model_json_schema(by_alias=False)["properties"]
    fields = {key: _field_schema(key, info, described[key]) for key, info in _settable(model).items()}
    return {"type": "object", "additionalProperties": False, "properties": fields}


# Any: a JSON schema holds any JSON.
def _field_schema(key: str, info: FieldInfo, described: Mapping[str, Any]) -> dict[str, object]:
    """Return the type, limits and form of one setting, as pydantic describes it, with units for times."""
    [form] = [form for form in described.get("anyOf", [described]) if form["type"] != "null"]
    # pydantic writes the limits of an optional duration as `ge` and `le`
    known = {"type": "type", "minimum": "minimum", "maximum": "maximum", "ge": "minimum", "le": "maximum"}
    found: dict[str, object] = {known[name]: form[name] for name in known if name in form}
    if form["type"] == "array":
        found["items"] = {"type": "string", "pattern": "^[^,]+$"}  # a variable separates them by commas
    if key in PAIRS:
        found |= {"type": ["array", "object"], "additionalProperties": {"type": ["number", "string"]}}
    if get_args(Url)[-1] in info.metadata:
        found["pattern"] = "^https?://[^@]+$"  # without credentials
    optional = [each for form in get_args(info.annotation) for each in get_args(form)]  # of `Duration | None`
    if get_args(Duration)[-1] in [*info.metadata, *optional]:
        return {**found, "type": ["integer", "string"], "pattern": DURATION}
    return found


def readme(source: str) -> str:
    """Return README.md with a table of values for every heading of values.yaml."""
    tables = []
    for heading, group in re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", source, flags=re.MULTILINE):
        tables.append(f"\n### {heading}\n\n| value | default | meaning |\n| --- | --- | --- |\n")
        for path, default, meaning in _rows(yaml.compose(group), yaml.safe_load(group), group.splitlines()):
            shown = "" if default in (None, "") else f"`{json.dumps(default)}`"
            tables.append(f"| `{path}` | {shown} | {meaning} |\n")
    return renewed(CHART / "README.md", "values", "".join(tables))


# Any: the nodes of PyYAML are not typed, and values are any JSON.
def _rows(node: Any, values: Any, lines: list[str], prefix: str = "") -> Iterator[tuple[str, object, str]]:
    """Yield path, default and comment of every value, in the order of the file.

    A mapping whose keys have no comments is one value; any other value without a comment is a ValueError.
    """
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        comment = _comment_above(lines, key.start_mark.line)
        block = isinstance(value, yaml.MappingNode) and not value.flow_style
        if block and any(_comment_above(lines, inner.start_mark.line) for inner, _ in value.value):
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


def chart(source: str) -> str:
    """Return Chart.yaml with the version of the project as both of its versions."""
    text, count = re.subn(r"^(version|appVersion):.*$", rf"\1: {__version__}", source, flags=re.MULTILINE)
    if count != 2:
        raise SystemExit(f"{CHART}/Chart.yaml: write one line `version:` and one `appVersion:`")
    return text


def documents() -> Mapping[Path, str]:
    """Return the content of every generated file of the chart."""
    collectors = found_collectors()
    return {
        CHART / "Chart.yaml": chart((CHART / "Chart.yaml").read_text(encoding="utf-8")),
        CHART / "values.yaml": values(collectors),
        CHART / "values.schema.json": schema(collectors),
        CHART / "files" / "settings.yaml": settings_file(collectors),
        CHART / "README.md": readme(values(collectors)),
    }
