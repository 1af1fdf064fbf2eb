"""TLS context of a kubeconfig's cluster and user."""

import os
from ssl import CERT_NONE, PROTOCOL_TLS_CLIENT, SSLContext, create_default_context

from controller.kube.kubeconfig import Context


def tls_of(context: Context) -> SSLContext:
    """Context that trusts the cluster's authority, else the system's, and shows the user's certificate.

    Raises CredentialError, OSError (ssl.SSLError among them), UnicodeDecodeError.
    """
    if context.cluster.fields.get("insecure-skip-tls-verify") or context.cluster.text("server").startswith("http://"):
        tls = SSLContext(PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, CERT_NONE
    else:
        tls = create_default_context(cadata=context.cluster.content("certificate-authority").decode() or None)
    certificate = context.user.content("client-certificate")
    if certificate:
        load_certificate(tls, certificate, context.user.content("client-key"))
    return tls


def load_certificate(tls: SSLContext, certificate: bytes, key: bytes) -> None:
    """Show a client certificate on connections made from now on. Both are PEM; the key may stand with the certificate.

    OpenSSL reads files only. Where the system has files in memory, no key is written to a disk.
    """
    content = certificate + b"\n" + key
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("tonnage-client-certificate")
        try:
            os.write(number, content)
            tls.load_cert_chain(f"/proc/self/fd/{number}")
        finally:
            os.close(number)
        return
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        tls.load_cert_chain(file.name)
