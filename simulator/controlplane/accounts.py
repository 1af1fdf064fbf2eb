"""Accounts of a local control plane: static tokens, and a kubeconfig for each."""

import base64
import json
import secrets
from collections.abc import Mapping

from simulator.controlplane.folder import AUTHORITY, Folder, write_secret

ADMIN = "admin"
SCHEDULER = "kube-scheduler"
CONTROLLERS = "kube-controller-manager"
NODES = "simulated-nodes"

GROUPS: Mapping[str, str] = {ADMIN: "system:masters", NODES: "system:masters"}
"""Groups of accounts. The simulated nodes are all kubelets in one process; rights of single nodes would need an
account for each."""

USERS: Mapping[str, str] = {
    ADMIN: ADMIN,
    NODES: NODES,
    # Names that the API server's own roles are bound to.
    SCHEDULER: "system:kube-scheduler",
    CONTROLLERS: "system:kube-controller-manager",
}


def write_accounts(folder: Folder, server: str) -> None:
    """Writes tokens, created once, and kubeconfigs, written at every start because the port may have changed."""
    tokens = _tokens(folder)
    authority = (folder.pki / f"{AUTHORITY}.crt").read_bytes()
    for account, token in tokens.items():
        path = folder.kubeconfig if account == ADMIN else folder.kubeconfig_of(account)
        write_secret(path, kubeconfig(server, authority, account, token))


def token_of(account: str, folder: Folder) -> str:
    return _tokens(folder)[account]


def kubeconfig(server: str, authority: bytes, user: str, token: str) -> bytes:
    """Self-contained kubeconfig. JSON is YAML, and kubectl writes YAML back when it changes it."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tonnage",
        "clusters": [{"name": "tonnage", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "tonnage", "context": {"cluster": "tonnage", "user": user, "namespace": "default"}}],
    }
    return json.dumps(config, indent=1).encode()


def _tokens(folder: Folder) -> dict[str, str]:
    """Token by account, from the last start when there was one."""
    if not folder.tokens.exists():
        made = {account: secrets.token_urlsafe(32) for account in USERS}
        lines = [f'{token},{USERS[account]},{account},"{GROUPS.get(account, "")}"' for account, token in made.items()]
        write_secret(folder.tokens, "".join(f"{line}\n" for line in lines).encode())
        return made
    lines = folder.tokens.read_text(encoding="utf-8").splitlines()
    return {account: token for token, _, account, _ in (line.split(",") for line in lines)}
