"""Kueue's own controller, built from its Go module into the cache of the control plane's programs.

    python -m tests.controlplane.kueue

builds it, which takes a quarter of an hour on two cores; the tests use it where it is.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from simulator.controlplane import processes
from simulator.controlplane.binaries import cache_root, environment, find_go
from simulator.controlplane.commands import SERVER
from simulator.controlplane.processes import locked
from simulator.controlplane.server import ControlPlane
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.schedulers import free_ports

VERSION = "v0.17.0"
MODULE = f"sigs.k8s.io/kueue@{VERSION}"
FOLDER = cache_root() / f"kueue-{VERSION}"
PROGRAM, CRDS = FOLDER / "kueue", FOLDER / "crds"
NAMESPACE = "kueue-system"


def skip_unless_built() -> None:
    if not (PROGRAM.exists() and CRDS.exists()):
        pytest.skip("Kueue's controller is not built: python -m tests.controlplane.kueue")
    if os.geteuid():
        pytest.skip("Kueue's controller needs a mount namespace, which root may make")


def built() -> Path:
    """Path of the controller, built first where it is not there, with its CRDs beside it. Raises BuildError."""
    go, unfinished = str(find_go()), FOLDER / "unfinished"
    with locked(FOLDER / ".lock"):
        if not PROGRAM.exists():
            there = {**environment(), "GOBIN": str(unfinished)}
            install = [go, "install", "-trimpath", "-ldflags=-s -w", MODULE.replace("@", "/cmd/kueue@")]
            subprocess.run(install, env=there, check=True)  # noqa: S603
            download = [go, "mod", "download", "-json", MODULE]
            said = subprocess.run(download, env=there, check=True, capture_output=True, cwd=unfinished)  # noqa: S603
            shutil.copytree(Path(json.loads(said.stdout)["Dir"]) / "config/components/crd/bases", CRDS)
            (unfinished / "kueue").rename(PROGRAM)
    return PROGRAM


@contextmanager
def kueue_on(server: ControlPlane, kubectl: Kubectl, folder: Path) -> Iterator[None]:
    """Kueue's controller beside a server, for batch Jobs, without its webhooks: what these would set, the test sets."""
    kubectl("apply", "--server-side", "-f", str(CRDS))
    kubectl("wait", "--for=condition=Established", "crd", "--all")
    kubectl("create", "namespace", NAMESPACE)
    # It reads certificates from a fixed place, even where it serves no metrics: an /etc of its own, over this one.
    certificates, work = folder / "etc" / "kueue" / "metrics" / "certs", folder / "work"
    certificates.mkdir(parents=True)
    work.mkdir()
    for kind in ("crt", "key"):
        shutil.copy(server.folder.pki / f"{SERVER}.{kind}", certificates / f"tls.{kind}")
    probes, webhooks, visibility = free_ports(3)
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probes}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
    }
    config = folder / "kueue.yaml"
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    etc = f"mount -t overlay kueue -o lowerdir=/etc,upperdir={folder / 'etc'},workdir={work} /etc"
    own = f"{etc} && exec {PROGRAM} --config {config} --kubeconfig {server.kubeconfig}"
    own += f" --visibility-server-port {visibility} --feature-gates VisibilityOnDemand=false"
    command = [shutil.which("unshare") or "unshare", "--mount", "/bin/sh", "-c", own]
    process = processes.start("kueue", command, folder / "kueue.log")
    try:
        yield
    finally:
        processes.stop(process)


if __name__ == "__main__":
    print(built())  # noqa: T201 - a program's answer
