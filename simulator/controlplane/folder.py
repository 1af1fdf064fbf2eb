"""Paths in the folder of one control plane."""

import os
from dataclasses import dataclass
from pathlib import Path

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
