"""`python -m simulator.controlplane.nodes`: process of the simulated nodes."""

import argparse
import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path

import structlog

from cluster.errors import ConfigError
from simulator.controlplane.nodes.node_objects import generated_nodes, nodes_in
from simulator.controlplane.nodes.simulated_nodes import LEASE_S, simulated_nodes

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
    fleet.add_argument("--nodes", type=int, help="generate a fleet of this number of nodes")
    fleet.add_argument("--manifests", type=Path, help="simulate the nodes of this file")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated fleet")
    parser.add_argument("--dra-driver", default="", help="publish the generated GPUs in ResourceSlices of this driver")
    parser.add_argument("--lease-s", type=int, default=LEASE_S, help="duration of a node's lease")
    parser.add_argument("--ready-file", type=Path, help="written once all nodes are registered")
    return parser.parse_args()


async def serve(options: argparse.Namespace) -> None:
    """Runs until SIGTERM or SIGINT."""
    generated = generated_nodes(options.nodes, options.seed, options.dra_driver) if options.nodes is not None else []
    nodes = nodes_in(options.manifests) if options.manifests else generated
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    until_stopped = asyncio.create_task(stopped.wait())

    async def run_fleet() -> None:
        async with simulated_nodes(options.kubeconfig, nodes, lease_s=options.lease_s) as fleet:
            if options.ready_file is not None:
                options.ready_file.touch()
            await fleet.work

    serving = asyncio.create_task(run_fleet())
    await asyncio.wait((serving, until_stopped), return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    log.info("stopped")


if __name__ == "__main__":
    sys.exit(main())
