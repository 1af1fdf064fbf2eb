"""Address and credentials of a Kubernetes cluster, from a kubeconfig or a pod's service account.

Files are merged, and exec plugins, certificates and tokens used, as by kubectl. Source: Kubernetes documentation,
"Organizing cluster access using kubeconfig files".
"""

import base64
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from ssl import CERT_NONE, PROTOCOL_TLS_CLIENT, SSLContext, create_default_context
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import yaml
from yaml import YAMLError

from cluster.clock import Clock
from cluster.errors import ConfigError, Mistake
from cluster.version import VERSION

DEFAULT_KUBECONFIG = "~/.kube/config"
DEFAULT_NAMESPACE = "default"
ENTRY_KINDS = ("contexts", "clusters", "users")
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
    merged: dict[str, dict[str, KubeconfigEntry]] = {kind: {} for kind in ENTRY_KINDS}
    current = ""
    for path in filter(os.path.exists, files_of(paths)):
        with open(path, encoding="utf-8") as file:
            content = yaml.load(file, Loader=Loader)  # noqa: S506  # a safe loader
        if not isinstance(content, dict):
            raise CredentialError(f"{path}: is not a kubeconfig")
        current = current or str(content.get("current-context") or "")
        folder = os.path.dirname(os.path.abspath(path))
        for kind in ENTRY_KINDS:
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


EARLY_S = 300.0
"""Time before its expiry at which a credential counts as expired. Chosen: clocks differ, and requests take time."""
PLUGIN_KIND = "ExecCredential"
LOG_IN = "log in again, or use its credential plugin (exec)"
SYSTEM_AUTHORITIES = ssl.get_default_verify_paths().cafile or ""


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request is authenticated by. Not for printing."""

    authorization: str = ""
    """Authorization header; empty: none."""
    certificate: bytes = b""
    """Client certificate and its key, PEM, where a plugin gave them."""
    key: bytes = b""
    expires_at_s: float | None = None
    """Expiry, seconds since the epoch; None: unknown."""

    def is_expired(self) -> bool:
        return self.expires_at_s is None or self.expires_at_s - EARLY_S <= time.time()


Source = Callable[[], Credential]
"""Reads a credential. Raises CredentialError or OSError."""


@dataclass(frozen=True, slots=True)
class Sourced:
    """A source, and how its credentials age."""

    read: Source
    changes: bool = False
    """Whether a later read may give another credential."""
    survives_failure: bool = False
    """Whether the last credential stays in use when a later read fails."""


def source_of(user: KubeconfigEntry) -> Sourced:
    """Source of a kubeconfig's user, in the order in which kubectl looks. Raises CredentialError."""
    if user.fields.get("exec"):
        return Sourced(partial(_from_plugin, user), changes=True, survives_failure=True)
    if user.fields.get("auth-provider"):
        return _of_provider(user.fields["auth-provider"])
    if token := user.text("token"):
        return Sourced(partial(Credential, f"Bearer {token}"))
    if path := user.path("tokenFile"):
        return token_file(path)
    if name := user.text("username"):
        pair = base64.b64encode(f"{name}:{user.text('password')}".encode()).decode()
        return Sourced(partial(Credential, f"Basic {pair}"))
    return Sourced(Credential)


def token_file(path: str) -> Sourced:
    """Token in a file that is replaced while the process runs."""

    def read() -> Credential:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
        if not token:
            raise CredentialError(f"{path}: the token is empty")
        return Credential(f"Bearer {token}")

    return Sourced(read, changes=True)


