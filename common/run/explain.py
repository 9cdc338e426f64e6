"""List what one value is made of: `--explain METRIC [tag=value …]`. Nothing is sent or stored."""

from __future__ import annotations

from common.errors import ConfigurationError
from common.registry import nearest
from common.run.session import Session
from common.run.state import SavedState
from common.times import iso


def explain(session: Session, state: SavedState) -> None:
    """List the parts of the value that a push would send at this tick, as a table."""
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
    memory = state.document.copy_memory()
    rows = session.collector.explain(session.context(window, memory), metric, tags)
    session.report.tables["runs"] = rows
    session.report.findings.append(f"{' '.join([name, *pairs])} at {iso(window.until)}: {len(rows):,} rows")
