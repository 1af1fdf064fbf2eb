"""Certificates that every client of a control plane trusts, and keys that no other user can read."""

import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from simulator.controlplane.pki import VALID_FOR, write_pki

NOW = datetime.now(UTC)  # certificates are checked against the clock of the machine


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    write_pki(tmp_path, NOW)
    return tmp_path


def handshake(pki: Path, host: str) -> None:
    """A TLS handshake in memory, with the client's strictest checks. Raises ssl.SSLError when the client refuses."""
    trusts = ssl.create_default_context(cafile=pki / "ca.crt")
    trusts.verify_flags |= ssl.VERIFY_X509_STRICT
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(pki / "server.crt", pki / "server.key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusts.wrap_bio(back, there, server_hostname=host)
    server = serves.wrap_bio(there, back, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):  # it waits for the other side
            side.do_handshake()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "kubernetes.default.svc"])
def test_clients_trust_the_server_under_its_names(pki: Path, host: str) -> None:
    handshake(pki, host)


def test_clients_do_not_trust_it_under_another_name(pki: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(pki, "example.com")


def test_keys_are_readable_by_their_owner_alone(pki: Path) -> None:
    assert {key.name: key.stat().st_mode & 0o777 for key in pki.glob("*.key")} == {
        "front-proxy-client.key": 0o600,
        "server.key": 0o600,
        "service-accounts.key": 0o600,
    }


def contents(pki: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in pki.iterdir()}


def test_certificates_that_last_are_kept(pki: Path) -> None:
    before = contents(pki)

    write_pki(pki, NOW + timedelta(days=30))

    assert contents(pki) == before


def test_certificates_near_their_end_are_renewed_and_tokens_stay_good(pki: Path) -> None:
    before = contents(pki)

    write_pki(pki, NOW + VALID_FOR - timedelta(days=1))

    changed = {name for name, content in contents(pki).items() if content != before[name]}
    front = {"front-ca.crt", "front-proxy-client.crt", "front-proxy-client.key"}
    assert changed == {"ca.crt", "server.crt", "server.key"} | front
