"""Which metrics take old points: asked, turned on and refused on the wire."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable

import pytest

from common.datadog.client import DatadogClient
from common.datadog.historical import HistoricalIngestion, refusal, visibility_delay
from common.datadog.intake import DatadogSink
from common.errors import DeliveryError, RefusedError
from common.metric import gauge
from common.net.retry import Deadline
from support.servers.datadog import HISTORICAL, Intake
from support.servers.faults import Fault
from support.standins import APP_KEY, KEY, NOW, Time, core_settings, datadog_settings

LOAD = gauge("host.load", "process", "x")
NAMES = ("host.load", "jobs.done", "runs.active")

MakeHistory = Callable[..., HistoricalIngestion]


def push_live(intake: Intake, time: Time) -> None:
    settings = datadog_settings(FLEETGAUGE_DD_URL=intake.url)
    client = DatadogClient(settings, core_settings(), Deadline(60, time), clock=time)
    sink = DatadogSink(client, core_settings())
    sink.add(LOAD(1, NOW))
    sink.flush()


def asked(intake: Intake) -> list[tuple[str, str, int | None]]:
    return [(request.method, request.path, request.status) for request in intake.requests]


class TestAsking:
    def test_each_name_is_asked_about_once_on_one_connection(
        self, intake: Intake, make_history: MakeHistory
    ) -> None:
        intake.historical = {"jobs.done", "elsewhere"}
        history = make_history()
        assert history.enabled([*reversed(NAMES), *NAMES]) == {"jobs.done"}
        assert asked(intake) == [
            ("GET", f"{HISTORICAL}/host.load", 404),
            ("GET", f"{HISTORICAL}/jobs.done", 200),
            ("GET", f"{HISTORICAL}/runs.active", 404),
        ]
        assert (history.client.requests, intake.connections) == (3, 1)

    def test_both_keys_travel_in_their_headers_only(self, intake: Intake, make_history: MakeHistory) -> None:
        make_history().enabled(["host.load"])
        (request,) = intake.requests
        assert (request.headers["DD-API-KEY"], request.headers["DD-APPLICATION-KEY"]) == (KEY, APP_KEY)
        assert (request.target, request.body) == (f"{HISTORICAL}/host.load", b"")

    def test_no_names_ask_nothing(self, intake: Intake, make_history: MakeHistory) -> None:
        assert make_history().enabled([]) == set()
        assert intake.requests == []

    def test_nobody_is_warned_that_the_operation_is_a_preview(
        self, intake: Intake, make_history: MakeHistory
    ) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make_history().enabled(["host.load"])
        assert caught == []

    def test_a_404_of_a_stranger_is_no_answer(self, intake: Intake, make_history: MakeHistory) -> None:
        for body in ("<html>", "{}", '{"errors": []}', b"\xff\xfe\xfd"):
            intake.faults.add(Fault(status=404, body=body))
            with pytest.raises(RefusedError) as caught:
                make_history().enabled(["host.load"])
            assert str(caught.value).startswith(f"{intake.url} answered 404; response: ")
            assert "this does not look like Datadog" in str(caught.value)


class TestTurningOn:
    def test_it_is_on_afterwards_and_stays_on(
        self, intake: Intake, make_history: MakeHistory, time: Time
    ) -> None:
        push_live(intake, time)
        history = make_history()
        assert [history.enable("host.load") for _ in range(2)] == [None, None]
        assert [request.status for request in intake.requests[1:]] == [201, 200]
        body = {"data": {"id": "host.load", "type": "historical_metrics_configurations"}}
        assert [json.loads(request.body) for request in intake.requests[1:]] == [body, body]
        assert intake.historical == history.enabled(NAMES) == {"host.load"}

    def test_a_metric_that_never_had_a_point_has_to_be_pushed_first(
        self, intake: Intake, make_history: MakeHistory, time: Time
    ) -> None:
        history = make_history()
        assert history.enable("host.load") == (
            "it does not exist yet: push it live once, and then turn it on; "
            "Datadog's message: Metric host.load does not exist"
        )
        push_live(intake, time)
        assert history.enable("host.load") is None

    @pytest.mark.parametrize("status", [400, 422])
    def test_what_cannot_be_turned_on_says_why(
        self, intake: Intake, make_history: MakeHistory, status: int
    ) -> None:
        body = json.dumps({"errors": [{"title": "Nope", "detail": "host.load has\na tag configuration"}]})
        intake.faults.add(Fault(status=status, body=body))
        assert make_history().enable("host.load") == (
            "it has a tag configuration, or is a distribution or a standard metric; "
            "Datadog's message: host.load has a tag configuration"
        )

    def test_only_the_first_of_many_problems_are_quoted(
        self, intake: Intake, make_history: MakeHistory
    ) -> None:
        intake.faults.add(Fault(status=422, body=json.dumps({"errors": list("abcdefg")})))
        assert str(make_history().enable("host.load")).endswith("Datadog's message: a; b; c; d; e")

    def test_a_tag_configuration_is_a_refusal(self, intake: Intake, make_history: MakeHistory) -> None:
        intake.tag_configured.add("host.load")
        assert str(make_history().enable("host.load")).endswith("message: host.load has a tag configuration")
        assert intake.historical == set()

    def test_any_other_refusal_says_what_datadog_said(
        self, intake: Intake, make_history: MakeHistory
    ) -> None:
        intake.faults.add(Fault(status=409, body='{"errors": ["somebody else is at it"]}'))
        expected = f"{intake.url} answered 409; response: somebody else is at it"
        assert make_history().enable("host.load") == expected

    @pytest.mark.parametrize("status", [307, 400, 404])
    def test_what_is_not_datadogs_own_answer_is_an_error(
        self, intake: Intake, make_history: MakeHistory, status: int
    ) -> None:
        intake.faults.add(Fault(status=status, body="<html>"))
        with pytest.raises(RefusedError, match=f"answered {status}; "):
            make_history().enable("host.load")


class TestTryingAgain:
    @pytest.mark.parametrize(
        "fault",
        [
            *(Fault(status=status) for status in (408, 429, 500, 503)),
            *(Fault(status=500, applied=True), Fault(reset="before"), Fault(reset="after")),
            *(Fault(reset="after", applied=True), Fault(truncate=True)),
            *(Fault(body=body) for body in ("<html>", "", "null", "[]", "{}", '{"data": null}', "7", '"on"')),
            *(Fault(body=body) for body in ('{"data": {}}', '{"data": []}', '{"data": {"id": "a.b"}}')),
            Fault(body=b"\xff\xfe\xfd"),
        ],
        ids=str,
    )
    def test_what_may_pass_is_asked_again_and_the_answer_is_right(
        self, intake: Intake, make_history: MakeHistory, time: Time, fault: Fault
    ) -> None:
        intake.historical.add("host.load")
        history = make_history()
        intake.faults.add(fault, times=2)
        assert history.enabled(["host.load"]) == {"host.load"}
        assert (history.client.requests, len(time.naps)) == (3, 2)
        intake.faults.add(fault, times=2)
        assert history.enable("host.load") is None
        assert (history.client.requests, len(time.naps)) == (6, 4)

    def test_an_answer_about_another_metric_never_counts(
        self, intake: Intake, make_history: MakeHistory
    ) -> None:
        intake.faults.add(Fault(status=200, body='{"data": {"id": "jobs.done"}}'), times=None)
        with pytest.raises(DeliveryError, match=r"an answer that is not about host.load \(tried 12 times\)$"):
            make_history().enabled(["host.load"])


def test_how_long_points_take_to_be_visible_depends_on_their_age() -> None:
    bounds = [0, 3600, 12 * 3600, 30 * 86_400]
    texts = [visibility_delay(bound + 1) for bound in bounds]
    assert len(set(texts)) == len(bounds)
    assert [visibility_delay(bound) for bound in bounds[1:]] == texts[:-1]


def test_the_refusal_names_the_number_and_the_command() -> None:
    text = refusal(2, "run_collector.py wandb --enable-historical")
    assert "for 2 of the metrics" in text
    assert text.endswith(": run_collector.py wandb --enable-historical")
