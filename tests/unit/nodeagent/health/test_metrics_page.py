"""One GET of a page: bounded in seconds and bytes, whatever answers."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Thread

import pytest

from nodeagent.health.dcgm_exporter import PageError, fetched

Answer = Callable[[socket.socket, Event], None]


class Server:
    """Answers each connection by a function, byte by byte as a test wants it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.over = Event()
        self.answer: Answer = says()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/metrics"
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                with line, suppress(OSError):
                    line.recv(4096)
                    self.answer(line, self.over)

    def close(self) -> None:
        self.over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def says(*pieces: bytes, pause_s: float = 0.0) -> Answer:
    """Sends this, the last piece again and again where there is a pause."""

    def answer(line: socket.socket, over: Event) -> None:
        for piece in pieces:
            line.sendall(piece)
        while pause_s and not over.wait(pause_s):
            line.sendall(pieces[-1])

    return answer


def endless(line: socket.socket, over: Event) -> None:
    line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while not over.is_set():
        line.sendall(b"#" * 65536)


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (says(OK + b"\r\n", b"#", pause_s=0.02), "Silent"),  # each byte in time, and never an end
        (says(OK, b"X", pause_s=0.02), "Silent"),  # likewise in a header
        (endless, "TooLong"),
        (says(OK + b"Content-Length: 99999999999\r\n\r\n#"), "Unreachable"),
        (says(OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\n#"), "Unreachable"),
        (says(OK + b"Content-Length: 10\r\n\r\nDCGM_"), "Unreachable"),  # half a page is none
        (says(b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n"), "Refused"),
        (says(b"SSH-2.0-OpenSSH\r\n"), "Unreachable"),
        (says(b""), "Unreachable"),
    ],
)
def test_an_answer_that_is_none_ends_soon_and_says_why(server: Server, answer: Answer, code: str) -> None:
    server.answer = answer
    began_s = time.monotonic()

    with pytest.raises(PageError) as caught:
        fetched(server.url, patience_s=0.3, most_bytes=1_000_000)

    assert caught.value.code == code
    assert time.monotonic() - began_s < 5.0


def test_nobody_there_is_said_so() -> None:
    with pytest.raises(PageError, match="refused"):
        fetched("http://127.0.0.1:1/metrics")
