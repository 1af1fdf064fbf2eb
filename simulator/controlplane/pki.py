"""Keys and certificates of a control plane on loopback: they stay in its folder, and no other program trusts them."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from simulator.controlplane.commands import ACCOUNTS, AUTHORITY, FRONT, FRONT_AUTHORITY, SERVER, write_secret

VALID_FOR = timedelta(days=365)
RENEW_BEFORE = timedelta(days=7)

SERVER_ADDRESSES = ("127.0.0.1", "10.0.0.1")
"""Loopback, and the first address of the service range: `kubernetes.default` from inside pods."""
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def write_pki(folder: Path, now: datetime) -> None:
    """Writes the authority, one certificate for every server, and the key that signs service accounts' tokens.

    Existing files that are valid for another week stay, so that a restarted control plane is still trusted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not _lasts(folder / f"{FRONT}.crt", now):
        _write_front(folder, now)
    if _lasts(folder / f"{SERVER}.crt", now):
        return
    authority_key, server_key = _new_key(), _new_key()
    authority = _authority("tonnage-controlplane", authority_key, now)
    server = _server_certificate(server_key, authority, authority_key, now)
    _write_key(folder / f"{AUTHORITY}.key", authority_key)
    (folder / f"{AUTHORITY}.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    _write_key(folder / f"{SERVER}.key", server_key)
    (folder / f"{SERVER}.crt").write_bytes(server.public_bytes(serialization.Encoding.PEM))
    # A new key would make every issued token void: kept even when certificates are renewed.
    if not (folder / f"{ACCOUNTS}.key").exists():
        _write_key(folder / f"{ACCOUNTS}.key", _new_key())


def _lasts(certificate: Path, now: datetime) -> bool:
    try:
        read = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return read.not_valid_after_utc > now + RENEW_BEFORE


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _write_front(folder: Path, now: datetime) -> None:
    """Writes the authority and the client certificate of the aggregation layer. Its authority is another one, because
    whoever it signs may name any user."""
    authority_key, client_key = _new_key(), _new_key()
    authority = _authority("tonnage-front", authority_key, now)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    made = _certificate(_name(FRONT), authority.subject, client_key.public_key(), now)
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    made = made.add_extension(issuer, critical=False).add_extension(_key_identifier(client_key), critical=False)
    client = made.sign(authority_key, hashes.SHA256())
    (folder / f"{FRONT_AUTHORITY}.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    _write_key(folder / f"{FRONT}.key", client_key)
    (folder / f"{FRONT}.crt").write_bytes(client.public_bytes(serialization.Encoding.PEM))


def _authority(common: str, key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = _name(common)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    made = _certificate(name, name, key.public_key(), now)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = made.add_extension(usage, critical=True)
    return made.add_extension(_key_identifier(key), critical=False).sign(key, hashes.SHA256())


def _server_certificate(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> x509.Certificate:
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in SERVER_ADDRESSES]
    names = [x509.DNSName(name) for name in SERVER_NAMES]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    made = _certificate(_name("kube-apiserver"), authority.subject, key.public_key(), now)
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    made = made.add_extension(x509.SubjectAlternativeName([*addresses, *names]), critical=False)
    made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    # Python 3.13 and newer refuse a certificate that does not state which key signed it.
    made = made.add_extension(issuer, critical=False).add_extension(_key_identifier(key), critical=False)
    return made.sign(authority_key, hashes.SHA256())


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # An hour back: clocks of containers and their hosts differ.
        .not_valid_before(now.astimezone(UTC) - timedelta(hours=1))
        .not_valid_after(now.astimezone(UTC) + VALID_FOR)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _key_identifier(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    write_secret(path, pem)
