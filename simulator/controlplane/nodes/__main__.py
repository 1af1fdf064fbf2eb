"""`python -m simulator.controlplane.nodes FOLDER SETTINGS`: process of a control plane's simulated nodes."""

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path

import click
import msgspec
import structlog

from cluster.errors import ConfigError
from nodeagent.logs import configure_logs
from simulator.controlplane.commands import NODES, ControlPlaneSettings, Folder
from simulator.controlplane.nodes.node_objects import generated_nodes, nodes_in
from simulator.controlplane.nodes.simulated_nodes import simulated_nodes

log = structlog.get_logger()


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("settings")
def main(folder: Path, settings: str) -> None:
    configure_logs()
    try:
        asyncio.run(serve(Folder(folder), msgspec.json.decode(settings, type=ControlPlaneSettings)))
    except ConfigError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)


async def serve(folder: Folder, settings: ControlPlaneSettings) -> None:
    """Runs until SIGTERM or SIGINT."""
    nodes = (
        nodes_in(Path(settings.manifests))
        if settings.manifests
        else generated_nodes(settings.nodes, settings.seed, settings.dra_driver)
    )
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    until_stopped = asyncio.create_task(stopped.wait())

    async def run_fleet() -> None:
        async with simulated_nodes(folder.kubeconfig_of(NODES), nodes, lease_s=settings.lease_s) as fleet:
            folder.nodes_ready.touch()
            await fleet.work

    serving = asyncio.create_task(run_fleet())
    await asyncio.wait((serving, until_stopped), return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    log.info("stopped")


if __name__ == "__main__":
    main()
