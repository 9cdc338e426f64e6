"""Make a table of each metric's formula, a Datadog query for it, and its value in a run of the demo.

The formulas are written by hand in docs/formulas.toml; `scripts/demo --values` writes the values.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from common.datadog.documents import series_query
from common.metric import Combine, Metric

ROOT = Path(__file__).resolve().parent.parent
FORMULAS = ROOT / "docs" / "formulas.toml"
VALUES = ROOT / "docs" / "demo-values.json"
ABSENT = "absent: the demo has none"


@cache
def formulas() -> dict[str, str]:
    """Return every formula by metric name or pattern, names first."""
    tables = tomllib.loads(FORMULAS.read_text(encoding="utf-8")).values()
    found = {name: text for table in tables for name, text in table.items()}
    return dict(sorted(found.items(), key=lambda item: ("*" in item[0], -len(item[0]))))


@cache
def values() -> dict[str, list[str]]:
    """Return a value of each metric that the demo sends, and the tags of its series."""
    found: dict[str, list[str]] = json.loads(VALUES.read_text(encoding="utf-8"))
    return found


def formula(name: str) -> str:
    """Return how a metric is computed; without an entry it is its source's own value."""
    for pattern, text in formulas().items():
        if fnmatchcase(name, pattern):
            return text.replace("{key}", name[len(pattern.partition("*")[0]) :])
    return "as its source has it"


def query(metric: Metric) -> str:
    """Return a useful query; series that do not combine into one number are grouped by tag."""
    return series_query(metric, ["env:demo"], metric.tags if metric.combines is Combine.NONE else ())


def table(metrics: Iterable[Metric]) -> str:
    """Return a Markdown table: metric, formula, query, value."""
    rows = ["| metric | formula | example query | in the demo |", "| --- | --- | --- | --- |"]
    for metric in metrics:
        value, labels = values().get(metric.name, (ABSENT, ""))
        example = f"{value} `{labels}`" if labels else value
        rows.append(f"| `{metric.name}` | {formula(metric.name)} | `{query(metric)}` | {example} |")
    return "\n".join(rows) + "\n"
