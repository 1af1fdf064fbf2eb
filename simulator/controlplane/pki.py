"""Keys and certificates of a control plane on loopback: they stay in its folder, and no other program trusts them."""

import ipaddress
from collections.abc import Sequence
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
    """Writes two authorities, the certificates that they sign, and the key that signs service accounts' tokens: one
    certificate for every server, and that of the aggregation layer, whose authority may name any user.

    Existing files that are valid for another week stay, so that a restarted control plane is still trusted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in SERVER_ADDRESSES]
    names = [x509.DNSName(name) for name in SERVER_NAMES]
    own_names = x509.SubjectAlternativeName([*addresses, *names])
    serves, calls = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
    for authority, issuer, certificate, subject, usage, extensions in (
        (AUTHORITY, "tonnage-controlplane", SERVER, "kube-apiserver", serves, [own_names]),
        (FRONT_AUTHORITY, "tonnage-front", FRONT, FRONT, calls, []),
    ):
        if _lasts(folder / f"{certificate}.crt", now):
            continue
        authority_key, key = _new_key(), _new_key()
        own = [x509.BasicConstraints(ca=True, path_length=0), _SIGNS]
        _write_certificate(folder / f"{authority}.crt", issuer, authority_key, issuer, authority_key, own, now)
        own = [x509.BasicConstraints(ca=False, path_length=None), x509.ExtendedKeyUsage([usage]), *extensions]
        _write_certificate(folder / f"{certificate}.crt", subject, key, issuer, authority_key, own, now)
        _write_key(folder / f"{certificate}.key", key)
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


_SIGNS = x509.KeyUsage(
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


def _write_certificate(
    path: Path,
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    extensions: Sequence[x509.ExtensionType],
    now: datetime,
) -> None:
    """Writes a certificate of this key, signed by the issuer's."""
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)]) for common in (subject, issuer)]
    made = (
        x509.CertificateBuilder(issuer_name=names[1], subject_name=names[0], public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        # An hour back: clocks of containers and their hosts differ.
        .not_valid_before(now.astimezone(UTC) - timedelta(hours=1))
        .not_valid_after(now.astimezone(UTC) + VALID_FOR)
    )
    # Python 3.13 and newer refuse a certificate that does not state which key signed it.
    which = (
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
    )
    for extension in (*extensions, *which):
        is_critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        made = made.add_extension(extension, critical=is_critical)
    path.write_bytes(made.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    write_secret(path, pem)
