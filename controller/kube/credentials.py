"""Who one is for a Kubernetes cluster, and how it is reached: what a kubeconfig or a pod's service account says.

The official client does the reading, so that exec plugins, certificates and tokens mean what they mean to kubectl.
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
POD_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


@dataclass(frozen=True, slots=True)
class Access:
    """Which cluster, as whom, and how long an answer may take."""

    kubeconfig: str = ""
    """A file, or several joined as in KUBECONFIG; empty: the service account of the pod that this runs in, or where
    there is none the file that kubectl would read."""
    context: str = ""
    """Of the kubeconfig; empty: its current one."""
    service_account: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    """Folder of the pod's token and of the certificate of its API server, as the kubelet mounts it."""
    impersonate: str = ""
    """Act as this user (`kubectl --as`); empty: as oneself."""
    impersonate_groups: tuple[str, ...] = ()
    """As a member of these groups (`kubectl --as-group`); only beside `impersonate`."""
    impersonate_uid: str = ""
    """With this uid (`kubectl --as-uid`); only beside `impersonate`."""
    connect_timeout_s: float = 5.0
    """1 to 60. Chosen: a server that is there accepts within a round trip; a load balancer without one behind it waits
    for ever."""
    request_timeout_s: float = 30.0
    """1 to 300; 0: no limit, as kubectl's --request-timeout=0. For everything but watches. Chosen: half of the API
    server's own limit, and a list of 60,000 pods takes a tenth of it."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What an `Access` comes to. Not for printing: it holds tokens."""

    configuration: Configuration
    """Host, proxy, and the token as it is now."""
    tls: SSLContext
    """As the library makes it of the configuration."""
    namespace: str
    """Where the context of the kubeconfig, or the pod that this runs in, is at home."""


async def credentials(access: Access, clock: Callable[[], float]) -> Credentials:
    """Read what `access` names. Raises ConfigError.

    clock: monotonic, seconds; tells when a token is read again.
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
        # The loader lets whatever a malformed file leads to escape, so these names are all it takes.
        remedy = "check --kubeconfig and --context, or kubectl config view"
        words = " ".join(str(error).split())
        raise ConfigError(Mistake(access.kubeconfig or "kubeconfig", f"cannot be used: {words}", remedy)) from error


def proxy_to(url: str) -> str | None:
    """The proxy that the environment names for a server (HTTPS_PROXY, NO_PROXY and their like), as kubectl reads it."""
    server = urlsplit(url)
    found = getproxies().get(server.scheme)
    return found if found and not proxy_bypass(server.netloc) else None


TOKEN_FOR_S = 60.0
"""How long a token is used before its file or plugin is asked again; plugins that tell an expiry are asked only then.
A minute: the kubelet replaces a pod's token when a fifth of its life is left, which is two minutes at the least."""


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
    """Fills in the configuration; the namespace of the context."""
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


def _namespace_of_pod() -> str:
    try:
        return Path(POD_NAMESPACE_FILE).read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


def _check_plugin(loader: Any, configuration: Configuration) -> None:
    """The library logs that a credential plugin failed and goes on without a credential, as nobody.

    Raises ConfigException.
    """
    user = loader._user  # its only trace of what the kubeconfig says
    has_credential = configuration.api_key.get("BearerToken") or configuration.cert_file
    if user and "exec" in user and not has_credential:
        command = " ".join([user["exec"]["command"], *(user["exec"].safe_get("args") or ())])
        raise ConfigException(f"the credential plugin gave no credential; run it to see why: {command}")
