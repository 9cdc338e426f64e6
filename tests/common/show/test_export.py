"""A run for a program: one JSON document, or a CSV file that is complete or not there."""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import ConfigurationError
from common.metric import Series, gauge
from common.outcome import ErrorSummary, Outcome, Report, Status
from common.show.export import check_output, output_file, write_csv, write_json
from common.times import iso

AT = 1_794_009_600
ACTIVE = gauge("wandb.runs.active", "run", "Runs that are active.", "entity", "project")
ANTS = {"entity": "acme", "project": "ants"}


def document(outcomes: list[Outcome], points: Mapping[str, Iterable[Series]] | None) -> Any:
    stream = io.StringIO()
    write_json(outcomes, points, stream)
    return json.loads(stream.getvalue())


ENTRY = {"collector": "wandb", "status": "ok", "seconds": 0, "error": None, "lost": [], "dropped": {}}
SAMPLE = {
    "metric": "wandb.runs.active",
    "type": "gauge",
    "unit": "run",
    "value": 3,
    "timestamp": AT,
    "host": None,
    "tags": ["entity:acme", "project:ants"],
}
ERROR = ErrorSummary("ConfigurationError", "off", details=["a", "b"])


@pytest.mark.parametrize(
    ("fields", "points", "expected"),
    [
        (
            {"seconds": 0.41, "report": Report(1, dropped=Counter(not_finite=1)), "as_of": AT},
            {"wandb": [ACTIVE(3, AT, **ANTS)]},
            {"seconds": 0.41, "dropped": {"not_finite": 1}, "as_of": AT, "samples": [SAMPLE]},
        ),
        (
            {"report": Report(points_sent=9, lost=["acme/ants: gone"]), "error": ERROR},
            None,
            {
                "error": {"type": "ConfigurationError", "message": "off", "details": ["a", "b"]},
                "lost": ["acme/ants: gone"],
                "points_sent": 9,
            },
        ),
        ({"report": Report(findings=["good"])}, {}, {"findings": ["good"]}),
        ({"report": Report(tables={"runs": [{"a": 1}]})}, {}, {"samples": [], "runs": [{"a": 1}]}),
    ],
    ids=["dry run", "push", "check", "explain"],
)
def test_json_has_what_each_mode_found(
    fields: dict[str, Any], points: Mapping[str, Iterable[Series]] | None, expected: dict[str, Any]
) -> None:
    made = document([Outcome("wandb", Status.OK, **fields)], points)
    assert made == {"status": "ok", "collectors": [ENTRY | expected]}


def test_status_of_a_document_is_the_worst_of_its_collectors() -> None:
    worst_first = (Status.FAILED, Status.PARTIAL, Status.OK, Status.EMPTY, Status.SKIPPED)
    for worse, better in combinations(worst_first, 2):
        for pair in ((worse, better), (better, worse)):
            assert document([Outcome("x", status) for status in pair], None)["status"] == worse
    assert document([], None)["status"] == Status.EMPTY


numbers = st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False)
points = st.dictionaries(st.integers(0, 2**32), numbers, min_size=1, max_size=3)
text = st.text(max_size=5) | st.sampled_from(['"', "\n}", "},", "{\n", '"value": 0', "a,b", "=1"])
tags = st.lists(text, max_size=2).map(tuple)


@given(st.lists(st.tuples(tags, st.none() | text.filter(bool), points), max_size=3))
def test_files_hold_any_text_and_number_a_sample_per_line(
    found: list[tuple[tuple[str, ...], str | None, dict[int, float]]],
) -> None:
    made = [
        Series(gauge("a.b", "run", "x"), own, host, [*pairs], [*pairs.values()]) for own, host, pairs in found
    ]
    samples: list[dict[str, Any]] = [
        {"metric": "a.b", "type": "gauge", "unit": "run", "host": host, "tags": [*own], "value": value}
        | {"timestamp": at}
        for own, host, pairs in found
        for at, value in pairs.items()
    ]
    stream = io.StringIO()
    write_json([Outcome("a", Status.OK)], {"a": made}, stream)
    [entry] = json.loads(stream.getvalue())["collectors"]
    assert entry["samples"] == samples
    assert stream.getvalue().count("\n") == 2 + len(samples)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "points.csv"
        write_csv(path, [Outcome("a", Status.OK)], {"a": made})
        text = path.read_bytes().decode()
    assert text.startswith("time,timestamp,metric,type,unit,host,tags,value\n")
    rows = [*csv.DictReader(io.StringIO(text, newline=""))]
    for row, sample in zip(rows, samples, strict=True):
        assert float(row.pop("value")) == float(sample.pop("value"))
        tags, host, at = " ".join(sample["tags"]), sample["host"] or "", sample["timestamp"]
        assert row == {**sample, "tags": tags, "host": host, "time": iso(at), "timestamp": str(at)}


def test_output_that_cannot_be_written_names_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("absent", "file"):
        with pytest.raises(
            ConfigurationError, match=f"--csv: .*/{name} is not a directory that may be written"
        ):
            check_output(tmp_path / name / "week.csv", "--csv")
    with pytest.raises(ConfigurationError, match=r"--csv: .* \(it is a directory\)"):
        check_output(tmp_path, "--csv")
    with (
        pytest.raises(ConfigurationError, match="No space left on device"),
        output_file(Path("/dev/full"), "--csv") as file,
    ):
        file.write("row")


def test_check_of_an_output_accepts_files_and_pipes_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    for name in ("new.csv", "old.csv", "pipe"):
        check_output(tmp_path / name, "--csv")
    check_output(tmp_path, "--html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.csv", "pipe"]
    assert (tmp_path / "old.csv").read_text() == "old"
