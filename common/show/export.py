"""A run for a program: `--json` on standard output, `--csv` as a file. Values are exact.

`table.py` and `page.py` are for people. Documents are written series by series, so that the output is never
in memory as a complete text.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TextIO

from common.errors import ConfigurationError
from common.metric import Series
from common.outcome import Outcome, Status
from common.show.points import exact
from common.times import iso
from fleetgauge.pages.atomic_file import atomic_file

CSV_COLUMNS = ("time", "timestamp", "metric", "type", "unit", "host", "tags", "value")

# The status of the document is the worst of its collectors.
_WORST_FIRST = (Status.FAILED, Status.PARTIAL, Status.OK, Status.EMPTY, Status.SKIPPED)


def write_json(
    outcomes: list[Outcome], points: Mapping[str, Iterable[Series]] | None, stream: TextIO
) -> None:
    """Write the run as one JSON document, a sample per line; `points` is None where they were pushed.

    `points` are the series of each collector. OSError where the stream cannot be written.
    """
    status = min((outcome.status for outcome in outcomes), key=_WORST_FIRST.index, default=Status.EMPTY)
    stream.write(f'{{"status": {json.dumps(status)}, "collectors": [')
    for number, outcome in enumerate(outcomes):
        stream.write(",\n" if number else "\n")
        entry = json.dumps(_entry(outcome, pushed=points is None))
        # A check has findings instead of samples.
        if points is None or outcome.report.findings:
            stream.write(entry)
            continue
        # Samples are appended to the object as text: one JSON value with all of them could be gigabytes.
        stream.write(entry.removesuffix("}") + ', "samples": [')
        separator = "\n"
        for series in points.get(outcome.collector, ()):
            for sample in _samples(series):
                stream.write(separator + sample)
                separator = ",\n"
        stream.write("]}")
    stream.write("]}\n")
    stream.flush()


def _entry(outcome: Outcome, *, pushed: bool) -> dict[str, object]:
    """Return what the document has of one collector, besides its samples."""
    entry: dict[str, object] = {
        "collector": outcome.collector,
        "status": outcome.status,
        "seconds": outcome.seconds,
        "error": None,
        "lost": outcome.report.lost,
        "dropped": outcome.report.dropped,
    }
    if error := outcome.error:
        details = {"details": error.details} if error.details else {}
        entry["error"] = {"type": error.type, "message": error.message, **details}
    if outcome.as_of is not None:
        entry["as_of"] = outcome.as_of
    if outcome.report.findings:
        entry["findings"] = outcome.report.findings
    elif pushed:
        entry["points_sent"] = outcome.report.points_sent
    return entry | outcome.report.tables


def _samples(series: Series) -> Iterator[str]:
    """Yield each sample as a JSON object; what the samples of a series share is encoded once."""
    metric, tags, host, times, values = series
    shared = {"metric": metric.name, "type": metric.kind, "unit": metric.unit, "host": host, "tags": tags}
    start = json.dumps(shared).removesuffix("}")
    for second, value in zip(times, values, strict=True):
        yield f'{start}, "value": {exact(value)}, "timestamp": {second}}}'


def write_csv(path: Path, outcomes: Iterable[Outcome], points: Mapping[str, Iterable[Series]]) -> None:
    """Write every sample as a row, under a head; ConfigurationError where the file cannot be written."""
    with output_file(path, "--csv") as file:
        # No spreadsheet takes a name, tag or host for a formula: they begin with a letter or a digit.
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        for outcome in outcomes:
            for metric, tags, host, times, values in points.get(outcome.collector, ()):
                shared = (metric.name, metric.kind, metric.unit, host, " ".join(tags))
                for second, value in zip(times, values, strict=True):
                    writer.writerow((_iso(second), second, *shared, exact(value)))


# Formatting a date costs more than the line, and the series of a backfill have the same ticks.
_iso = lru_cache(maxsize=2**16)(iso)


@contextmanager
def output_file(path: Path, option: str) -> Iterator[TextIO]:
    """Yield the file that an option names; it appears once it is complete.

    ConfigurationError where it cannot be written. An existing file remains where writing fails.
    """
    try:
        with atomic_file(path) as file:
            yield file
    except OSError as error:
        raise _not_writable(path, option, error.strerror or str(error)) from error


def check_output(path: Path, option: str) -> None:
    """Raise ConfigurationError before any work is done where its result could not be written.

    `option` is --csv or --html; of these only a page may be written into a directory, where its title names
    it. The directory must be writable: a file in it is renamed. Devices and pipes are written directly.
    """
    if path.is_dir() and option != "--html":
        raise _not_writable(path, option, "it is a directory")
    folder = path if path.is_dir() else path.resolve().parent
    is_direct = path.exists() and not path.is_file() and not path.is_dir()
    if not is_direct and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise _not_writable(path, option, f"{folder} is not a directory that may be written to")


def _not_writable(path: Path, option: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{option}: {path} cannot be written ({why}): "
        "name a file in a directory that exists, may be written to and has room"
    )
