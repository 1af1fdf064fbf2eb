"""Where a credential comes from: a token, its file, a plugin, OpenID Connect, a password, a pod's service account."""

import base64
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from controller.kube.kubeconfig import CredentialError, Entry

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


def source_of(user: Entry) -> Sourced:
    """Source of a kubeconfig's user, in the order in which kubectl looks. Raises CredentialError."""
    if user.fields.get("exec"):
        return Sourced(lambda: _from_plugin(user), changes=True, survives_failure=True)
    if user.fields.get("auth-provider"):
        return _of_provider(user.fields["auth-provider"])
    if token := user.text("token"):
        return Sourced(lambda: Credential(f"Bearer {token}"))
    if path := user.path("tokenFile"):
        return token_file(path)
    if name := user.text("username"):
        pair = base64.b64encode(f"{name}:{user.text('password')}".encode()).decode()
        return Sourced(lambda: Credential(f"Basic {pair}"))
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


def _from_plugin(user: Entry) -> Credential:
    """Credential of a plugin. Source: Kubernetes documentation, "client-go credential plugins"."""
    import subprocess

    plugin = Entry(user.fields["exec"], user.folder)
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
    return _answered(done.stdout, version, " ".join(words))


def _answered(answer: bytes, version: str, command: str) -> Credential:
    """Credential in a plugin's answer. Raises CredentialError."""
    try:
        content: Any = json.loads(answer)
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
        words = f"the credential plugin gave no credential; run it to see why: {command}"
        raise CredentialError(words) from error
    return Credential(
        f"Bearer {token}" if token else "", certificate.encode(), key.encode(), _instant(expiry) if expiry else None
    )


def _instant(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time. Raises CredentialError."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, TypeError) as error:
        raise CredentialError(f"exec: expirationTimestamp {text!r} is not a time") from error


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
