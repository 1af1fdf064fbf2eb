"""`tonnage operator` and `tonnage background`: the control loop on a cluster, and its background work on Ray."""

import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.options import setting
from cli.printing.terminal import VerbGroup
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:  # each process loads its own modules alone
    from structlog.typing import FilteringBoundLogger

    from controller.process.main import Operator


@click.group(cls=VerbGroup)
def operator() -> None:
    """Run Tonnage as an operator on a cluster."""


_FILE = click.option(
    "--config", type=click.Path(path_type=Path), help="YAML file with settings. TONNAGE_… variables take precedence."
)


@operator.command()
@_FILE
@click.option("--kubeconfig", help="Kubeconfig to use. [default: the pod's service account, otherwise KUBECONFIG]")
@click.option("--context", help="Context of the kubeconfig.")
def run(config: Path | None, **given: str | None) -> None:
    """Watch the cluster, acquire the Lease, then plan, bind, scale and report until SIGTERM.

    Several replicas may run: one leads, the others stand by. The effective settings are logged at the start.
    """
    from threading import Event

    import structlog

    from controller.process.main import operate
    from controller.report.logs import configure_logs
    from controller.settings import read_settings

    overrides: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings = read_settings(config, **overrides)
    configure_logs(settings.log_format, settings.log_level)
    log = structlog.get_logger("operator")
    stop = Event()
    _on_signal(log, stop.set)
    log.info("starting", settings=settings.model_dump(mode="json"))

    def on_start(operator: "Operator") -> None:
        log.info(
            "started",
            probe_port=operator.probe_port,
            metrics_port=operator.metrics_port,
            power_port=operator.ports.get("power"),
        )

    operate(settings, stop, on_start)
    log.info("ended")


@operator.command()
@_FILE
def settings(config: Path | None) -> None:
    """Print the settings that `run` would use, as a settings file."""
    from controller.settings import as_yaml, read_settings

    click.echo(as_yaml(read_settings(config)), nl=False)


@click.group(cls=VerbGroup)
def background() -> None:
    """Run background work on a Ray cluster for an operator elsewhere."""


@background.command()
@setting("--listen", "0.0.0.0:6390", "HOST:PORT on which the operator connects.")
@click.option(
    "--token-file", type=click.Path(path_type=Path), required=True, help="File with the token shared with the operator."
)
@click.option("--ray-address", required=True, help="HOST:PORT of the Ray head; this machine must be one of its nodes.")
@click.option("--ray-token-file", required=True, help="File with the token of the Ray cluster.")
def serve(listen: str, token_file: Path, ray_address: str, ray_token_file: str) -> None:
    """Wait for the operator's connection and run its tasks on the Ray cluster, until SIGTERM."""
    import socket

    import structlog

    from controller.background.launcher import ChildDriver, DriverServer, secret_from
    from controller.background.on_ray import DriverStart, check_installed
    from controller.report.logs import configure_logs

    configure_logs("auto", "info")
    log = structlog.get_logger("background")
    check_installed("tonnage background serve")
    try:
        secret_from(token_file)
    except ConnectionError as error:
        raise ConfigError(Mistake("--token-file", str(error), "mount the Secret with the driver's token")) from error
    start = DriverStart("cluster", address=ray_address, token_file=ray_token_file)
    host, _, port = listen.rpartition(":")
    try:
        listener = socket.create_server((host, int(port)))
    except (OSError, ValueError) as error:
        raise ConfigError(Mistake("--listen", f"{listen}: {error}", "give host:port with a free port")) from error

    def end() -> None:
        # Closing alone would not wake a thread that waits in accept().
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()

    _on_signal(log, end)
    log.info("waiting for the operator", address="{}:{}".format(*listener.getsockname()[:2]), ray=ray_address)
    DriverServer(token_file, ChildDriver(start)).serve(listener)
    log.info("ended")


def _on_signal(log: "FilteringBoundLogger", end: Callable[[], None]) -> None:
    """End by SIGTERM, and by SIGINT."""

    def logged(number: int, _: FrameType | None) -> None:
        log.info("ending", signal=signal.Signals(number).name)
        end()

    signal.signal(signal.SIGTERM, logged)
    signal.signal(signal.SIGINT, logged)
