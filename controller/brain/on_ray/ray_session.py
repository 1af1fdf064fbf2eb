"""Ray session of a brain process: a Ray of its own on this machine, or a running cluster.

Ray takes many settings from the environment and from files in the home directory. Here all that matter are explicit: a
private home and temporary directory, the token, and how soon a silent node is given up. A command that uses Ray for a
while and then ends joins it in its own process instead (controller/brain/on_ray/join.py).
"""

import socket
from typing import Any

from cluster.errors import ConfigError, Mistake
from controller.brain.on_ray.ray_start import RayStart

NAMESPACE = "tonnage"
OBJECT_STORE_BYTES = 80 * 2**20
"""Size of the object store, in bytes. Ray requires at least 75 MiB; a snapshot of 60,000 pods takes 7."""
REACH_S = 2.0
"""Seconds to reach the head's port before Ray joins it: Ray itself would try for a minute."""


def connect(start: RayStart) -> Any:
    """The `ray` module, connected. Raises ConfigError when Ray is not installed, ConnectionError without a cluster."""
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            Mistake("brain.mode", f"Ray cannot be imported: {error}", "pip install 'tonnage[ray]', or set it to inline")
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
