"""The runs of a project as pages add to them: each once, with what was lost."""

from __future__ import annotations

import pytest

from collectors.wandb.listing import Listing
from collectors.wandb.pages import Page
from collectors.wandb.runs import Run, RunKind, State
from collectors.wandb.settings import Project


def run(name: str, gpus: int) -> Run:
    return Run(name, State.FINISHED, RunKind.OTHER, 0, 1, 0, 1, gpus, False, None, None, {})


def page(begin: int, flaws: dict[int, list[str]], *shown: tuple[str | None, Run | None]) -> Page:
    number = len(shown)
    ids, runs = [name for name, _ in shown], [read for _, read in shown]
    return Page(begin, number, begin + number - 1, range(begin, begin + number), ids, runs, flaws)


@pytest.mark.parametrize("newer", [True, False])
def test_of_a_run_that_is_listed_twice_the_newer_page_is_the_truth(newer: bool) -> None:
    listing = Listing(Project("acme", "ants"))
    listing.take(page(0, {0: ["bad_config"]}, ("a", run("a", 1)), ("b", run("b", 1))))
    listing.take(page(0, {}, ("a", run("a", 2)), ("c", run("c", 2))), newer=newer)
    assert [(one.id, one.gpus) for one in listing.runs] == [("a", 2 if newer else 1), ("b", 1), ("c", 2)]
    assert listing.dropped == ({} if newer else {"bad_config": 1})
    assert "c" in listing
    assert "d" not in listing


def test_rows_without_an_id_are_told_apart_by_where_they_are() -> None:
    listing = Listing(Project("acme", "ants"), total=7)
    malformed = {0: ["malformed_run"], 2: ["malformed_run"]}
    for _ in range(2):
        listing.take(page(4, malformed, (None, None), ("a", run("a", 1)), (None, None)))
    assert (listing.listed, listing.unseen, len(listing.runs)) == (3, 4, 1)
    listing.take(page(3, {0: ["malformed_run"]}, (None, None)))
    assert (listing.listed, listing.dropped) == (4, {"malformed_run": 3})


def test_an_example_of_what_was_lost_is_the_first_one() -> None:
    listing = Listing(Project("acme", "ants"))
    flaws = {0: ["bad_config"], 1: ["bad_config", "bad_gpu_count"], 2: ["malformed_run"]}
    listing.take(page(4, flaws, ("a", run("a", 1)), ("b", run("b", 1)), (None, None)))
    examples = {
        reason: listing.example(reason) for reason in ("bad_config", "bad_gpu_count", "malformed_run")
    }
    assert examples == {
        "bad_config": "acme/ants, run a",
        "bad_gpu_count": "acme/ants, run b",
        "malformed_run": "acme/ants, run 6",
    }
    assert listing.example("unserved_run") == "acme/ants"
