"""`python -m simulator.controlplane.nodes_process`: the process of the simulated nodes."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import structlog

from cluster.errors import ConfigError
from simulator.controlplane.connection import connected
from simulator.controlplane.heartbeats import LEASE_S, Heartbeats
from simulator.controlplane.kubelets import Kubelets
from simulator.controlplane.node_objects import generated_nodes, nodes_in

log = structlog.get_logger()


def main() -> int:
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=("timestamp", "level", "event")),
        ]
    )
    try:
        asyncio.run(serve(arguments()))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    fleet = parser.add_mutually_exclusive_group(required=True)
    fleet.add_argument("--nodes", type=int, help="generate a fleet of so many nodes")
    fleet.add_argument("--manifests", type=Path, help="be the nodes that this file describes")
    parser.add_argument("--seed", type=int, default=0, help="of the generated fleet")
    parser.add_argument("--lease-s", type=int, default=LEASE_S, help="how long a node's lease lasts")
    parser.add_argument("--ready-file", type=Path, help="written once all nodes are registered")
    return parser.parse_args()


async def serve(asked: argparse.Namespace) -> None:
    """Until SIGTERM or SIGINT."""
    nodes = nodes_in(asked.manifests) if asked.manifests else generated_nodes(asked.nodes, asked.seed)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with connected(asked.kubeconfig) as connection, asyncio.TaskGroup() as group:
        heartbeats = Heartbeats(connection, nodes, lease_s=asked.lease_s)
        work = [group.create_task(_serve(heartbeats, Kubelets(connection, nodes), asked.ready_file))]
        await stopped.wait()
        for task in work:
            task.cancel()
    log.info("stopped")


async def _serve(heartbeats: Heartbeats, kubelets: Kubelets, ready_file: Path | None) -> None:
    await heartbeats.register()
    if ready_file is not None:
        ready_file.touch()
    async with asyncio.TaskGroup() as group:
        group.create_task(heartbeats.renew_all())
        group.create_task(kubelets.run())


if __name__ == "__main__":
    sys.exit(main())
