"""How the reading of files of records is looked at: a section of *fleetgauge itself*, and its monitors."""

from __future__ import annotations

from common.dashboard import Monitor, Section, line
from common.records.reading_metrics import IngestMetrics

_PAGE = "docs/records.md"


def reading_section(what: str, reading: IngestMetrics) -> Section:
    """How the files of one collector are read; `what` they are of."""
    files, records, bad, other, size, backlog, lag = reading.metrics
    return Section(
        f"Reading of {what}",
        (
            line("Lag", lag),
            line("Backlog", backlog),
            line("Records", records, bad, other),
            line("Files", files),
            line("Bytes read", size),
        ),
    )


def reading_monitors(name: str, reading: IngestMetrics) -> tuple[Monitor, ...]:
    """Told where a collector does not keep up with what is written."""
    *_, backlog, lag = reading.metrics
    key = name.replace("_", "-")
    why = "What the dashboards show of it is old, and what waits longer than an hour is too old to be sent."
    todo = "Let the collector run more often or longer (--timeout), or keep fewer files under its paths."
    return (
        Monitor(
            f"{key}-lag",
            f"{name} is behind",
            lag,
            *("min", "1h", ">", 1800.0),
            "two ticks late, and half way to what the intake refuses as too old",
            f"The oldest file that {name} has not read to its end has waited for {{{{value}}}} s.",
            why,
            todo,
            _PAGE,
        ),
        Monitor(
            f"{key}-backlog",
            f"The backlog of {name} grows",
            backlog,
            *("avg", "1h", ">", 100e6),
            "a share left for the next tick is normal; 100 MB more than four hours ago is no longer caught "
            "up",
            f"{name} has {{{{value}}}} bytes more to read than four hours ago.",
            why,
            todo,
            _PAGE,
            change="4h",
        ),
    )
