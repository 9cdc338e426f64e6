"""Generate the documents that follow from declarations.

Started by `scripts/generate`. With `--check` nothing is written, and a stale document is an error.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from common import registry  # noqa: E402
from common.cli import arguments  # noqa: E402
from common.collector import load_collector  # noqa: E402
from common.config.settings import (  # noqa: E402
    CoreSettings,
    DatadogSettings,
    Settings,
    secret_variables,
    written,
)
from common.datadog.provision_settings import ProvisionSettings  # noqa: E402
from common.metric import Metric  # noqa: E402
from common.run import health  # noqa: E402
from fleetgauge import __version__  # noqa: E402
from scripts import chart_documents, datadog_documents, licences, metric_examples  # noqa: E402
from scripts.marked import renewed  # noqa: E402

NOTE = "<!-- Made by scripts/generate from the code; edit that instead. -->\n"
METRICS = """\
Every point also carries the tags `env` and `service`. Of a metric whose `past` is yes, a backfill sends what
live ticks would have sent; the others are true only at the time of the tick itself. `over tags` says which
number combines several series of a metric: their sum, max, min or mean, or none. With several shards
(`--shard`), `collector.*` has the tag `shard`.

The values are from a run of the demo, whose jobs, runs and node `gpu-node-3`, with its GPUs, are simulated.
"""
EXAMPLES = """\
How each is worked out, a query for Datadog, and the value that one of its series had in `./scripts/demo`:
"""
SETTINGS = """\
A value is looked for in the environment, then in AWS Secrets Manager, then in the file given with
`--config`, and is the default otherwise. A variable set to nothing counts as unset. Unknown names under
`FLEETGAUGE_`, in a secret or in the file are errors. Secrets: see [secrets](secrets.md).
"""


EXAMPLE = """\
# Made by scripts/generate from the code. Every setting with its default; what you set, loses its `#`.
# Use it with `run_collector.py NAME --config FILE`, and look at the result with `--print-config`.
# Durations are 90s, 15m, 1h30m, 7d; several values are separated by commas, or are a list.
"""


def families() -> dict[str, tuple[Metric, ...]]:
    """Return the metrics of each collector, and last the self-metrics."""
    return {name: load_collector(name).metrics for name in registry.names()} | {"every run": health.METRICS}


def known_for_the_past() -> set[Metric]:
    """Return the metrics that a backfill can send."""
    collectors = [load_collector(name) for name in registry.names()]
    return {
        metric
        for collector in collectors
        if collector.has_history
        for metric in collector.metrics
        if metric not in collector.live_only
    }


COMPLETION = """
## Completion
Names and options are completed after one line in `~/.bashrc`, or in `~/.zshrc` behind `compinit`:

