"""Declarations that are wrong are refused where they are written; series have what they were given."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from common.metric import Combine, Kind, Metric, Series, count, gauge

LOAD = gauge("host.load", "process", "How busy it is.", "project", "entity")


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [("a", "x", "k"), ("A.b_c.9", "x" * 400, "k" * 100), ("a" * 200, "x", "k_9")],
)
def test_a_declaration_within_the_limits_of_datadog_is_accepted(name: str, text: str, key: str) -> None:
    found = gauge(name, "", text, key)
    assert (found.name, found.help, found.tags) == (name, text, (key,))


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        *(
            ((name, "", "x"), "is not a metric name")
            for name in ("", "1a", "_a", ".a", "a-b", "a b", "é", "a" * 201, "a\n")
        ),
        *((("a", "", text), "^a: help must be 1 to 400 ASCII") for text in ("", "x" * 401, "naïve")),
        *((("a", "", "x", "good", key), "^a: .* is not a tag key") for key in ("", "A", "9a", "a-b", "a:b")),
        (("a", "", "x", "k" * 101), "is not a tag key"),
    ],
)
def test_any_other_declaration_is_refused(declaration: tuple[str, ...], problem: str) -> None:
    for declare in (gauge, count):
        with pytest.raises(ValueError, match=problem):
            declare(*declaration)


def test_a_series_has_the_points_sorted_tags_and_host_it_was_given() -> None:
    assert LOAD(0.5, 1_800_000_000, project="ants", entity="acme") == Series(
        LOAD, ("entity:acme", "project:ants"), None, (1_800_000_000,), (0.5,)
    )
    times, values = range(7, 10), [1, 2.5, 3]
    assert LOAD.series(times, values, project="ants", on_host="node-1") == Series(
        LOAD, ("project:ants",), "node-1", times, values
    )
    fraction: Any = 7.9
    assert LOAD(1, fraction).times == (7,)


def test_a_tag_that_is_not_declared_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^host\.load does not declare the tag run, user$"):
        LOAD(1, 1, project="ants", user="x", run="y")
    with pytest.raises(ValueError, match=r"^host\.load does not declare the tag run$"):
        LOAD.series((1, 2), (1, 1), run="y")
    usage = gauge("usage", "", "x", "user", open_tags=True)
    assert usage(1, 7, user="ann", team="ants").tags == ("team:ants", "user:ann")
    with pytest.raises(ValueError, match="usage does not declare the tag Team"):
        usage(1, 7, user="ann", Team="ants")


@pytest.mark.parametrize("value", [None, "1", True, False, Decimal(1), 1j])
def test_what_is_not_a_number_is_refused_by_type(value: Any) -> None:
    with pytest.raises(TypeError, match=f"^host.load: {type(value).__name__} is not a number$"):
        LOAD(value, 1)


def test_gauges_and_counts_differ_in_kind_and_combination() -> None:
    assert gauge("a", "byte", "x", "k") == Metric("a", Kind.GAUGE, "byte", "x", ("k",))
    assert count("a", "byte", "x", "k") == Metric("a", Kind.COUNT, "byte", "x", ("k",), combines=Combine.SUM)
    node = gauge("a", "", "x", open_tags=True, on_node=True, combines=Combine.MAX)
    assert node == Metric("a", Kind.GAUGE, "", "x", (), True, Combine.MAX, True)
    assert count("a", "", "x", on_node=True).on_node


@pytest.mark.parametrize(
    ("how", "two", "three"),
    [("sum", 5, 12), ("max", 4, 7), ("min", 1, 1), ("mean", 2.5, 4), ("none", None, None)],
)
def test_several_series_become_one_number_as_declared(
    how: str, two: float | None, three: float | None
) -> None:
    combine = Combine(how)
    assert [combine.of(values) for values in ([], [4], [4, 1], [4, 1, 7])] == [None, 4, two, three]
