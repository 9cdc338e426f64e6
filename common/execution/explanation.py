"""A run that lists what one value is made of: `--explain METRIC [tag=value …]`. Nothing is sent or stored."""

from __future__ import annotations

import json

from common.errors import ConfigurationError
from common.execution.live import LiveRun
from common.registry import nearest
from common.times import iso


class ExplainRun(LiveRun):
    """A run for the value that a push would send at this tick."""

    def _work(self) -> None:
        """List what the value is made of, as a table."""
        name, *pairs = self._job.explain
        tags = dict(pair.split("=", 1) for pair in pairs)
        declared = {metric.name: metric for metric in self._collector.metrics}
        if self._collector.explain is None:
            raise ConfigurationError(f"--explain: {self._collector.name} cannot list what its values are of")
        if name not in declared:
            hint = nearest(name, [*declared])
            raise ConfigurationError(f"--explain: {self._collector.name} has no metric {name!r}{hint}")
        metric = declared[name]
        unknown = sorted(tags.keys() - {*metric.tags})
        if unknown and not metric.open_tags:
            known = ", ".join(metric.tags)
            raise ConfigurationError(f"--explain: {name} has no tag {unknown[0]!r}; it has: {known}")
        window = self._due(None)
        memory = json.loads(json.dumps(self._document.memory))
        rows = self._collector.explain(self._context(window, memory), metric, tags)
        self._report.tables["runs"] = rows
        self._findings.append(f"{' '.join([name, *pairs])} at {iso(window.until)}: {len(rows):,} rows")
