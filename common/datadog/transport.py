"""The official client with a transport of ours, at the place it offers for that.

The client's own transport serialises and compresses every body itself, and forgets the answer where it
cannot read it. Ours takes a body that is ready, counts requests and keeps each answer, whatever is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from datadog_api_client import ApiClient, Configuration
from datadog_api_client.rest import RESTClientObject
from urllib3 import Timeout

from common.net.http import exchange
from common.net.retry import Deadline

MAX_ANSWER_BYTES = 2**20


@dataclass(frozen=True)
class HttpAnswer:
    """What came back; the client reads `status`, `headers` and `data` of it."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    @cached_property
    def document(self) -> object:
        """The body read as JSON; None where it is none."""
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError):
            return None


class StatusError(Exception):  # it is sorted, never reported
    """An answer whose status is not 2xx."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Transport(RESTClientObject):
    """Sends each request once: neither retries nor redirects are followed."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)  # type: ignore[no-untyped-call]  # the client is not typed
        self.requests = 0
        self.answer: HttpAnswer | None = None  # to the latest request
        self.ready: bytes | None = None  # a body that is JSON and gzip already
        self.deadline: Deadline

    # Any: the signature is the client's, which is not typed
    def request(
        self,
        method: str,
        url: str,
        query_params: Any = None,  # noqa: ARG002  # no operation of ours has any
        headers: dict[str, str] | None = None,
        body: Any = None,
        post_params: Any = None,  # noqa: ARG002
        preload_content: bool = True,  # noqa: ARG002
        request_timeout: Any = None,
    ) -> HttpAnswer:
        """Send, and read what comes back."""
        self.requests += 1
        self.answer = None
        connect, read = request_timeout
        limits = Timeout(connect=connect, read=read)
        sent = self.ready if body is None else json.dumps(body)
        status, reply = exchange(
            self.pool_manager, method, url, sent, headers, limits, self.deadline, MAX_ANSWER_BYTES
        )
        self.answer = HttpAnswer(status, reply.headers, reply.body)
        if not 200 <= status <= 299:
            raise StatusError(self.answer)
        return self.answer


class Client(ApiClient):
    """The official client, over that transport."""

    rest_client: Transport

    def _build_rest_client(self) -> Transport:
        return Transport(self.configuration)

    def ask(
        self, method: str, path: str, ready: bytes | None = None, *, body: Mapping[str, Any] | None = None
    ) -> HttpAnswer:
        """Ask with the keys there are; what comes back is left as it is."""
        keys = self.configuration.api_key
        headers = {"Accept": "application/json", "DD-API-KEY": keys["apiKeyAuth"]}
        if "appKeyAuth" in keys:
            headers["DD-APPLICATION-KEY"] = keys["appKeyAuth"]
        if body is not None:
            headers["Content-Type"] = "application/json"
        if ready is not None:
            headers |= {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        self.rest_client.ready = ready
        try:
            answer: HttpAnswer = self.call_api(
                path,
                method,
                header_params=headers,
                body=body,
                preload_content=False,
                request_timeout=self.configuration.request_timeout,
            )
        finally:
            self.rest_client.ready = None
        return answer
