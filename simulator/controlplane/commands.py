"""Files, accounts and command lines of a control plane's processes."""

import base64
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from simulator.controlplane.binaries import Programs

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

AUTHORITY, SERVER, ACCOUNTS = "ca", "server", "service-accounts"
"""Names of the pairs of key and certificate in `pki`: the authority, the certificate of every server, and the key
that signs service accounts' tokens."""

FRONT_AUTHORITY, FRONT = "front-ca", "front-proxy-client"
"""The same of the aggregation layer: its authority, and the certificate with which the API server proves itself to
aggregated API servers."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Folder of all files that one control plane writes; other users may not read it."""

    path: Path

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the administrator."""
        return self.path / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.path / "pki"

    @property
    def tokens(self) -> Path:
        """Static tokens in the format of --token-auth-file."""
        return self.path / "tokens.csv"

    @property
    def etcd(self) -> Path:
        """Data of etcd, which is the cluster's state."""
        return self.path / "etcd"

    @property
    def run(self) -> Path:
        """Records of started processes."""
        return self.path / "run"

    @property
    def nodes_ready(self) -> Path:
        """File that exists once all simulated nodes are registered."""
        return self.run / "nodes-ready"

    @property
    def state(self) -> Path:
        """Ports and settings of the last start."""
        return self.path / "state.json"

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    def kubeconfig_of(self, component: str) -> Path:
        return self.path / "kubeconfigs" / component

    def log_of(self, process: str) -> Path:
        return self.path / "logs" / f"{process}.log"

    def make(self) -> None:
        """Creates the folders that processes write into."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (self.pki, self.run, self.log_of("any").parent, self.kubeconfig_of("any").parent):
            folder.mkdir(exist_ok=True)


def default_folder() -> Path:
    """Folder where `tonnage controlplane` keeps its cluster by default."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tonnage" / "controlplane"


