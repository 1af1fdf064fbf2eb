"""Kubeconfigs and the users in them, read as kubectl reads them."""

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.errors import ConfigError
from controller.kube.credentials import (
    ApiAccess,
    CredentialError,
    KubeconfigEntry,
    context_names,
    credentials,
    read_kubeconfig,
    source_of,
)
from tests.builders.certificates import Authority
from tests.clock import HandClock
from tests.unit.controller.kube.fake_api_server import kubeconfig


def written(path: Path, current: str = "", **entries: dict[str, Any]) -> str:
    """A kubeconfig with these clusters, users and contexts by name."""
    lists = {
        kind: [{"name": name, kind.removesuffix("s"): each} for name, each in entries.get(kind, {}).items()]
        for kind in ("clusters", "users", "contexts")
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({**lists, **({"current-context": current} if current else {})}), encoding="utf-8")
    return str(path)


def test_of_several_files_the_first_entry_of_a_name_counts_and_the_first_current_context(tmp_path: Path) -> None:
    first = written(tmp_path / "a", clusters={"c": {"server": "https://first"}})
    second = written(
        tmp_path / "b",
        "two",
        clusters={"c": {"server": "https://second"}},
        contexts={"two": {"cluster": "c", "namespace": "ns"}},
    )
    third = written(tmp_path / "c", "three", contexts={"three": {"cluster": "c"}})

    found = read_kubeconfig(os.pathsep.join([first, str(tmp_path / "missing"), second, third]))

    assert found.context().cluster.text("server") == "https://first"
    assert found.context().namespace == "ns"
    assert found.context("three").namespace == "default"
    assert context_names(os.pathsep.join([second, third])) == ["two", "three"]


def test_a_relative_path_begins_at_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "token").write_text("secret\n", encoding="utf-8")
    where = written(
        tmp_path / "deep" / "config",
        "x",
        clusters={"c": {"server": "http://h"}},
        users={"u": {"tokenFile": "token"}},
        contexts={"x": {"cluster": "c", "user": "u"}},
    )

    assert credentials(ApiAccess(kubeconfig=where), HandClock()).authorization() == "Bearer secret"


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({}, ""),
        ({"token": "t", "tokenFile": "/nowhere"}, "Bearer t"),
        ({"username": "jo", "password": "pw"}, f"Basic {base64.b64encode(b'jo:pw').decode()}"),
    ],
    ids=["nobody", "a token before its file", "a password"],
)
def test_a_user_is_authenticated_as_by_kubectl(user: dict[str, Any], header: str) -> None:
    assert source_of(KubeconfigEntry(user)).read().authorization == header


def test_certificates_in_the_file_itself_are_used(tmp_path: Path) -> None:
    own = Authority(tmp_path / "pki").vouches_for("jo")
    data = {
        "client-certificate-data": base64.b64encode(own.certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(own.key.read_bytes()).decode(),
    }
    assert credentials(ApiAccess(kubeconfig=kubeconfig(tmp_path, "https://h", **data)), HandClock()).server.tls

    other = Authority(tmp_path / "other").vouches_for("al").key.read_bytes()
    data["client-key-data"] = base64.b64encode(other).decode()
    with pytest.raises(ConfigError, match="cannot be used"):  # a key of somebody else
        credentials(ApiAccess(kubeconfig=kubeconfig(tmp_path, "https://h", **data)), HandClock())


def jwt(expires_at_s: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires_at_s}).encode()).decode().rstrip("=")
    return f"e30.{claims}.sig"


def oidc(**config: str) -> KubeconfigEntry:
    return KubeconfigEntry({"auth-provider": {"name": "oidc", "config": config}})


def test_an_id_token_is_used_until_it_expires() -> None:
    token = jwt(time.time() + 3600.0)

    assert source_of(oidc(**{"id-token": token})).read().authorization == f"Bearer {token}"
    with pytest.raises(CredentialError, match="log in again"):
        source_of(oidc(**{"id-token": jwt(time.time() - 1.0)})).read()


def test_a_plugin_that_is_not_installed_is_named_with_the_hint_of_the_file(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "no-such-plugin",
        "installHint": "brew install it",
    }
    where = kubeconfig(tmp_path, "http://h", exec=plugin)

    with pytest.raises(ConfigError, match="no-such-plugin: No such file or directory; brew install it"):
        credentials(ApiAccess(kubeconfig=where), HandClock())


def test_a_provider_that_kubernetes_removed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="auth-provider gcp was removed from Kubernetes"):
        credentials(
            ApiAccess(kubeconfig=kubeconfig(tmp_path, "http://h", **{"auth-provider": {"name": "gcp"}})), HandClock()
        )


def test_a_server_that_is_no_url_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'nonsense' is not a URL"):
        credentials(ApiAccess(kubeconfig=kubeconfig(tmp_path, "nonsense")), HandClock())
