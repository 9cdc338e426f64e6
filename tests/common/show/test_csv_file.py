"""Every sample as a row, in a file that is there whole or not at all."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import ConfigurationError
from common.outcome import Outcome, Status
from common.show import csv_file
from common.show.output import check_output, output_file
from common.show.points import SeriesKey, SeriesPoints

from .given import series_points

AT = 1_794_009_600
ACTIVE = SeriesKey("wandb.runs.active", ("entity:acme", "project:ants"), None)
OUTCOMES = [Outcome("wandb", Status.OK), Outcome("host", Status.OK), Outcome("none", Status.EMPTY)]
POINTS = {
    "host": [series_points(SeriesKey("host.load", (), 'node "1", a'), "process", [(AT + 86_399, 0.1)])],
    "wandb": [
        series_points(ACTIVE, "run", [(AT, 3)]),
        series_points(ACTIVE, "run", [(AT + 900, 4.5), (AT + 1800, 1e300)]),
    ],
}


def test_a_row_holds_everything_about_its_sample(tmp_path: Path) -> None:
    csv_file.write(tmp_path / "week.csv", OUTCOMES, POINTS)
    assert (tmp_path / "week.csv").read_text().splitlines() == [
        "time,timestamp,metric,type,unit,host,tags,value",
        "2026-11-07T00:00:00Z,1794009600,wandb.runs.active,gauge,run,,entity:acme project:ants,3",
        "2026-11-07T00:15:00Z,1794010500,wandb.runs.active,gauge,run,,entity:acme project:ants,4.5",
        "2026-11-07T00:30:00Z,1794011400,wandb.runs.active,gauge,run,,entity:acme project:ants,1e+300",
        '2026-11-07T23:59:59Z,1794095999,host.load,gauge,process,"node ""1"", a",,0.1',
    ]
    with (tmp_path / "week.csv").open(newline="") as file:
        [*_, last] = csv.DictReader(file)
    assert (last["host"], last["tags"], float(last["value"])) == ('node "1", a', "", 0.1)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@sum(a)"])
def test_a_text_that_a_spreadsheet_would_compute_is_defused_and_a_number_is_not(
    tmp_path: Path, text: str
) -> None:
    part = series_points(SeriesKey("host.load", (text, "b:=1"), text), text, [(AT, -1.5)])
    csv_file.write(tmp_path / "week.csv", OUTCOMES[1:2], {"host": [part]})
    with (tmp_path / "week.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert (row["host"], row["unit"], row["tags"]) == (f"'{text}", f"'{text}", f"'{text} b:=1")
    assert (row["metric"], row["value"]) == ("host.load", "-1.5")


def test_a_run_that_fails_leaves_no_half_file(tmp_path: Path) -> None:
    def broken() -> Iterator[SeriesPoints]:
        yield from POINTS["wandb"]
        raise RuntimeError

    (tmp_path / "week.csv").write_text("old")
    with pytest.raises(RuntimeError):
        csv_file.write(tmp_path / "week.csv", OUTCOMES, {"wandb": broken()})
    assert (tmp_path / "week.csv").read_text() == "old"
    assert len([*tmp_path.iterdir()]) == 1


def test_a_place_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "week.csv"
    said = (
        f"--csv: {path} cannot be written (No such file or directory): "
        "name a file in a directory that exists, may be written to and has room"
    )
    with pytest.raises(ConfigurationError) as raised:
        csv_file.write(path, OUTCOMES, POINTS)
    assert str(raised.value) == said
    with pytest.raises(ConfigurationError) as raised:
        check_output(path, "--csv")
    assert str(raised.value) == said


def test_a_directory_is_refused_before_and_after_the_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be written \(it is a directory\)"):
        check_output(tmp_path, "--csv")
    with pytest.raises(ConfigurationError, match=r"cannot be written \(Is a directory\)"):
        csv_file.write(tmp_path, OUTCOMES, POINTS)


def test_a_full_disk_is_told_from_other_troubles() -> None:
    with (
        pytest.raises(ConfigurationError, match="No space left on device"),
        output_file(Path("/dev/full"), "--csv") as file,
    ):
        file.write("row")


def test_checking_leaves_nothing_behind_and_lets_files_and_pipes_pass(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    for name in ("new.csv", "old.csv", "pipe"):
        check_output(tmp_path / name, "--csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.csv", "pipe"]
    assert (tmp_path / "old.csv").read_text() == "old"
