"""An HTTP/1.1 server on a loopback port, with faults and with hooks at every step of a request.

Knows sockets, keep-alive and how to end while requests are under way. What a request means is told by a
subclass in `respond`.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Generic, Literal, Self, TypeVar
from urllib.parse import urlsplit

from support.servers.faults import Fault, Faults

Point = Literal["received", "read", "applied"]


@dataclass(slots=True)
class Request:
    """A request as it came. `status` is what was answered, None where nothing was.

    `target` is the request line's, which names the whole URL where the sender took this for its proxy.
    """

    method: str
    target: str
    headers: Message
    body: bytes = b""
    status: int | None = None

    @property
    def path(self) -> str:
        return urlsplit(self.target).path


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back; length and date are added on the way."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def json(cls, status: int, document: object) -> Answer:
        return cls(status, json.dumps(document).encode(), {"Content-Type": "application/json"})


R = TypeVar("R", bound=Request)


class LoopbackServer(Generic[R]):
    """A running server; leaving the context ends it at once, whatever is hanging in it."""

    request_type: type[Any] = Request

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.faults = Faults()
        self.requests: list[R] = []
        self._hooks: defaultdict[Point, list[Callable[[R], object]]] = defaultdict(list)
        self._closing = threading.Event()
        self._http = _Http(self._serve)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def connections(self) -> int:
        """How many connections were made to it so far."""
        return self._http.accepted

    def respond(self, request: R) -> Answer:
        """Act on a request and say what to answer; called from many threads at once."""
        raise NotImplementedError

    def on(self, point: Point, callback: Callable[[R], object]) -> None:
        """Call back whenever a request reaches a point; it goes on when the callback returns.

        The points are `received` (request line and headers, no body yet), `read` (the whole body, nothing
        done) and `applied` (state changed, no answer sent).
        """
        self._hooks[point].append(callback)

    def close(self) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        for connection in tuple(self._http.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, connection: _Connection) -> None:
        request = self.request_type(connection.command, connection.path, connection.headers)
        self.requests.append(request)
        fault = self.faults.take(request.path) or Fault()
        self._reach("received", request)
        if fault.reset == "before":
            return connection.reset()
        if not connection.read_body(request):
            return None
        self._reach("read", request)
        answer = None
        if fault.takes_effect:
            answer = self.respond(request)
            self._reach("applied", request)
        if self._closing.wait(None if fault.hang else fault.delay):
            connection.close_connection = True
            return None
        if fault.reset == "after":
            return connection.reset()
        answer = _altered(answer, fault)
        request.status = answer.status  # before it is sent: who has the answer may look at once
        connection.send(answer, formatdate(self.clock(), usegmt=True), fault.truncate, fault.stall)
        if fault.stall:
            self._closing.wait()
            connection.close_connection = True
        return None

    def _reach(self, point: Point, request: R) -> None:
        for callback in self._hooks[point]:
            callback(request)


def _altered(answer: Answer | None, fault: Fault) -> Answer:
    if answer is None or fault.status is not None:
        status = fault.status or HTTPStatus.INTERNAL_SERVER_ERROR
        reason = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"
        answer = Answer.json(status, {"errors": [reason]})
    body = fault.body.encode() if isinstance(fault.body, str) else fault.body
    headers = {**answer.headers, **fault.headers}
    return Answer(answer.status, answer.body if body is None else body, headers)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, serve: Callable[[_Connection], None]) -> None:
        self.serve = serve
        self.connections: set[socket.socket] = set()
        self.accepted = 0
        super().__init__(("127.0.0.1", 0), _Connection)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer would ask the resolver for a name nobody reads

    # typeshed types a request as a socket or a datagram pair; of a TCP server it is a socket
    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        self.accepted += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def _serve(self) -> None:
        self.server.serve(self)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_CONNECT = _serve  # noqa: N815  # their name

    def read_body(self, request: Request) -> bool:
        """Read the whole body; False where the sender went away in the middle of it."""
        if "Transfer-Encoding" in request.headers:
            self.send(Answer(HTTPStatus.LENGTH_REQUIRED), formatdate(usegmt=True), truncate=False)
            self.close_connection = True
            return False
        length = int(request.headers.get("Content-Length", 0))
        request.body = self.rfile.read(length)
        if len(request.body) == length:
            return True
        self.close_connection = True
        return False

    def send(self, answer: Answer, date: str, truncate: bool, stall: bool = False) -> None:
        headers = {"Date": date, "Content-Length": str(len(answer.body)), **answer.headers}
        if truncate:
            headers["Connection"] = "close"
        self.send_response_only(answer.status)
        last_said = {name.lower(): (name, value) for name, value in headers.items()}
        for name, value in last_said.values():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and not stall:
            self.wfile.write(answer.body[: len(answer.body) // 2] if truncate else answer.body)

    def reset(self) -> None:
        """Break the connection with a RST, and no FIN before it that would read as an orderly end."""
        self.close_connection = True
        self.server.connections.discard(self.connection)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's spelling
        """Stay silent: what came is in `requests`."""
