"""Kubeconfig files: merged as kubectl merges them, and what a context in them names.

Source: Kubernetes documentation, "Organizing cluster access using kubeconfig files".
"""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from ssl import CERT_NONE, PROTOCOL_TLS_CLIENT, SSLContext, create_default_context
from typing import Any

import yaml

DEFAULT_KUBECONFIG = "~/.kube/config"
DEFAULT_NAMESPACE = "default"
KINDS = ("contexts", "clusters", "users")
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where it is available


class CredentialError(Exception):
    """A kubeconfig, a credential in it, or a pod's service account cannot be used."""


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """One cluster, user or context of a kubeconfig."""

    fields: Mapping[str, Any]
    folder: str = ""
    """Folder of its file: relative paths begin there."""

    def text(self, name: str) -> str:
        """Value of a field, empty when it is absent. Raises CredentialError when it is not text."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, str):
            raise CredentialError(f"{name} should be text")
        return value or ""

    def path(self, name: str) -> str:
        """Path in a field, absolute; empty when it is absent."""
        given = self.text(name)
        return os.path.join(self.folder, given) if given else ""

    def content(self, name: str) -> bytes:
        """Bytes of `NAME-data`, else of the file in `NAME`; empty when both are absent.

        Raises CredentialError, and OSError for a file that cannot be read.
        """
        data, path = self.text(f"{name}-data"), self.path(name)
        if data:
            try:
                return base64.b64decode(data, validate=False)
            except ValueError as error:
                raise CredentialError(f"{name}-data is not base64: {error}") from error
        if not path:
            return b""
        with open(path, "rb") as file:
            return file.read()


@dataclass(frozen=True, slots=True)
class KubeContext:
    """Cluster, user and namespace that a context names."""

    cluster: KubeconfigEntry
    user: KubeconfigEntry
    namespace: str


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """Several files as one: of entries with the same name the first counts, as does the first current context."""

    contexts: Mapping[str, KubeconfigEntry]
    clusters: Mapping[str, KubeconfigEntry]
    users: Mapping[str, KubeconfigEntry]
    current: str

    def context(self, name: str = "") -> KubeContext:
        """Content of a context, by default of the current one. Raises CredentialError."""
        if not (name or self.current):
            raise CredentialError("it has no current-context")
        chosen = _named(self.contexts, name or self.current, "contexts")
        cluster = _named(self.clusters, chosen.text("cluster"), "clusters")
        # As kubectl: a context without a user acts as the anonymous one.
        user = self.users.get(chosen.text("user"), KubeconfigEntry({}))
        return KubeContext(cluster, user, chosen.text("namespace") or DEFAULT_NAMESPACE)


def read_kubeconfig(paths: str) -> Kubeconfig:
    """Content of these files, joined as in KUBECONFIG; those that do not exist are skipped.

    Raises CredentialError, OSError, yaml.YAMLError.
    """
    merged: dict[str, dict[str, KubeconfigEntry]] = {kind: {} for kind in KINDS}
    current = ""
    for path in filter(os.path.exists, files_of(paths)):
        with open(path, encoding="utf-8") as file:
            content = yaml.load(file, Loader=Loader)  # noqa: S506  # a safe loader
        if not isinstance(content, dict):
            raise CredentialError(f"{path}: is not a kubeconfig")
        current = current or str(content.get("current-context") or "")
        folder = os.path.dirname(os.path.abspath(path))
        for kind in KINDS:
            for each in content.get(kind) or ():
                if not (isinstance(each, dict) and isinstance(each.get("name"), str)):
                    raise CredentialError(f"{kind}: an entry has no name")
                fields = each.get(kind.removesuffix("s")) or {}
                if not isinstance(fields, dict):
                    raise CredentialError(f"{kind}: {each['name']} is not a mapping")
                merged[kind].setdefault(each["name"], KubeconfigEntry(fields, folder))
    return Kubeconfig(current=current, **merged)


def files_of(paths: str) -> list[str]:
    """Files of a list as in KUBECONFIG, with the home folder spelled out."""
    return [os.path.expanduser(path) for path in paths.split(os.pathsep) if path]


def default_paths() -> str:
    """Files that kubectl would read, joined as in KUBECONFIG."""
    return os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG


def _named(entries: Mapping[str, KubeconfigEntry], name: str, kind: str) -> KubeconfigEntry:
    if name not in entries:
        raise CredentialError(f"its {kind} have no entry with name {name}")
    return entries[name]


def tls_of(context: KubeContext) -> SSLContext:
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
