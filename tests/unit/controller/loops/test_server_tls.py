"""The operator's certificates: reloaded while it runs, refused at the start when they cannot be used."""

import os
import socket
import ssl
import threading
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from controller.loops.server_tls import LOOK_S, ServerTls
from tests.builders.certificates import Authority, Pair
from tests.clock import HandClock


def mounted(pair: Pair, clock: HandClock) -> ServerTls:
    return ServerTls(str(pair.certificate), str(pair.key), clock, "power.tls")


def is_shown_by(tls: ServerTls, authority: Authority) -> bool:
    """Whether its certificate is one of this authority's, as a client finds."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            tls.context.wrap_socket(ours, server_side=True).close()
        except OSError:
            ours.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client = ssl.create_default_context(cafile=str(authority.certificate))
        client.wrap_socket(theirs, server_hostname="localhost").close()
    except ssl.SSLError:
        return False
    finally:
        theirs.close()
        thread.join(10.0)
    return True


def replaced(path: Path, by: Path) -> None:
    before_ns = path.stat().st_mtime_ns
    path.write_bytes(by.read_bytes())
    os.utime(path, ns=(before_ns + 10**9, before_ns + 10**9))


def test_new_files_are_taken_up_after_a_while(tmp_path: Path) -> None:
    clock, ours, next_one = HandClock(), Authority(tmp_path / "a"), Authority(tmp_path / "b", "next")
    pair, renewed = ours.vouches_for("localhost"), next_one.vouches_for("localhost")
    tls = mounted(pair, clock)
    replaced(pair.certificate, by=renewed.certificate)
    replaced(pair.key, by=renewed.key)
    tls.look()
    assert is_shown_by(tls, ours)

    clock.now_s = LOOK_S
    tls.look()
    assert is_shown_by(tls, next_one)
    assert not is_shown_by(tls, ours)


def test_files_that_cannot_be_used_leave_those_that_were(tmp_path: Path) -> None:
    clock, ours = HandClock(), Authority(tmp_path)
    pair = ours.vouches_for("localhost")
    tls = mounted(pair, clock)
    pair.certificate.write_text("half a certifi", encoding="utf-8")
    clock.now_s = LOOK_S
    tls.look()

    assert is_shown_by(tls, ours)


def test_at_the_start_they_are_a_mistake_in_the_settings(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    mixed = Pair(ours.vouches_for("localhost").certificate, theirs.vouches_for("localhost").key)

    with pytest.raises(ConfigError, match=r"power\.tls"):
        mounted(mixed, HandClock())
