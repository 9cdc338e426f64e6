"""How each metric is worked out, how it is asked for in Datadog, and what it was in a run of the demo.

The formulas are written by hand in docs/formulas.toml; the values are what `scripts/demo --values` wrote.
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
    """Every formula by the name or the pattern it is of; those of whole names first."""
    tables = tomllib.loads(FORMULAS.read_text(encoding="utf-8")).values()
    found = {name: text for table in tables for name, text in table.items()}
    return dict(sorted(found.items(), key=lambda item: ("*" in item[0], -len(item[0]))))


@cache
def values() -> dict[str, list[str]]:
    """A value of each metric that the demo sends, and the tags of the series that has it."""
    found: dict[str, list[str]] = json.loads(VALUES.read_text(encoding="utf-8"))
    return found


def formula(name: str) -> str:
    """How a metric is worked out; of one that nobody wrote down, that its source has it."""
    for pattern, text in formulas().items():
        if fnmatchcase(name, pattern):
            return text.replace("{key}", name[len(pattern.partition("*")[0]) :])
    return "as its source has it"


def query(metric: Metric) -> str:
    """A query that means something: series that do not combine into one number are kept apart."""
    return series_query(metric, ["env:demo"], metric.tags if metric.combines is Combine.NONE else ())


def table(metrics: Iterable[Metric]) -> str:
    """A Markdown table: metric, formula, query, value."""
    rows = ["| metric | formula | example query | in the demo |", "| --- | --- | --- | --- |"]
    for metric in metrics:
        value, labels = values().get(metric.name, (ABSENT, ""))
        told = f"{value} `{labels}`" if labels else value
        rows.append(f"| `{metric.name}` | {formula(metric.name)} | `{query(metric)}` | {told} |")
    return "\n".join(rows) + "\n"
