"""A proxy in front of a store that speaks S3, which answers some requests as an overloaded store does."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Fault = Literal["", "slow down", "internal error", "answer lost", "access denied"]
"""Refused with 503, failed with 500, carried out and then answered with 500, or forbidden with 403."""

CODES = {
    "slow down": (503, "SlowDown"),
    "internal error": (500, "InternalError"),
    "answer lost": (500, "InternalError"),
    "access denied": (403, "AccessDenied"),
}
HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "date", "server"}


class FaultyStore:
    """Passes requests on to a store; `fault` is told method and path of each and says what befalls it."""

    def __init__(self, url: str) -> None:
        self.fault: Callable[[str, str], Fault] = lambda method, path: ""
        self.faults = 0
        proxy, target = self, urlsplit(url)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fault = proxy.fault(self.command, self.path)
                if fault in ("", "answer lost"):
                    connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
                    connection.request(self.command, self.path, body=body, headers=dict(self.headers))
                    answer = connection.getresponse()
                    content = answer.read()
                    connection.close()
                if fault:
                    proxy.faults += 1
                    self.refuse(*CODES[fault])
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                self.finish_headers(length or "0", content)

            def refuse(self, status: int, code: str) -> None:
                content = f"<Error><Code>{code}</Code><Message>Please try again.</Message></Error>".encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/xml")
                self.finish_headers(str(len(content)), content)

            def finish_headers(self, length: str, content: bytes) -> None:
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
