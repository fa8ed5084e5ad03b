"""The HTTP end of the fault server: one request a connection, answered with the parts that its owner yields."""

from __future__ import annotations

import socketserver
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from fsm_agent.testing.wire import Raw

__all__ = ["Answer", "Listener", "Part"]

Part = Raw | bytes | None
"""A head with its body; or a head with body None and then pieces of the body; None drops the connection."""

Answer = Callable[[str, str, Mapping[str, str], bytes], Iterator[Part]]
"""Method, path, headers with lower-case names, and body of a request, to the parts of its response."""


class Listener(socketserver.ThreadingTCPServer):
    """Listens on a free loopback port; a thread a connection, all of them waited for in `server_close`."""

    allow_reuse_address = True
    daemon_threads = False
    block_on_close = True
    request_queue_size = 128

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__(("127.0.0.1", 0), Conversation)


class Conversation(BaseHTTPRequestHandler):
    """One connection, one request: it is closed after the response, so that nothing is left to close."""

    protocol_version = "HTTP/1.1"
    server: Listener
    timeout = 5

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the requests are recorded."""

    def do_GET(self) -> None:
        """Answer a request without a body."""
        self._respond(b"")

    def do_POST(self) -> None:
        """Answer a request with a body."""
        self._respond(self.rfile.read(int(self.headers.get("content-length") or 0)))

    def _respond(self, data: bytes) -> None:
        self.close_connection = True
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            in_chunks = False
            for part in self.server.answer(self.command, self.path, headers, data):
                if part is None:
                    return
                if isinstance(part, Raw):
                    in_chunks = part.body is None
                    self._send_head(part)
                elif part:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            if in_chunks:
                self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            pass  # A client that goes away in the middle (cancelled, or timed out) is no fault of the server.

    def _send_head(self, head: Raw) -> None:
        self.send_response(head.status)
        fields = {"content-type": head.content_type, "connection": "close"} | dict(head.headers)
        fields |= {"transfer-encoding": "chunked"} if head.body is None else {"content-length": str(len(head.body))}
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        if head.body:
            self.wfile.write(head.body)