def write_secret(path: Path, content: bytes) -> None:
    """Writes a file atomically, and never readable by others, not even for a moment."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    unfinished.rename(path)


HOST = "127.0.0.1"
"""Address of every listener: loopback only."""

ETCD, API_SERVER = "etcd", "kube-apiserver"

SERVERS = (ETCD, API_SERVER, SCHEDULER, CONTROLLERS)
"""Servers in the order of their start; they stop in the reverse order."""

PROCESSES = (*SERVERS, NODES)


@dataclass(frozen=True, slots=True)
class Ports:
    """Port of each listener."""

    etcd: int
    etcd_peer: int
    api: int
    scheduler: int
    controllers: int


@dataclass(frozen=True, slots=True)
class ControlPlaneSettings:
    """Settings of a control plane."""

    nodes: int = 0
    """Number of simulated nodes; none by default: no pod then becomes Running, which suits tests of the API alone."""
    seed: int = 0
    """Seed of the generated fleet."""
    dra_driver: str = ""
    """DRA driver that publishes the generated nodes' GPUs in ResourceSlices; empty: nodes count them as
    nvidia.com/gpu."""
    manifests: str = ""
    """File of Node manifests to simulate instead."""
    lease_s: int = 40
    """Duration of a simulated node's lease, renewed four times within it: the kubelet's own default. 1,000 nodes
    make 100 writes a second of it; measurements of something else may use longer leases."""
    node_lifecycle: bool = False
    """Whether nodes that fall silent are tainted and lose their pods. Off by default, because a suspended laptop or
    a CI machine that stalls for a minute would lose them all."""
    api_flags: tuple[str, ...] = ()
    """Further flags for kube-apiserver, such as --feature-gates=... They come last and therefore win."""


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


def commands(
    settings: ControlPlaneSettings, ports: Ports, programs: Programs, folder: Folder
) -> Mapping[str, list[str | Path]]:
    """Command line by process, in the order of starting; missing programs are left out."""
    made: dict[str, list[str | Path]] = {
        ETCD: _etcd(ports, folder),
        API_SERVER: [*_api_server(ports, folder), *settings.api_flags],
        SCHEDULER: _scheduler(ports, folder),
        CONTROLLERS: _controllers(settings, ports, folder),
    }
    wanted = {name: [programs[name], *flags] for name, flags in made.items() if name in programs.path}
    has_nodes = settings.nodes > 0 or settings.manifests
    return wanted | ({NODES: _simulated_nodes(settings, folder)} if has_nodes else {})


def _simulated_nodes(settings: ControlPlaneSettings, folder: Folder) -> list[str | Path]:
    # What concerns servers alone is left out: a change of it starts no nodes anew.
    own = replace(settings, node_lifecycle=False, api_flags=())
    # -P: the folder in which it is started may have a `cluster.py` of its own.
    python = (sys.executable, "-P", "-m", "simulator.controlplane.nodes")
    return [*python, folder.path, msgspec.json.encode(own).decode()]


def _etcd(ports: Ports, folder: Folder) -> list[str | Path]:
    clients, peers = f"http://{HOST}:{ports.etcd}", f"http://{HOST}:{ports.etcd_peer}"
    return [
        f"--data-dir={folder.etcd}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        # A test cluster need not survive a power cut, so no write waits for the disk.
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def _api_server(ports: Ports, folder: Folder) -> list[str | Path]:
    pki = folder.pki
    return [
        f"--etcd-servers=http://{HOST}:{ports.etcd}",
        f"--secure-port={ports.api}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={pki / SERVER}.crt",
        f"--tls-private-key-file={pki / SERVER}.key",
        f"--client-ca-file={pki / AUTHORITY}.crt",
        f"--token-auth-file={folder.tokens}",
        f"--requestheader-client-ca-file={pki / FRONT_AUTHORITY}.crt",
        f"--requestheader-allowed-names={FRONT}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / FRONT}.crt",
        f"--proxy-client-key-file={pki / FRONT}.key",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / ACCOUNTS}.key",
        f"--service-account-signing-key-file={pki / ACCOUNTS}.key",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        # ServiceAccount would refuse pods until a new namespace has its default account. TaintNodesByCondition would
        # taint every new node until the node lifecycle controller removes the taint, and that controller may be off.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--profiling=false",
        "--max-requests-inflight=1000",
        "--max-mutating-requests-inflight=500",
    ]


def _scheduler(ports: Ports, folder: Folder) -> list[str | Path]:
    return [
        *_serving(ports.scheduler, folder),
        *_as(SCHEDULER, folder),
        "--leader-elect=false",
        # Its own default of 50 requests a second would limit what a comparison measures.
        "--kube-api-qps=5000",
        "--kube-api-burst=5000",
    ]


def _controllers(settings: ControlPlaneSettings, ports: Ports, folder: Folder) -> list[str | Path]:
    off = "" if settings.node_lifecycle else ",-node-lifecycle-controller,-taint-eviction-controller"
    return [
        *_serving(ports.controllers, folder),
        *_as(CONTROLLERS, folder),
        "--leader-elect=false",
        f"--service-account-private-key-file={folder.pki / ACCOUNTS}.key",
        f"--root-ca-file={folder.pki / AUTHORITY}.crt",
        # With its own account alone, nearly every controller would be forbidden its work.
        "--use-service-account-credentials=true",
        f"--controllers=*{off}",
        # The same ratio to the lease as with the defaults of both: 50 s and 40 s. Otherwise nodes with long leases,
        # which are renewed four times in their length, would count as silent in between.
        f"--node-monitor-grace-period={settings.lease_s * 5 // 4}s",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
    ]


def _serving(port: int, folder: Folder) -> list[str | Path]:
    tls = [f"--tls-cert-file={folder.pki / SERVER}.crt", f"--tls-private-key-file={folder.pki / SERVER}.key"]
    return [f"--bind-address={HOST}", f"--secure-port={port}", *tls]


def _as(account: str, folder: Folder) -> list[str | Path]:
    path = folder.kubeconfig_of(account)
    return [f"--{role}kubeconfig={path}" for role in ("", "authentication-", "authorization-")]
