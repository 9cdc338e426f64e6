"""The Datadog client as `provisioning` uses it: one request at a time, with the application key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from common.datadog.client import ApplicationClient
from common.errors import DeliveryError
from common.net.http import UnavailableError
from common.net.retry import TransientError, persist

if TYPE_CHECKING:
    from common.datadog.transport import Client, HttpAnswer

T = TypeVar("T")


class ProvisioningClient(ApplicationClient):
    """Implements `provisioning.Client`."""

    purpose = "Dashboards, monitors and metadata need an application key"
    server_time: float | None = None
    explain_refusal = ApplicationClient.blame

    def request(self, method: str, path: str, body: object = None) -> HttpAnswer:
        """Send a request once and return its 2xx answer."""
        from common.datadog.transport import StatusError

        answers: list[HttpAnswer] = []
        status: int | None = None

        def call(client: Client) -> None:
            nonlocal status
            try:
                answers.append(client.ask(method, path, body=body))  # type: ignore[arg-type]
            except StatusError as error:
                status = error.answer.status
                raise

        try:
            self.server_time = self._once(call)
        except TransientError as error:
            raise error if status is None else UnavailableError(status, "", error.wait) from None
        return answers[0]

    def retry(self, call: Callable[[], T]) -> T:
        """Call until it does not raise TransientError; an answer it cannot read is one."""

        def attempt() -> T:
            try:
                return call()
            except (TypeError, ValueError, LookupError):
                raise TransientError(
                    "this does not look like Datadog: check DD_SITE, FLEETGAUGE_DD_URL and HTTPS_PROXY"
                ) from None

        try:
            return persist(attempt, self.deadline, self.deadline.sleep)
        except TransientError as error:
            raise DeliveryError(f"{self.address}: {error}") from error