```console
$ eval "$(scripts/run_collector.py --completion bash)"
$ eval "$(scripts/run_collector.py --completion zsh)"
```
"""


def metric_table(metrics: Iterable[Metric]) -> str:
    """Return a Markdown table of metrics, in the order of their declaration."""
    rows = ["| metric | kind | unit | tags | over tags | meaning | past |", f"|{' --- |' * 7}"]
    known = known_for_the_past()
    for metric in metrics:
        tags = ", ".join(
            [*(f"`{tag}`" for tag in metric.tags), *(["those configured"] if metric.open_tags else [])]
        )
        past = "yes" if metric in known else "no"
        cells = (f"`{metric.name}`", metric.kind, metric.unit, tags, metric.combines, metric.help, past)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def metrics_page() -> str:
    """Return docs/metrics.md."""
    parts = [NOTE, "# Metrics\n", METRICS]
    for name, metrics in families().items():
        parts += [f"## {name}\n", metric_table(metrics), EXAMPLES, metric_examples.table(metrics)]
    return "\n".join(parts)


def limits(info: FieldInfo) -> str:
    """Return the limits of a value as text."""
    low, high = (
        "".join(written(getattr(each, bound), info) for each in info.metadata if hasattr(each, bound))
        for bound in ("ge", "le")
    )
    return f" From {low} to {high}." if high else f" At least {low}." if low else ""


def settings_table(model: type[Settings]) -> str:
    """Return a Markdown table of settings: variable, key in the file, default, meaning."""
    secret = secret_variables(model)
    rows = ["| variable | key in the file | default | meaning |", "| --- | --- | --- | --- |"]
    for name, info in model.model_fields.items():
        default = "required" if info.is_required() else written(info.default, info)
        default = f"`{default}`" if default and not info.is_required() else default
        text = (info.description or "") + limits(info)
        text += " Secret." if info.validation_alias in secret else ""
        rows.append(f"| `{info.validation_alias}` | `{name}` | {default} | {text} |")
    return "\n".join(rows) + "\n"


TITLES = {"": "Every run", "datadog": "Datadog", "provision": "Dashboards and monitors"}


def models() -> dict[str, type[Settings]]:
    """Return every settings class by its table of the file; that of every run has none."""
    collectors = {name: load_collector(name).settings for name in registry.names()}
    return {"": CoreSettings, "datadog": DatadogSettings, "provision": ProvisionSettings, **collectors}


def settings_page() -> str:
    """Return docs/settings.md."""
    parts = [NOTE, "# Settings\n", SETTINGS]
    for table, model in models().items():
        title = TITLES.get(table, f"Collector {table}")
        location = f"[{table}]" if table else "the top level"
        parts.append(f"## {title}\n")
        parts.append(
            f"In the file: {location}.\n\n{settings_table(model)}" if model.model_fields else "None.\n"
        )
    return "\n".join(parts)


def example_file() -> str:
    """Return docs/fleetgauge.example.toml: every setting, commented out, with its default."""
    parts = [EXAMPLE]
    for table, model in models().items():
        parts += [f"\n[{table}]\n"] if table else []
        secret = secret_variables(model)
        for name, info in model.model_fields.items():
            variable = str(info.validation_alias)
            lines = textwrap.wrap(f"{info.description} Or {variable}.", 100)
            if info.is_required() or variable in secret:
                lines[-1] += " Required." if info.is_required() else ""
                lines[-1] += " A secret: rather in the environment or in AWS." if variable in secret else ""
            text = "" if info.is_required() else written(info.default, info)
            plain = isinstance(info.default, int | float) and text[-1] not in "smhd"
            value = text if plain else json.dumps(text)
            parts.append("\n" + "".join(f"# {line}\n" for line in lines) + f"# {name} = {value}\n")
    return "".join(parts)


def command_line_page() -> str:
    """Return docs/command-line.md."""
    return f"{NOTE}\n# Command line\n\n```text\n{arguments.parser(width=100).format_help()}```\n{COMPLETION}"


def readmes() -> Iterator[tuple[Path, str]]:
    """Yield the README with its collectors and version renewed, and each collector's with its tables."""
    rows = ["| name | reads |", "| --- | --- |"]
    for name in registry.names():
        path = Path("collectors", name, "README.md")
        collector = load_collector(name)
        text = (ROOT / path).read_text("utf-8") if (ROOT / path).exists() else ""
        if not text:
            raise SystemExit(f"{path}: write it; its metrics are in docs/metrics.md")
        if "metrics:begin" in text:
            text = renewed(ROOT / path, "metrics", metric_table(collector.metrics), text)
        if "settings:begin" in text:
            text = renewed(ROOT / path, "settings", settings_table(collector.settings), text)
        yield ROOT / path, text
        rows.append(f"| [{name}]({path}) | {registry.declaration(name).summary} |")
    text = renewed(ROOT / "README.md", "collectors", "\n".join(rows) + "\n")
    text, count = re.subn(r"^Version \S+:", f"Version {__version__}:", text, flags=re.MULTILINE)
    if count != 1:
        raise SystemExit("README.md: write one line that begins with `Version 0.0.0:`")
    yield ROOT / "README.md", text


def main(check: bool) -> int:
    """Return 0 where every document is up to date or was written; 1 with `check` and a stale one."""
    documents = {
        ROOT / "docs" / "metrics.md": metrics_page(),
        ROOT / "docs" / "settings.md": settings_page(),
        ROOT / "docs" / "command-line.md": command_line_page(),
        ROOT / "docs" / "licences.md": f"{NOTE}\n{licences.page()}",
        ROOT / "docs" / "fleetgauge.example.toml": example_file(),
        **dict(readmes()),
        **chart_documents.documents(),
        **datadog_documents.documents(),
    }
    stale = [
        path
        for path, text in documents.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        print(f"{'stale' if check else 'wrote'}: {path.relative_to(ROOT)}", file=sys.stderr)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(documents[path], encoding="utf-8")
    left = datadog_documents.stale()
    for path in left:
        print(f"{'stale' if check else 'removed'}: {path.relative_to(ROOT)}", file=sys.stderr)
        if not check:
            path.unlink()
            if not [*path.parent.iterdir()]:
                path.parent.rmdir()
    if (stale or left) and check:
        print("run scripts/generate and commit what it writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
