"""Rows in any width: never cut, and the same in a pipe as on a terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.metric import gauge
from common.outcome import Outcome, Status
from common.show.figures import digits, figure
from common.show.layout import Look, columns
from common.show.overview import show
from common.show.points import Points, SeriesKey
from common.text import visible

from .given import GivenPoints, series_points
from .terminal import GOLDEN, LOOKS, NAMES, recording, shown

AT = 1_794_786_458
UNITS = ("", "run", "byte", "second", "percent", "millisecond", "gibibyte")

names = st.from_regex(r"[a-z]{1,9}(\.[a-z_]{1,40}){1,2}", fullmatch=True)
plain = st.from_regex(r"[a-z]{1,9}:[a-z0-9/]{1,30}", fullmatch=True)
odd = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
labels = plain | odd | st.just("企業:" + "蟻" * 9)
values = st.floats(-1e300, 1e300) | st.integers(-(10**18), 10**18)
Found = tuple[str, str, list[str], list[float]]  # a metric, its unit, tags and values
series = st.tuples(
    names, st.sampled_from(UNITS), st.lists(labels, max_size=5), st.lists(values, min_size=1, max_size=4)
)


def dry_run(found: list[Found]) -> Points:
    """Return the points of a dry run that found this."""
    units = {name: unit for name, unit, _, _ in found}
    parts = [
        series_points(SeriesKey(name, tuple(tags), None), units[name], enumerate(numbers, AT))
        for name, _, tags, numbers in found
    ]
    return GivenPoints([gauge(name, unit, "x") for name, unit in units.items()], parts)


different = st.lists(series, min_size=1, max_size=3, unique_by=lambda one: (one[0], *one[2]))


@settings(max_examples=60)
@given(different, st.integers(1, 200))
@example([("a.b", "byte", ["x" * 300], [1e300])], 1)
def test_nothing_is_ever_cut(found: list[Found], width: int) -> None:
    points, outcome = dry_run(found), Outcome("toy", Status.OK)
    wide = [*show([outcome], {"toy": points}, Look())]
    narrow = [*show([outcome], {"toy": points}, Look(width))]
    units = {part.series.metric: part.unit for part in points}
    for part in points:
        name, numbers = part.series.metric, part.values
        words = [name, *map(visible, part.series.tags)]
        assert any(all(word in line for word in words) for line in wide)
        shown_values = (numbers[0], numbers[-1], min(numbers), max(numbers))
        words += [figure(value, units[name], name)[0] for value in shown_values]
        for word in words:
            assert any(word in line for line in wide)
            assert any(word in line for line in narrow), word
    short = all(len(label) <= 40 and label.isascii() for _, _, tags, _ in found for label in tags)
    if width >= 110 and short:
        assert max(columns(line) for line in narrow[1:] if "\\" not in line) <= width


@pytest.mark.parametrize("name", NAMES)
def test_every_collector_looks_as_it_was_recorded(name: str, tmp_path: Path) -> None:
    told = recording(name, tmp_path)
    for look_name, look in LOOKS.items():
        made = shown(*told, look)
        assert made == (GOLDEN / f"{name}-{look_name}.txt").read_text(encoding="utf-8"), look_name
        if look.colour:
            plain = (GOLDEN / f"{name}-{look.width}.txt").read_text(encoding="utf-8")
            assert re.sub(r"\x1b\[\d*m", "", made) == plain
            assert made != plain


def test_every_recording_is_of_something_that_is_shown() -> None:
    known = {f"{name}-{look}.txt" for name in NAMES for look in LOOKS}
    assert {path.name for path in GOLDEN.iterdir()} == known


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "colour"),
    [
        ({"TERM": "xterm"}, True),
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
    ],
)
def test_a_terminal_has_a_width_and_shows_colour_unless_it_is_told_not_to(
    environ: dict[str, str], colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert Look.at(Screen(), environ) == Look(77, colour)
    assert Look.at(io.StringIO(), environ) == Look()


@pytest.mark.parametrize(
    ("value", "unit", "metric", "text"),
    [
        (1334.912, "hour", "", "1,334.9 h"),
        (37_912.4, "", "wandb.overview.steps_per_second", "37.9 k/s"),
        (9_999, "", "wandb.overview.sps", "9,999 /s"),
        (10_000, "", "wandb.overview.sps", "10 k/s"),
        (1_234_567, "task", "xenna.outputs_per_s", "1,234.6 k task/s"),
        (1.79, "dollar", "wandb.cost_per_hour", "1.79 $/h"),
        (2.35 * 2**30, "byte", "", "2.35 GiB"),
        (2.35, "gibibyte", "", "2.35 GiB"),
        (0.25, "gibibyte", "", "256 MiB"),
        (1.5, "gibibyte", "", "1.5 GiB"),
        (1023, "byte", "", "1,023 B"),
        (1024, "byte", "", "1 KiB"),
        (0, "byte", "", "0 B"),
        (-2048, "byte", "", "-2 KiB"),
        (2760, "second", "", "46 min"),
        (119, "second", "", "119 s"),
        (7200, "second", "", "2 h"),
        (200_000, "second", "", "2.31 d"),
        (0.0125, "second", "", "12.5 ms"),
        (1500, "millisecond", "", "1.5 s"),
        (120_000, "millisecond", "", "2 min"),
        (3.5e-5, "millisecond", "", "0.035 µs"),
        (99.96, "percent", "", "99.96 %"),
        (1234567, "run", "", "1,234,567 run"),
        (-0.0, "run", "", "0 run"),
        (1.999, "run", "", "1.999 run"),
        (10.00001, "run", "", "10 run"),
        (999_999_999_999_999, "run", "", "999,999,999,999,999 run"),
        (1e15, "run", "", "1e+15 run"),
    ],
)
def test_a_value_is_read_in_a_unit_of_a_handy_size(value: float, unit: str, metric: str, text: str) -> None:
    assert " ".join(figure(value, unit, metric)) == text


@given(values)
def test_what_is_shown_of_a_value_is_near_it_and_whole_only_if_it_is(value: float) -> None:
    text = digits(value)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.006)
    assert value == int(value) or not text.isdecimal() or abs(value - round(value)) < 1e-4


def test_east_asian_characters_take_two_columns_and_combining_ones_none() -> None:
    assert [columns(text) for text in ("abc", "蟻", "é", "e\u0301", "\u0e01\u0e31", "#\ufe0f")] == [
        3,
        2,
        1,
        1,
        1,
        1,
    ]
