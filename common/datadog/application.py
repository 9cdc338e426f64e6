"""The endpoints of Datadog that need an application key, as `provisioning` sends its requests to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from common.datadog.client import ApplicationClient
from common.datadog.documents import Document
from common.datadog.provisioning import LostAnswerError
from common.errors import RefusedError
from common.net.retry import TransientError

if TYPE_CHECKING:
    from common.datadog.transport import Client

T = TypeVar("T")

_PERMISSIONS = {
    "dashboard": ("dashboards_read", "dashboards_write"),
    "monitor": ("monitors_read", "monitors_write"),
    "metrics": ("metrics_read", "metrics_metadata_write"),
}


class ApplicationApi(ApplicationClient):
    """Implements `provisioning.Api` with the official client."""

    purpose = "Dashboards, monitors and metadata need an application key"

    def request(
        self, method: str, path: str, body: Document | None, read: Callable[[Any], T]
    ) -> tuple[T, float | None]:
        """Send one request; see `provisioning.Api`."""
        from common.datadog.transport import StatusError

        answers: list[T] = []
        status: int | None = None

        def call(client: Client) -> None:
            nonlocal status
            try:
                answers.append(read(client.ask(method, path, body=body).document))
            except StatusError as error:
                status = error.answer.status
                raise

        try:
            date = self._once(call)
        except TransientError as error:
            raise error if status == 429 else LostAnswerError(str(error), error.wait) from None
        except RefusedError as refused:
            permission = _PERMISSIONS[path.split("/")[3].partition("?")[0]][method != "GET"]
            raise self.blame(refused, permission) from None
        return answers[0], date
