"""Where a credential comes from: a token, its file, a plugin, OpenID Connect, a password, a pod's service account."""

import base64
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from controller.kube.kubeconfig import CredentialError, Entry

EARLY_S = 300.0
"""Time before its expiry at which a credential counts as expired. Chosen: clocks differ, and requests take time."""
PLUGIN_KIND = "ExecCredential"
OIDC_WITHIN_S = 30.0


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


def _of_provider(provider: Any) -> Sourced:
    """Source of a user with an `auth-provider`; of those only `oidc` is left in Kubernetes. Raises CredentialError."""
    name = provider.get("name")
    if name != "oidc":
        raise CredentialError(f"auth-provider {name} was removed from Kubernetes; use its credential plugin (exec)")
    return Sourced(lambda: _from_oidc(provider.get("config") or {}), changes=True, survives_failure=True)


def _from_oidc(config: Mapping[str, str]) -> Credential:
    """ID token of the configuration, or a new one by its refresh token. Nothing is written back to the file."""
    token = config.get("id-token") or ""
    expiry = _expiry_of(token) if token else 0.0
    if token and (expiry is None or expiry - EARLY_S > time.time()):
        return Credential(f"Bearer {token}", expires_at_s=expiry)
    if not config.get("refresh-token"):
        raise CredentialError("oidc: the id-token is expired, and there is no refresh-token; log in again")
    token = _refreshed(config)
    return Credential(f"Bearer {token}", expires_at_s=_expiry_of(token))


def _expiry_of(token: str) -> float | None:
    """Expiry of a JWT, seconds since the epoch; None when it has none. Source: RFC 7519, section 4.1.4."""
    parts = token.split(".")
    if len(parts) != 3:
        raise CredentialError("oidc: the id-token is not a JWT")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"]) if "exp" in claims else None
    except (ValueError, TypeError) as error:
        raise CredentialError(f"oidc: the id-token cannot be read: {error}") from error


def _refreshed(config: Mapping[str, str]) -> str:
    """New ID token. Source: OpenID Connect Core 1.0, section 12; Discovery 1.0, section 4."""
    import ssl
    from urllib.parse import urlencode
    from urllib.request import Request, urlopen

    issuer = (config.get("idp-issuer-url") or "").rstrip("/")
    if not issuer.startswith("https://"):
        raise CredentialError("oidc: idp-issuer-url should begin with https://")
    data = config.get("idp-certificate-authority-data")
    tls = ssl.create_default_context(
        cafile=config.get("idp-certificate-authority"), cadata=base64.b64decode(data).decode() if data else None
    )
    pair = f"{config.get('client-id', '')}:{config.get('client-secret', '')}"
    headers = {"Accept": "application/json", "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def asked(url: str, form: Mapping[str, str] | None = None) -> Any:
        request = Request(url, urlencode(form).encode() if form else None, headers)  # noqa: S310  # https only
        with urlopen(request, timeout=OIDC_WITHIN_S, context=tls) as answer:  # noqa: S310
            return json.loads(answer.read())

    try:
        endpoint = asked(f"{issuer}/.well-known/openid-configuration")["token_endpoint"]
        if not str(endpoint).startswith("https://"):
            raise CredentialError("oidc: the token endpoint should begin with https://")
        form = {"grant_type": "refresh_token", "refresh_token": config["refresh-token"]}
        return str(asked(endpoint, form)["id_token"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CredentialError(f"oidc: {issuer} gave no new id-token: {error}") from error
