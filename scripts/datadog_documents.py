"""Generate dashboards, monitors, metadata.csv and their page from the declarations."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

from common import registry
from common.collector import load_collector
from common.dashboard import Monitor, Views, short_name, views_of
from common.datadog.documents import DocumentTarget, dashboard_document, monitor_document, monitor_query
from common.metric import Metric
from common.run import health, health_dashboard
from scripts.marked import renewed

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "datadog"
PAGE = ROOT / "docs" / "dashboards.md"
COLUMNS = (
    *("metric_name", "metric_type", "interval", "unit_name", "per_unit_name", "description"),
    *("orientation", "integration", "short_name", "curated_metric", "sample_tags"),
)


def all_views() -> list[Views]:
    """Return dashboards and monitors of each collector, and last of fleetgauge itself."""
    collectors = [views_of(name, load_collector(name).metrics) for name in registry.names()]
    return [*collectors, health_dashboard.VIEWS]


def every_metric() -> list[Metric]:
    """Return every declared metric, sorted by name."""
    metrics = [metric for name in registry.names() for metric in load_collector(name).metrics]
    return sorted((*metrics, *health.METRICS), key=lambda metric: metric.name)


def documents() -> dict[Path, str]:
    """Return the content of every document by its file."""
    target = DocumentTarget()
    made = {}
    for views in all_views():
        for dashboard in views.dashboards:
            path = FOLDER / "dashboards" / f"{dashboard.key}.json"
            made[path] = _json(dashboard_document(dashboard, target))
        for monitor in views.monitors:
            made[FOLDER / "monitors" / f"{monitor.key}.json"] = _json(monitor_document(monitor, target))
    families: dict[str, list[Metric]] = {}
    for metric in every_metric():
        families.setdefault(metric.name.partition(".")[0], []).append(metric)
    made |= {FOLDER / name / "metadata.csv": _metadata(metrics) for name, metrics in families.items()}
    made[PAGE] = renewed(PAGE, "dashboards", "\n".join(_page()) + "\n")
    return made


def stale() -> list[Path]:
    """Return files of the folder that are no longer generated."""
    made = documents()
    return sorted(path for path in FOLDER.rglob("*") if path.is_file() and path not in made)


def _json(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _metadata(metrics: list[Metric]) -> str:
    """Return metadata.csv as Datadog's integrations have it."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for metric in metrics:
        writer.writerow(
            {
                "metric_name": metric.name,
                "metric_type": metric.kind.value,
                "unit_name": metric.unit,
                "description": metric.help,
                "orientation": 0,
                "integration": metric.name.partition(".")[0],
                "short_name": short_name(metric),
                "sample_tags": ",".join(metric.tags),
            }
        )
    return out.getvalue()


def _page() -> Iterator[str]:
    found = all_views()
    yield "\n## Dashboards\n"
    yield "| dashboard | what it shows | sections |"
    yield "| --- | --- | --- |"
    for dashboard in (dashboard for views in found for dashboard in views.dashboards):
        sections = ", ".join(dashboard.sections)
        link = f"[{dashboard.title}](datadog/dashboards/{dashboard.key}.json)"
        yield f"| {link} | {dashboard.about} | {sections} |"
    yield "\n## Monitors"
    yield "A threshold is changed by its key: see [what can be changed](#what-can-be-changed).\n"
    yield "| key | alerts when | why this threshold |"
    yield "| --- | --- | --- |"
    for monitor in (monitor for views in found for monitor in views.monitors):
        key = f"[`{monitor.key}`](datadog/monitors/{monitor.key}.json)"
        yield f"| {key} | {_condition(monitor)} | {monitor.reason} |"


def _condition(monitor: Monitor) -> str:
    silent = f", or no data for {monitor.no_data} minutes" if monitor.no_data else ""
    warning = monitor.condition.warning
    warned = f"; warns from {warning:g}" if warning is not None else ""
    return f"`{monitor_query(monitor, 'fleetgauge')}`{silent}{warned}"
