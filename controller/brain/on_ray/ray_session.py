"""How a brain process comes to its Ray: one of its own on this machine, or a cluster that runs already.

Ray takes much from the environment and from files in the home directory. Here everything that matters is said outright:
a home and a temporary directory of its own, the token, and how soon a silent node is given up. A command that uses Ray
for a while and then ends joins it in its own process instead (controller/brain/on_ray/join.py).
"""

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, Mistake

NAMESPACE = "tonnage"
OBJECT_STORE_BYTES = 80 * 2**20
"""Ray allows no less than 75 MiB; a snapshot of 60,000 pods has 7."""
SILENT_NODE: Mapping[str, str] = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""Of the head: a node that freezes is given up after 7 s instead of 67 (measured on Ray 2.60)."""
REACH_S = 2.0
"""To reach the head's port before Ray is asked to join: Ray itself would try for a minute."""


@dataclass(frozen=True, slots=True)
class RayStart:
    """Which Ray, and how much of it."""

    folder: str
    """Private to this process, for Ray's files; short, for the sockets in it may have 107 characters."""
    address: str = ""
    """`host:port` of the head to join from a node of the cluster; empty: a Ray of its own."""
    token_file: str = ""
    """The cluster's token; a Ray of its own gets a token of its own."""
    planners: int = 1


def environment(start: RayStart, given: Mapping[str, str]) -> dict[str, str]:
    """The environment that the process must be born with: Ray reads it when it is imported.

    given: the parent's. Its credentials stay behind: nothing in a Ray process talks to Kubernetes.
    """
    kept = {k: v for k, v in given.items() if not k.startswith(("RAY_", "KUBE", "TONNAGE_"))}
    here = str(Path(__file__).resolve().parents[3])
    return {
        **kept,
        **({} if start.address else SILENT_NODE),
        "HOME": start.folder,
        "TMPDIR": start.folder,
        "PYTHONPATH": os.pathsep.join(filter(None, (here, given.get("PYTHONPATH", "")))),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": start.token_file or _own_token(Path(start.folder)),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_prestart_worker_first_driver": "0",
        # One thread each: the solvers are asked for one, and idle pools of the others would only cost memory.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _own_token(folder: Path) -> str:
    """A token that nobody else knows: Ray's ports are open to the machine, and whoever may call may run code."""
    path = folder / "token"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))
    return str(path)


def connect(start: RayStart) -> Any:
    """Ray, connected. Raises ConfigError when it is not installed, ConnectionError when there is no cluster."""
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            Mistake("brain.mode", f"Ray cannot be imported: {error}", "install Tonnage with Ray, or set it to inline")
        ) from error
    shared = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "error", "configure_logging": False}
    if start.address:
        _reach(start.address)
        ray.init(address=start.address, **shared)
    else:
        ray.init(
            num_cpus=start.planners + 1,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            _temp_dir=start.folder,
            _node_ip_address="127.0.0.1",
            **shared,
        )
    return ray


def _reach(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), REACH_S).close()
    except (OSError, ValueError) as error:
        raise ConnectionError(f"no Ray head at {address}: {error}") from error
