"""`tonnage brain`: remote planner process, which runs beside the head of a Ray cluster and plans for the operator."""

import signal
import socket
from pathlib import Path
from types import FrameType

import click
import structlog

from cli.printing.whole_help import Group
from cluster.errors import ConfigError, Mistake
from controller.brain.launcher import BrainServer, ChildBrain, secret_from
from controller.brain.on_ray.ray_start import RayStart, check_installed
from controller.report.logs import configure_logs


@click.group(cls=Group)
def brain() -> None:
    """Run planners on a Ray cluster for an operator elsewhere."""


@brain.command()
@click.option("--listen", default="0.0.0.0:6390", show_default=True, help="HOST:PORT on which the operator connects.")
@click.option(
    "--token-file", type=click.Path(path_type=Path), required=True, help="File with the token shared with the operator."
)
@click.option("--ray-address", required=True, help="HOST:PORT of the Ray head; this machine must be one of its nodes.")
@click.option("--ray-token-file", required=True, help="File with the token of the Ray cluster.")
@click.option("--planners", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of planner actors.")
def serve(listen: str, token_file: Path, ray_address: str, ray_token_file: str, planners: int) -> None:
    """Wait for the operator's connection and plan for it on the Ray cluster, until SIGTERM."""
    configure_logs("auto", "info")
    log = structlog.get_logger("brain")
    check_installed("tonnage brain serve")
    try:
        secret_from(token_file)
    except ConnectionError as error:
        raise ConfigError(Mistake("--token-file", str(error), "mount the Secret with the brain's token")) from error
    start = RayStart(folder="", address=ray_address, token_file=ray_token_file, planners=planners)
    host, _, port = listen.rpartition(":")
    try:
        listener = socket.create_server((host, int(port)))
    except (OSError, ValueError) as error:
        raise ConfigError(Mistake("--listen", f"{listen}: {error}", "give host:port with a free port")) from error

    def end(number: int, _: FrameType | None) -> None:
        log.info("ending", signal=signal.Signals(number).name)
        # Closing alone would not wake a thread that waits in accept().
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    log.info("waiting for the operator", address="{}:{}".format(*listener.getsockname()[:2]), ray=ray_address)
    BrainServer(lambda: secret_from(token_file), lambda stream: ChildBrain(start).adopt(stream)).serve(listener)
    log.info("ended")
