"""Driver server: a driver for every operator with the token, and only one at a time, for the newest."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import pytest

from controller.background.launcher import ChildDriver, DriverServer, RemoteDriver, secret_from
from controller.background.wire import prove
from tests.until import until

TOKEN = b"correct horse battery"


@dataclass
class Given(ChildDriver):
    """Drivers that were given: they say `hello` and remember their end."""

    streams: list[socket.socket] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)

    def adopt(self, stream: socket.socket) -> None:
        self.close()
        self.streams.append(stream.dup())
        self.streams[-1].sendall(b"hello")

    def close(self) -> None:
        if len(self.ended) < len(self.streams):
            self.ended.append(len(self.ended))


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_bytes(TOKEN + b"\n")
    return file


@pytest.fixture
def given(token: Path) -> Iterator[tuple[Given, str]]:
    drivers, listener = Given(), socket.create_server(("127.0.0.1", 0))
    thread = Thread(target=DriverServer(token, drivers).serve, args=(listener,), daemon=True)
    thread.start()
    yield drivers, "{}:{}".format(*listener.getsockname())
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5.0)
    for stream in drivers.streams:
        stream.close()


def test_who_knows_the_token_gets_a_driver(given: tuple[Given, str], token: Path) -> None:
    _, address = given
    peer = RemoteDriver(address, token)

    assert peer.open().recv(5, socket.MSG_WAITALL) == b"hello"

    peer.close()


def test_who_does_not_know_the_token_gets_none(given: tuple[Given, str], tmp_path: Path) -> None:
    drivers, address = given

    guess = tmp_path / "guess"
    guess.write_text("a guess that is wrong")

    with pytest.raises(ConnectionError, match="token"):
        RemoteDriver(address, guess).open()

    assert drivers.streams == []


def test_a_server_that_does_not_know_the_token_is_not_spoken_to() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:

        def impostor() -> None:
            with suppress(OSError):
                prove(theirs, b"another token, as long", as_driver=True)

        thread = Thread(target=impostor, daemon=True)
        thread.start()
        with pytest.raises(ConnectionError, match="token"):
            prove(mine, TOKEN, as_driver=False)
        thread.join(5.0)


def test_a_proof_cannot_be_sent_back_to_whom_it_came_from() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:

        def echo() -> None:
            for size in (32, 32):
                theirs.sendall(theirs.recv(size, socket.MSG_WAITALL))

        Thread(target=echo, daemon=True).start()
        with pytest.raises(ConnectionError, match="token"):
            prove(mine, TOKEN, as_driver=False)


def test_the_newest_operator_takes_the_place_of_the_one_before(given: tuple[Given, str], token: Path) -> None:
    drivers, address = given
    first, second = RemoteDriver(address, token), RemoteDriver(address, token)
    first.open().recv(5, socket.MSG_WAITALL)

    second.open().recv(5, socket.MSG_WAITALL)

    until(lambda: drivers.ended == [0], "the first one's driver is ended")
    first.close()
    second.close()


def test_a_token_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short\n")

    with pytest.raises(ConnectionError, match="16"):
        secret_from(tmp_path / "token")
