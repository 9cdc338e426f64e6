"""The part of the README that follows from the declarations."""

from __future__ import annotations

from collections.abc import Iterable

from collectors.wandb.metrics import METRICS
from common.metric import Metric

BEGIN, END = "<!-- metrics:begin -->", "<!-- metrics:end -->"


def table(metrics: Iterable[Metric]) -> str:
    """The metrics as a Markdown table."""
    rows = ["| metric | unit | tags | meaning |", "| --- | --- | --- | --- |"]
    rows += [
        f"| `{metric.name}` | {metric.unit} | {', '.join(metric.tags)} | {metric.help} |"
        for metric in metrics
    ]
    return "\n".join(rows)


def rendered(text: str) -> str:
    """The README with the table between its markers brought up to date."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the README has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{table(METRICS)}\n{END}{after}"
