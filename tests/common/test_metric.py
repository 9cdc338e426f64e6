"""Declarations that are wrong are refused where they are written."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from common.metric import Combine, Kind, Metric, Series, count, gauge
from common.units import UNITS
from support.project import ROOT

CATALOGUE = ROOT / "tests" / "data" / "datadog_units.txt"
LOAD = gauge("host.load", "process", "How busy it is.", "project", "entity")


@pytest.mark.parametrize("name", ["a", "A.b_c.9", "a" * 200])
def test_a_name_of_letters_digits_dots_and_underscores_is_accepted(name: str) -> None:
    assert gauge(name, "", "x").name == name


@pytest.mark.parametrize("name", ["", "1a", "_a", ".a", "a-b", "a b", "é", "a" * 201, "a\n"])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a metric name"):
        gauge(name, "", "x")


@pytest.mark.parametrize("text", ["x", "x" * 400])
def test_a_help_of_1_to_400_characters_is_accepted(text: str) -> None:
    assert gauge("a", "", text).help == text


@pytest.mark.parametrize("text", ["", "x" * 401, "naïve"])
def test_another_help_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a: help must be 1 to 400 ASCII characters$"):
        gauge("a", "", text)


@pytest.mark.parametrize(
    ("unit", "near"), [("gibibytes", "gibibyte, "), ("seconds", "second, "), ("zorkmid", "none ")]
)
def test_an_unknown_unit_is_refused_with_similar_ones(unit: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"^a: '{unit}' is not a unit of Datadog's; near: {near}"):
        gauge("a", unit, "x")


def test_units_are_those_of_the_catalogue() -> None:
    assert (CATALOGUE.read_text().split("\n")) == [*sorted(UNITS), ""]


@pytest.mark.parametrize("key", ["", "A", "9a", "a-b", "a:b", "a" * 101])
def test_a_bad_tag_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"^a: .* is not a tag key$"):
        gauge("a", "", "x", "good", key)


def test_a_tag_key_of_100_characters_is_accepted() -> None:
    assert gauge("a", "", "x", "k" * 100).tags == ("k" * 100,)


def test_a_value_at_a_time_is_a_series_of_one_point_with_sorted_tags() -> None:
    assert LOAD(0.5, 1_800_000_000, project="ants", entity="acme") == Series(
        LOAD, ("entity:acme", "project:ants"), None, (1_800_000_000,), (0.5,)
    )


def test_a_series_has_the_points_tags_and_host_it_was_given() -> None:
    times, values = range(7, 10), [1, 2.5, 3]
    assert LOAD.series(times, values, project="ants", on_host="node-1") == Series(
        LOAD, ("project:ants",), "node-1", times, values
    )


def test_a_fraction_of_a_second_is_cut() -> None:
    fraction: Any = 7.9
    assert LOAD(1, fraction).times == (7,)


def test_open_tags_take_those_that_the_configuration_names_and_no_others() -> None:
    usage = gauge("usage", "", "x", "user", open_tags=True)
    assert usage(1, 7, user="ann", team="ants").tags == ("team:ants", "user:ann")
    with pytest.raises(ValueError, match="usage does not declare the tag Team"):
        usage(1, 7, user="ann", Team="ants")


def test_a_tag_that_is_not_declared_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^host\.load does not declare the tag run, user$"):
        LOAD(1, 1, project="ants", user="x", run="y")
    with pytest.raises(ValueError, match=r"^host\.load does not declare the tag run$"):
        LOAD.series((1, 2), (1, 1), run="y")


@pytest.mark.parametrize("value", [None, "1", True, False, Decimal(1), 1j])
def test_what_is_not_a_number_is_refused_by_type(value: Any) -> None:
    with pytest.raises(TypeError, match=f"^host.load: {type(value).__name__} is not a number$"):
        LOAD(value, 1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_a_value_that_is_not_finite_is_data(value: float) -> None:
    [found] = LOAD(value, 1).values
    assert found is value


def test_the_two_declarations_differ_in_kind() -> None:
    assert gauge("a", "byte", "x", "k") == Metric("a", Kind.GAUGE, "byte", "x", ("k",))
    assert count("a", "byte", "x", "k") == Metric("a", Kind.COUNT, "byte", "x", ("k",), combines=Combine.SUM)


@pytest.mark.parametrize(
    ("how", "number"), [("sum", 7), ("max", 4), ("min", 1), ("mean", 7 / 3), ("none", None)]
)
def test_several_series_combine_as_the_metric_declares(how: str, number: float | None) -> None:
    assert Combine(how).of([1, 4, 2]) == (number if number is None else pytest.approx(number))


@pytest.mark.parametrize("how", Combine)
def test_one_series_stands_for_itself_and_of_no_series_nothing_is_known(how: Combine) -> None:
    assert how.of([3.5]) == 3.5
    assert how.of([]) is None


@pytest.mark.parametrize(
    ("how", "two", "three"),
    [("sum", 5, 12), ("max", 4, 7), ("min", 1, 1), ("mean", 2.5, 4), ("none", None, None)],
)
def test_several_series_become_one_number_as_declared(
    how: str, two: float | None, three: float | None
) -> None:
    combine = Combine(how)
    assert [combine.of(values) for values in ([], [4], [4, 1], [4, 1, 7])] == [None, 4, two, three]


def test_a_metric_is_of_no_node_and_has_no_open_tags_unless_it_says_so() -> None:
    for plain in (gauge("a.b", "", "x"), count("a.c", "", "x"), Metric("a.d", Kind.GAUGE, "", "x")):
        assert (plain.open_tags, plain.on_node) == (False, False)
    node = gauge("a.b", "", "x", open_tags=True, on_node=True)
    assert (node.open_tags, node.on_node) == (True, True)
    assert count("a.c", "", "x", on_node=True).on_node
