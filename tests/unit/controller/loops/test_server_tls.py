"""The operator's certificates: reloaded while it runs, refused at the start when they cannot be used."""

import os
from pathlib import Path

import pytest
from cryptography import x509

from cluster.errors import ConfigError
from controller.loops.server_tls import LOOK_S, ServerTls
from tests.builders.certificates import Authority, Pair
from tests.clock import HandClock


def mounted(authority: Authority, pair: Pair, clock: HandClock) -> ServerTls:
    return ServerTls(str(pair.certificate), str(pair.key), clock, "power.tls", str(authority.certificate))


def trusted(tls: ServerTls) -> set[int]:
    """Serial numbers of the authorities that are believed."""
    return {x509.load_der_x509_certificate(each).serial_number for each in tls.context.get_ca_certs(binary_form=True)}


def replaced(path: Path, by: Path) -> None:
    before_ns = path.stat().st_mtime_ns
    path.write_bytes(by.read_bytes())
    os.utime(path, ns=(before_ns + 10**9, before_ns + 10**9))


def test_new_files_are_taken_up_after_a_while(tmp_path: Path) -> None:
    clock, ours, next_one = HandClock(), Authority(tmp_path / "a"), Authority(tmp_path / "b", "next")
    tls = mounted(ours, ours.vouches_for("localhost"), clock)
    replaced(ours.certificate, by=next_one.certificate)
    before = trusted(tls)
    tls.look()
    assert trusted(tls) == before

    clock.now_s = LOOK_S
    tls.look()
    assert len(trusted(tls)) == 2


def test_files_that_cannot_be_used_leave_those_that_were(tmp_path: Path) -> None:
    clock, ours = HandClock(), Authority(tmp_path)
    pair = ours.vouches_for("localhost")
    tls = mounted(ours, pair, clock)
    pair.certificate.write_text("half a certifi", encoding="utf-8")
    clock.now_s = LOOK_S
    tls.look()

    assert len(trusted(tls)) == 1


def test_at_the_start_they_are_a_mistake_in_the_settings(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    mixed = Pair(ours.vouches_for("localhost").certificate, theirs.vouches_for("localhost").key)

    with pytest.raises(ConfigError, match=r"power\.tls"):
        mounted(ours, mixed, HandClock())
