"""Address and credentials of a Kubernetes cluster, from a kubeconfig or a pod's service account.

The official client reads them, so that exec plugins, certificates and tokens mean the same as for kubectl.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from yaml import YAMLError

from cluster.errors import ConfigError, Mistake
from controller.kube.library import (
    ConfigException,
    Configuration,
    InClusterConfigLoader,
    RESTClientObject,
    load_kube_config,
)

DEFAULT_NAMESPACE = "default"
DEFAULT_KUBECONFIG = "~/.kube/config"
POD_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


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
class Credentials:
    """Resolved `Access`. Not for printing: it holds tokens."""

    configuration: Configuration
    """Host, proxy and current token."""
    tls: SSLContext
    """TLS context that the library builds from the configuration."""
    namespace: str
    """Namespace of the kubeconfig's context, or of the pod in which this process runs."""


async def credentials(access: Access, clock: Callable[[], float]) -> Credentials:
    """Credentials that `access` names. Raises ConfigError.

    clock: monotonic, seconds; decides when a token is read again.
    """
    configuration = Configuration()
    try:
        if not access.kubeconfig and not access.context and "KUBERNETES_SERVICE_HOST" in os.environ:
            _load_service_account(configuration, access, clock)
            namespace = _namespace_of_pod()
        else:
            namespace = await _load_kubeconfig(configuration, access, clock)
        configuration.proxy = configuration.proxy or proxy_to(configuration.host)
        return Credentials(configuration, RESTClientObject(configuration).ssl_context, namespace)
    except (ConfigException, OSError, YAMLError, ValueError, TypeError, AttributeError) as error:
        # The loader does not catch the exceptions of a malformed file; these are all that were observed.
        remedy = "check --kubeconfig and --context, or kubectl config view"
        words = " ".join(str(error).split())
        raise ConfigError(Mistake(access.kubeconfig or "kubeconfig", f"cannot be used: {words}", remedy)) from error


def proxy_to(url: str) -> str | None:
    """Proxy for a server according to the environment (HTTPS_PROXY, NO_PROXY and the like), as kubectl reads it."""
    server = urlsplit(url)
    found = getproxies().get(server.scheme)
    return found if found and not proxy_bypass(server.netloc) else None


TOKEN_FOR_S = 60.0
"""Time after which a token is read again from its file or plugin; a plugin that reports an expiry is run again only
then. One minute, because the kubelet replaces a pod's token when a fifth of its lifetime remains: two minutes or
more."""


def _load_service_account(configuration: Configuration, access: Access, clock: Callable[[], float]) -> None:
    folder = access.service_account
    loader = InClusterConfigLoader(f"{folder}/token", f"{folder}/ca.crt", try_refresh_token=False)
    loader.load_and_set(configuration)
    read_at_s = clock()

    def refresh(_: Configuration) -> None:
        nonlocal read_at_s
        if clock() - read_at_s >= TOKEN_FOR_S:
            loader.load_and_set(configuration)
            read_at_s = clock()

    configuration.refresh_api_key_hook = refresh


async def _load_kubeconfig(configuration: Configuration, access: Access, clock: Callable[[], float]) -> str:
    """Fill in the configuration; returns the namespace of the context."""
    _check_there(access.kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG)
    loader = await load_kube_config(
        config_file=access.kubeconfig or None,
        context=access.context or None,
        client_configuration=configuration,
        persist_config=False,
    )
    _check_plugin(loader, configuration)
    read_at_s = clock()

    async def refresh(_: Configuration) -> None:
        nonlocal read_at_s
        if clock() - read_at_s >= TOKEN_FOR_S:
            read_at_s = clock()
            await loader.load_and_set(configuration)

    configuration.refresh_api_key_hook = refresh
    context = loader.current_context["context"]
    return str(context["namespace"]) if "namespace" in context else DEFAULT_NAMESPACE


def _check_there(paths: str) -> None:
    """Raises ConfigError when none of these files exists. paths: joined as in KUBECONFIG."""
    files = [os.path.expanduser(path) for path in paths.split(os.pathsep) if path]
    if not any(map(os.path.exists, files)):
        remedy = "give --kubeconfig or set KUBECONFIG; no cluster? start one here: tonnage controlplane up"
        raise ConfigError(Mistake("--kubeconfig", f"no kubeconfig found (looked at {', '.join(files)})", remedy))


def _namespace_of_pod() -> str:
    try:
        return Path(POD_NAMESPACE_FILE).read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


def _check_plugin(loader: Any, configuration: Configuration) -> None:
    """Raises ConfigException when a credential plugin gave no credential.

    The library only logs that, and continues as the anonymous user.
    """
    user = loader._user  # the library offers the user's entry nowhere else
    has_credential = configuration.api_key.get("BearerToken") or configuration.cert_file
    if user and "exec" in user and not has_credential:
        command = " ".join([user["exec"]["command"], *(user["exec"].safe_get("args") or ())])
        raise ConfigException(f"the credential plugin gave no credential; run it to see why: {command}")
