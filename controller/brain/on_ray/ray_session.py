"""How a brain process comes to its Ray: one of its own on this machine, or a cluster that runs already.

Ray takes much from the environment and from files in the home directory. Here everything that matters is said outright:
a home and a temporary directory of its own, the token, and how soon a silent node is given up. A command that uses Ray
for a while and then ends joins it in its own process instead (controller/brain/on_ray/join.py).
"""

import socket
from typing import Any

from cluster.errors import ConfigError, Mistake
from controller.brain.on_ray.ray_start import RayStart

NAMESPACE = "tonnage"
OBJECT_STORE_BYTES = 80 * 2**20
"""Ray allows no less than 75 MiB; a snapshot of 60,000 pods has 7."""
REACH_S = 2.0
"""To reach the head's port before Ray is asked to join: Ray itself would try for a minute."""


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
