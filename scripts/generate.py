"""Documents that cannot drift, because they are made from the declarations they describe.

Started by `scripts/generate`. With `--check` nothing is written, and a stale document is an error.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from pydantic_core import PydanticUndefined  # noqa: E402

from common import registry  # noqa: E402
from common.collector import load_collector  # noqa: E402
from common.config.settings import CoreSettings, DatadogSettings, Settings, secret_variables  # noqa: E402
from common.execution import health  # noqa: E402
from common.metric import Metric  # noqa: E402
from common.process import cli  # noqa: E402
from scripts import chart_documents  # noqa: E402
from scripts.marked import renewed  # noqa: E402

NOTE = "<!-- Made by scripts/generate from the code; edit that instead. -->\n"
COLUMNS = (
    *("metric_name", "metric_type", "interval", "unit_name", "per_unit_name", "description"),
    *("orientation", "integration", "short_name", "curated_metric", "sample_tags"),
)
METRICS = """\
Every point also carries the tags `env` and `service`. Of a metric whose `past` is yes, a backfill sends what
live ticks would have sent; the others are true only at the time of the tick itself.
"""
SETTINGS = """\
A value is looked for in the environment, then in AWS Secrets Manager, then in the file given with
`--config`, and is the default otherwise. A variable set to nothing counts as unset. Unknown names under
`FLEETGAUGE_`, in a secret or in the file are errors. Secrets: see [secrets](secrets.md).
"""


def families() -> dict[str, tuple[Metric, ...]]:
    """Every metric, by the collector that emits it; the runner's own last."""
    return {name: load_collector(name).metrics for name in registry.names()} | {"every run": health.METRICS}


def known_for_the_past() -> set[Metric]:
    """The metrics that a backfill can send."""
    collectors = [load_collector(name) for name in registry.names()]
    return {
        metric for one in collectors if one.backfill for metric in one.metrics if metric not in one.live_only
    }


def metric_table(metrics: Iterable[Metric]) -> str:
    """A Markdown table of metrics, in the order of their declaration."""
    rows = ["| metric | kind | unit | tags | meaning | past |", "| --- | --- | --- | --- | --- | --- |"]
    known = known_for_the_past()
    for metric in metrics:
        tags = ", ".join(
            [*(f"`{tag}`" for tag in metric.tags), *(["those configured"] if metric.open_tags else [])]
        )
        past = "yes" if metric in known else "no"
        rows.append(f"| `{metric.name}` | {metric.kind} | {metric.unit} | {tags} | {metric.help} | {past} |")
    return "\n".join(rows) + "\n"


def metrics_page() -> str:
    """docs/metrics.md"""
    parts = [NOTE, "# Metrics\n", METRICS]
    for name, metrics in families().items():
        parts += [f"## {name}\n", metric_table(metrics)]
    return "\n".join(parts)


def metadata() -> str:
    """docs/metadata.csv, in the form of Datadog's integrations."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for metric in sorted((m for ms in families().values() for m in ms), key=lambda metric: metric.name):
        writer.writerow(
            {
                "metric_name": metric.name,
                "metric_type": metric.kind.value,
                "unit_name": metric.unit,
                "description": metric.help,
                "orientation": 0,
                "integration": "fleetgauge",
                "short_name": metric.name.rpartition(".")[2].replace("_", " "),
                "sample_tags": ",".join(metric.tags),
            }
        )
    return out.getvalue()


def settings_table(model: type[Settings]) -> str:
    """A Markdown table of settings: the variable, the key in the file, the default, the meaning."""
    secret = secret_variables(model)
    rows = ["| variable | key in the file | default | meaning |", "| --- | --- | --- | --- |"]
    for name, info in model.model_fields.items():
        if info.default is PydanticUndefined:
            default = "required"
        else:
            default = "" if info.default in (None, "", ()) else f"`{info.default}`"
        text = (info.description or "") + (" Secret." if info.validation_alias in secret else "")
        rows.append(f"| `{info.validation_alias}` | `{name}` | {default} | {text} |")
    return "\n".join(rows) + "\n"


def settings_page() -> str:
    """docs/settings.md"""
    models: dict[str, tuple[type[Settings], str]] = {
        "Every run": (CoreSettings, "the top level"),
        "Datadog": (DatadogSettings, "[datadog]"),
    }
    for name in registry.names():
        models[f"Collector {name}"] = (load_collector(name).settings, f"[{name}]")
    parts = [NOTE, "# Settings\n", SETTINGS]
    for title, (model, table) in models.items():
        parts.append(f"## {title}\n")
        parts.append(f"In the file: {table}.\n\n{settings_table(model)}" if model.model_fields else "None.\n")
    return "\n".join(parts)


def command_line_page() -> str:
    """docs/command-line.md"""
    return f"{NOTE}\n# Command line\n\n```text\n{cli.parser(width=100).format_help()}```\n"


def readmes() -> Iterator[tuple[Path, str]]:
    """The README with its table of collectors renewed, and each collector's with that of its metrics."""
    rows = ["| name | reads |", "| --- | --- |"]
    for name in registry.names():
        path = Path("collectors", name, "README.md")
        yield ROOT / path, renewed(ROOT / path, "metrics", metric_table(load_collector(name).metrics))
        rows.append(f"| [{name}]({path}) | {registry.declaration(name).summary} |")
    yield ROOT / "README.md", renewed(ROOT / "README.md", "collectors", "\n".join(rows) + "\n")


def main(check: bool) -> int:
    """0 when every document is up to date, or has been made so."""
    documents = {
        ROOT / "docs" / "metrics.md": metrics_page(),
        ROOT / "docs" / "metadata.csv": metadata(),
        ROOT / "docs" / "settings.md": settings_page(),
        ROOT / "docs" / "command-line.md": command_line_page(),
        **dict(readmes()),
        **chart_documents.documents(),
    }
    stale = [
        path
        for path, text in documents.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        print(f"{'stale' if check else 'wrote'}: {path.relative_to(ROOT)}", file=sys.stderr)
        if not check:
            path.write_text(documents[path], encoding="utf-8")
    if stale and check:
        print("run scripts/generate and commit what it writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