def _from_plugin(user: KubeconfigEntry) -> Credential:
    """Credential of a plugin. Source: Kubernetes documentation, "client-go credential plugins"."""
    import subprocess
    from datetime import datetime

    plugin = KubeconfigEntry(user.fields["exec"], user.folder)
    command, version = plugin.text("command"), plugin.text("apiVersion")
    if not (command and version):
        raise CredentialError("exec: command and apiVersion are needed")
    command = plugin.path("command") if os.sep in command else command
    words = [command, *map(str, plugin.fields.get("args") or ())]
    extra = {str(each["name"]): str(each["value"]) for each in plugin.fields.get("env") or ()}
    interactive = plugin.text("interactiveMode") != "Never" and os.isatty(0)
    info = {"apiVersion": version, "kind": PLUGIN_KIND, "spec": {"interactive": interactive}}
    try:
        done = subprocess.run(  # noqa: S603  # the user's own kubeconfig names it
            words,
            env={**os.environ, **extra, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        hint = plugin.text("installHint")
        raise CredentialError(f"exec: {command}: {error.strerror or error}{f'; {hint}' if hint else ''}") from error
    command = " ".join(words)
    try:
        content: Any = json.loads(done.stdout)
        status: Mapping[str, Any] = content["status"]
        token, certificate, key = (
            status.get(name) or "" for name in ("token", "clientCertificateData", "clientKeyData")
        )
        expiry = status.get("expirationTimestamp")
        if content["apiVersion"] != version:
            raise CredentialError(f"exec: {command} answers in {content['apiVersion']}, and {version} was asked for")
        if not token and not (certificate and key):
            raise KeyError("token")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CredentialError(f"the credential plugin gave no credential; run it to see why: {command}") from error
    try:
        expires_at_s = datetime.fromisoformat(expiry).timestamp() if expiry else None
    except (ValueError, TypeError) as error:
        raise CredentialError(f"exec: expirationTimestamp {expiry!r} is not a time") from error
    return Credential(f"Bearer {token}" if token else "", certificate.encode(), key.encode(), expires_at_s)


def _of_provider(provider: Mapping[str, Any]) -> Sourced:
    """Source of a user with an `auth-provider`; of those only `oidc` is left in Kubernetes. Raises CredentialError.

    The official client reads and renews its token; a renewed one is kept in memory and not written to the file.
    """
    if (name := provider.get("name")) != "oidc":
        raise CredentialError(f"auth-provider {name} was removed from Kubernetes; use its credential plugin (exec)")
    config = dict(provider.get("config") or {})
    if not config.keys() & {"idp-certificate-authority", "idp-certificate-authority-data"}:
        # Without an authority, the client would talk to the issuer unverified.
        config["idp-certificate-authority"] = SYSTEM_AUTHORITIES
    user = {"auth-provider": {**provider, "config": config}}
    kubeconfig = {
        "current-context": "provider",
        "contexts": [{"name": "provider", "context": {"cluster": "provider", "user": "provider"}}],
        "clusters": [{"name": "provider", "cluster": {"server": "https://provider"}}],
        "users": [{"name": "provider", "user": user}],
    }

    def read() -> Credential:
        # 0.3 s and 126 MB that only such a user needs.
        from kubernetes.client import Configuration
        from kubernetes.config.config_exception import ConfigException
        from kubernetes.config.kube_config import KubeConfigLoader
        from oauthlib.oauth2 import OAuth2Error
        from urllib3.exceptions import HTTPError

        found = Configuration()
        try:
            KubeConfigLoader(kubeconfig).load_and_set(found)
        except (ConfigException, HTTPError, OAuth2Error, ImportError, OSError, LookupError, ValueError) as error:
            raise CredentialError(f"oidc: {error}; {LOG_IN}") from error
        if not (token := found.api_key.get("BearerToken")):
            raise CredentialError(f"oidc: the id-token is no JWT; {LOG_IN}")
        return Credential(str(token))

    return Sourced(read, changes=True, survives_failure=True)


POD_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
TOKEN_FOR_S = 60.0
"""Time after which a token is read again from its file or plugin; a plugin that reports an expiry is run again only
then. One minute, because the kubelet replaces a pod's token when a fifth of its lifetime remains: two minutes or
more."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Choice of cluster and user, and the timeouts of its requests."""

    kubeconfig: str = ""
    """Path of a kubeconfig, or several joined as in KUBECONFIG. Empty: the service account of the pod in which this
    process runs; outside a pod, the file that kubectl would read."""
    context: str = ""
    """Context of the kubeconfig; empty: the current one."""
    service_account: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    """Folder of the pod's token and of the API server's certificate, as the kubelet mounts it."""
    impersonate: str = ""
    """User to impersonate (`kubectl --as`); empty: none."""
    impersonate_groups: tuple[str, ...] = ()
    """Groups to impersonate (`kubectl --as-group`); only with `impersonate`."""
    impersonate_uid: str = ""
    """Uid to impersonate (`kubectl --as-uid`); only with `impersonate`."""
    connect_timeout_s: float = 5.0
    """Timeout of connecting, 1 to 60. Chosen: a live server accepts within a round trip; a load balancer without a live
    server behind it never does."""
    request_timeout_s: float = 30.0
    """Timeout of every request but watches, 1 to 300; 0: none, as kubectl's --request-timeout=0. Chosen: half of the
    API server's own limit; a list of 60,000 pods takes a tenth of it."""

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Headers that all requests have, those of user impersonation among them.

        Source: Kubernetes documentation, "User impersonation".
        """
        # Uncompressed: compressing a list costs the server more than sending it costs a datacenter network.
        headers = [("Accept-Encoding", "identity"), ("User-Agent", f"tonnage/{VERSION}")]
        if not self.impersonate:
            return headers
        uid = [("Impersonate-Uid", self.impersonate_uid)] if self.impersonate_uid else []
        groups = [("Impersonate-Group", group) for group in self.impersonate_groups]
        return [*headers, ("Impersonate-User", self.impersonate), *groups, *uid]


@dataclass(frozen=True, slots=True)
class ApiServerAddress:
    """Address of an API server, and how to reach it."""

    host: str
    """URL without a path."""
    tls: SSLContext
    tls_server_name: str
    """Name that its certificate is checked against; empty: that of the URL."""
    proxy: str | None
    """URL of the proxy; None: none."""
    namespace: str
    """Namespace of the kubeconfig's context, or of the pod in which this process runs."""


class Credentials:
    """Server of an `Access`, and the credential that is current. Not for printing: it holds tokens."""

    def __init__(self, server: ApiServerAddress, source: Sourced, clock: Clock) -> None:
        """clock: monotonic, seconds; decides when a credential is read again. Raises CredentialError, OSError."""
        self.server = server
        self._source = source
        self._clock = clock
        self._renewing = Lock()
        self._read_at_s = clock()
        self._credential = Credential()
        self._take(source.read())

    @property
    def is_due(self) -> bool:
        """Whether `authorization` would read the credential again, which may run a plugin."""
        is_old = self._clock() - self._read_at_s >= TOKEN_FOR_S
        return self._source.changes and is_old and self._credential.is_expired()

    def authorization(self) -> str:
        """Authorization header of a request now; empty: none. Raises CredentialError, OSError."""
        with self._renewing:
            if self.is_due:
                try:
                    self._take(self._source.read())
                except (CredentialError, OSError):
                    if not self._source.survives_failure:
                        raise
                self._read_at_s = self._clock()
            return self._credential.authorization

    def _take(self, credential: Credential) -> None:
        if credential.certificate and credential.certificate != self._credential.certificate:
            load_certificate(self.server.tls, credential.certificate, credential.key)
        self._credential = credential


def credentials(access: ApiAccess, clock: Clock) -> Credentials:
    """Credentials that `access` names. Raises ConfigError.

    clock: monotonic, seconds; decides when a token is read again.
    """
    try:
        if not access.kubeconfig and not access.context and "KUBERNETES_SERVICE_HOST" in os.environ:
            host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
            url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
            cluster = KubeconfigEntry({"server": url, "certificate-authority": f"{access.service_account}/ca.crt"})
            try:
                with open(POD_NAMESPACE_FILE, encoding="utf-8") as file:
                    namespace = file.read().strip() or DEFAULT_NAMESPACE
            except OSError:
                namespace = DEFAULT_NAMESPACE
            server = ApiServerAddress(
                url, tls_of(KubeContext(cluster, KubeconfigEntry({}), "")), "", proxy_to(url), namespace
            )
            return Credentials(server, token_file(f"{access.service_account}/token"), clock)
        return _of_kubeconfig(access, clock)
    except (CredentialError, OSError, YAMLError, ValueError, TypeError, AttributeError) as error:
        # Files of people: a value of another type than expected shows as any of the last three.
        remedy = "check --kubeconfig and --context, or kubectl config view"
        words = " ".join(str(error).split())
        raise ConfigError(Mistake(access.kubeconfig or "kubeconfig", f"cannot be used: {words}", remedy)) from error


def context_names(kubeconfig: str = "") -> list[str]:
    """Contexts of a kubeconfig, of the one that kubectl would read when none is given. Raises as `read_kubeconfig`."""
    return list(read_kubeconfig(kubeconfig or default_paths()).contexts)


def proxy_to(url: str) -> str | None:
    """Proxy for a server according to the environment (HTTPS_PROXY, NO_PROXY and the like), as kubectl reads it."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    server = urlsplit(url)
    found = getproxies().get(server.scheme)
    return found if found and not proxy_bypass(server.netloc) else None


def _of_kubeconfig(access: ApiAccess, clock: Clock) -> Credentials:
    paths = access.kubeconfig or default_paths()
    files = files_of(paths)
    if not any(map(os.path.exists, files)):
        remedy = "give --kubeconfig or set KUBECONFIG; no cluster? start one here: tonnage controlplane up"
        raise ConfigError(Mistake("--kubeconfig", f"no kubeconfig found (looked at {', '.join(files)})", remedy))
    context = read_kubeconfig(paths).context(access.context)
    host = context.cluster.text("server").rstrip("/")
    if not urlsplit(host).hostname:
        raise CredentialError(f"the cluster's server {host!r} is not a URL")
    proxy = context.cluster.text("proxy-url") or proxy_to(host)
    name = context.cluster.text("tls-server-name")
    server = ApiServerAddress(host, tls_of(context), name, proxy, context.namespace)
    return Credentials(server, source_of(context.user), clock)
