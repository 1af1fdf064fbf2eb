"""One bounded GET of a page of metrics: so many seconds and bytes at most, whatever answers."""

import http.client
import io
import socket
import time
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

from cluster.errors import ObservationError

PATIENCE_S = 5.0
"""Seconds for the whole answer. An exporter collects when it is asked, which takes it tenths of a second."""
MOST_BYTES = 4 * 1024 * 1024
"""Bytes of one answer: 64 instances of GPUs with a hundred metrics of 600 bytes each."""
PIECE_BYTES = 64 * 1024


class PageError(ObservationError):
    """The page could not be read, or was not what it should be. The code classifies it for metrics."""

    def __init__(self, code: str, words: str) -> None:
        self.code = code
        super().__init__(words)


def fetched(url: str, patience_s: float = PATIENCE_S, most_bytes: int = MOST_BYTES) -> str:
    """The page's text. Raises PageError. No proxy is asked, no redirect followed, no connection kept."""
    parts = urlsplit(url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    asked = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: text/plain\r\nConnection: close\r\n\r\n"
    ends_s = time.monotonic() + patience_s
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=patience_s) as line:
            line.sendall(asked.encode("ascii"))
            return _text(_Bounded(line, ends_s, most_bytes), url)
    except TimeoutError as error:
        raise PageError("Silent", f"{url}: no whole answer within {patience_s:g} s") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PageError("Unreachable", f"{url}: {type(error).__name__} {error}"[:200]) from error


def _text(line: "_Bounded", url: str) -> str:
    answer = http.client.HTTPResponse(cast(socket.socket, line))
    try:
        answer.begin()
        if answer.status != HTTPStatus.OK:
            raise PageError("Refused", f"{url} answers {answer.status}")
        # In pieces: for one whole read memory is taken as the answer's header says.
        body = b"".join(iter(lambda: answer.read(PIECE_BYTES), b""))
        if answer.length:
            raise PageError("Unreachable", f"{url}: the answer ends {answer.length} bytes early")
        return body.decode("utf-8", "replace")
    finally:
        answer.close()


class _Bounded(io.RawIOBase):
    """What is left of a connection's time and bytes. A socket's own time-out starts anew with every byte."""

    def __init__(self, line: socket.socket, ends_s: float, most_bytes: int) -> None:
        self._line, self._ends_s, self._left = line, ends_s, most_bytes

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What HTTPResponse asks a socket for, in the one mode that it reads in."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._line.settimeout(left_s)
        count = self._line.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise PageError("TooLong", "the answer is longer than a page of metrics may be")
        return count
