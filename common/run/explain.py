"""List what one value is made of: `--explain METRIC [tag=value …]`. Nothing is sent or stored.

The rows are computed by the collector (`Collector.explain`) from the same window as a live run.
"""

from __future__ import annotations

from common.errors import ConfigurationError
from common.registry import nearest
from common.run.session import Session
from common.run.state import SavedState
from common.times import iso


def explain(session: Session, state: SavedState) -> None:
    """Add a table to the report: the parts of the value that a push would send at this tick.

    Raises ConfigurationError where the collector cannot list parts, for an unknown metric, and for a tag that
    the metric does not declare.
    """
    name, *pairs = session.options.explain
    tags = dict(pair.split("=", 1) for pair in pairs)
    declared = {metric.name: metric for metric in session.collector.metrics}
    if session.collector.explain is None:
        raise ConfigurationError(f"--explain: {session.name} cannot list what its values are of")
    if name not in declared:
        hint = nearest(name, [*declared])
        raise ConfigurationError(f"--explain: {session.name} has no metric {name!r}{hint}")
    metric = declared[name]
    unknown = sorted(tags.keys() - {*metric.tags})
    if unknown and not metric.open_tags:
        known = ", ".join(metric.tags)
        raise ConfigurationError(f"--explain: {name} has no tag {unknown[0]!r}; it has: {known}")
    window = session.due(None)
    # The memory of earlier runs changes values (idle W&B runs), so a push at this tick would use it as well.
    # The copy is discarded.
    memory = state.document.copy_memory()
    rows = session.collector.explain(session.context(window, memory), metric, tags)
    session.report.tables["runs"] = rows
    session.report.findings.append(f"{' '.join([name, *pairs])} at {iso(window.until)}: {len(rows):,} rows")
