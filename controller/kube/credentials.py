"""Address and credentials of a Kubernetes cluster, from a kubeconfig or a pod's service account.

Exec plugins, certificates and tokens mean the same as for kubectl.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext
from threading import Lock
from urllib.parse import urlsplit

from yaml import YAMLError

from cluster.errors import ConfigError, Mistake
from controller.kube.credential_sources import Credential, Sourced, source_of, token_file
from controller.kube.kubeconfig import (
    DEFAULT_NAMESPACE,
    Context,
    CredentialError,
    Entry,
    default_paths,
    files_of,
    read_kubeconfig,
)
from controller.kube.tls import load_certificate, tls_of

POD_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
TOKEN_FOR_S = 60.0
"""Time after which a token is read again from its file or plugin; a plugin that reports an expiry is run again only
then. One minute, because the kubelet replaces a pod's token when a fifth of its lifetime remains: two minutes or
more."""


@dataclass(frozen=True, slots=True)
class Access:
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


@dataclass(frozen=True, slots=True)
class Server:
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

    def __init__(self, server: Server, source: Sourced, clock: Callable[[], float]) -> None:
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
                self._renew()
            return self._credential.authorization

    def _renew(self) -> None:
        try:
            self._take(self._source.read())
        except (CredentialError, OSError):
            if not self._source.survives_failure:
                raise
        self._read_at_s = self._clock()

    def _take(self, credential: Credential) -> None:
        if credential.certificate and credential.certificate != self._credential.certificate:
            load_certificate(self.server.tls, credential.certificate, credential.key)
        self._credential = credential


def credentials(access: Access, clock: Callable[[], float]) -> Credentials:
    """Credentials that `access` names. Raises ConfigError.

    clock: monotonic, seconds; decides when a token is read again.
    """
    try:
        if not access.kubeconfig and not access.context and "KUBERNETES_SERVICE_HOST" in os.environ:
            return _of_pod(access, clock)
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


def _of_kubeconfig(access: Access, clock: Callable[[], float]) -> Credentials:
    paths = access.kubeconfig or default_paths()
    _check_there(paths)
    context = read_kubeconfig(paths).context(access.context)
    host = context.cluster.text("server").rstrip("/")
    if not urlsplit(host).hostname:
        raise CredentialError(f"the cluster's server {host!r} is not a URL")
    proxy = context.cluster.text("proxy-url") or proxy_to(host)
    name = context.cluster.text("tls-server-name")
    server = Server(host, tls_of(context), name, proxy, context.namespace)
    return Credentials(server, source_of(context.user), clock)


def _of_pod(access: Access, clock: Callable[[], float]) -> Credentials:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = Entry({"server": url, "certificate-authority": f"{access.service_account}/ca.crt"})
    tls = tls_of(Context(cluster, Entry({}), ""))
    server = Server(url, tls, "", proxy_to(url), _namespace_of_pod())
    return Credentials(server, token_file(f"{access.service_account}/token"), clock)


def _check_there(paths: str) -> None:
    """Raises ConfigError when none of these files exists. paths: joined as in KUBECONFIG."""
    files = files_of(paths)
    if not any(map(os.path.exists, files)):
        remedy = "give --kubeconfig or set KUBECONFIG; no cluster? start one here: tonnage controlplane up"
        raise ConfigError(Mistake("--kubeconfig", f"no kubeconfig found (looked at {', '.join(files)})", remedy))


def _namespace_of_pod() -> str:
    try:
        with open(POD_NAMESPACE_FILE, encoding="utf-8") as file:
            return file.read().strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE
