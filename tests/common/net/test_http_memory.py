"""What is left of an answer that could not be used: nothing, also without the garbage collector."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest
from urllib3 import PoolManager

from common.collector import Report
from common.net.http import Http, TooLargeError
from common.net.retry import Deadline
from support.servers.loopback import Answer, LoopbackServer, Request

MEGABYTE = 2**20


class Flood(LoopbackServer[Request]):
    """Answers everything with eight megabytes."""

    request_type = Request

    def respond(self, request: Request) -> Answer:
        return Answer(200, b"x" * (8 * MEGABYTE))


@pytest.fixture
def flood() -> Iterator[Flood]:
    with Flood() as running:
        yield running


def test_an_answer_that_is_too_long_is_released_with_its_error(flood: Flood) -> None:
    http = Http(PoolManager(), Report(), setting="X")
    kept = []
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(10):
            with pytest.raises(TooLargeError) as caught:
                http.request("POST", f"{flood.url}/x", b"", {}, Deadline(30), 4 * MEGABYTE)
            kept.append(caught.value)
        flood.requests.clear()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert len(kept) == 10
    assert held < 4 * MEGABYTE + 8 * MEGABYTE  # of ten times four; the server may still be sending one
